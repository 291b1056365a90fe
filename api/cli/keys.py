"""`om keys`: who may use the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.options import AsJson, Cursor, Limit, Tenant

keys = typer.Typer(help="Make, list and revoke keys of the HTTP API.", no_args_is_help=True)


@keys.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="To recognise the key by: an application, a person.")],
    days: Annotated[float | None, typer.Option("--days", metavar="N", help="Until it expires; default: never.")] = None,
    resource: Annotated[str | None, typer.Option("--resource", metavar="R", help="Only for this resource.")] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="T", help="Only for this thread of the resource.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="May look, and change nothing.")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is printed once and cannot be shown again: only its hash is stored."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json, note
    from om_core.domain.reach import Reach
    from om_core.services.keys import create_key, key_view

    reach = Reach(resource=resource, thread=thread, read_only=read_only)
    with open_memory(tenant) as memory:
        made = create_key(memory.services, memory.tenant, name=name, days=days, reach=reach)
        view = key_view(made.row, memory.services.clock.now())
    if as_json:
        emit_json({**view, "key": made.secret})
        return
    note("Keep it now, it cannot be shown again. Send it as `Authorization: Bearer KEY`.")
    typer.echo(made.secret)


@keys.command("list")
def list_all(tenant: Tenant = None, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List a tenant's keys, newest first."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json, note
    from om_core.services.keys import key_view, list_keys

    with open_memory(tenant) as memory:
        now = memory.services.clock.now()
        page = list_keys(memory.services, memory.tenant, cursor=cursor, limit=limit)
    views = [key_view(row, now) for row in page.items]
    if as_json:
        emit_json({"items": views, "next_cursor": page.next_cursor})
        return
    _print(views)
    if page.next_cursor is not None:
        note(f"more: --cursor {page.next_cursor}")


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
    columns = [*("id", "prefix", "name", "state", "resource_id", "thread", "read_only"), "expires_at", "last_used_at"]
    print_table(columns, [[view[column] for column in columns] for view in views])
