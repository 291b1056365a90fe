"""`om keys`: who may use the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.options import AsJson, Tenant

keys = typer.Typer(help="Make, list and revoke keys of the HTTP API.", no_args_is_help=True)


@keys.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="To recognise the key by: an application, a person.")],
    days: Annotated[float | None, typer.Option("--days", metavar="N", help="Until it expires; default: never.")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is printed once and cannot be shown again: only its hash is stored."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json, note
    from om_core.services.keys import create_key, key_view

    with open_memory(tenant) as memory:
        made = create_key(memory.services, memory.tenant, name=name, days=days)
        view = key_view(made.row, memory.services.clock.now())
    if as_json:
        emit_json({**view, "key": made.secret})
        return
    note("Keep it now, it cannot be shown again. Send it as `Authorization: Bearer KEY`.")
    typer.echo(made.secret)


@keys.command("list")
def list_all(tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List a tenant's keys, newest first."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json
    from om_core.services.keys import key_view, list_keys

    with open_memory(tenant) as memory:
        now = memory.services.clock.now()
        views = [key_view(row, now) for row in list_keys(memory.services, memory.tenant)]
    if as_json:
        emit_json({"items": views, "next_cursor": None})
        return
    _print(views)


@keys.command("revoke")
def revoke(
    key: Annotated[int, typer.Argument(metavar="ID", help="Number of the key, as `om keys list` shows it.")],
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Make a key useless from now on."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json
    from om_core.services.keys import key_view, revoke_key

    with open_memory(tenant) as memory:
        view = key_view(revoke_key(memory.services, memory.tenant, key), memory.services.clock.now())
    if as_json:
        emit_json(view)
        return
    _print([view])


def _print(views: list[dict[str, object]]) -> None:
    from api.cli.output import note, print_table

    if not views:
        note("no keys: make one with `om keys create NAME`")
        return
    columns = ["id", "prefix", "name", "state", "created_at", "expires_at"]
    print_table(columns, [["-" if view[column] is None else str(view[column]) for column in columns] for view in views])
