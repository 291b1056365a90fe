"""`om rewind` and `om forget`: taking content away again. What is gone is gone, so both ask first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.options import AsJson, Resource, Tenant, Thread

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def rewind(
    thread: Thread,
    to_seq: Annotated[int, typer.Option("--to", metavar="SEQ", min=0, help="The last message that stays; 0: none.")],
    yes: Yes = False,
    resource: Resource = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Remove everything after a message, with the notes that were made from it."""
    from api.cli.connect import open_memory

    _ask(yes, f"Remove everything after message {to_seq} of {thread}, for good?")
    with open_memory(tenant, ring=True) as memory:
        _show(memory.rewind(thread, to_seq, resource=resource), as_json=as_json)


def forget(
    thread: Annotated[str | None, typer.Option("--thread", metavar="THREAD", help="Delete a thread.")] = None,
    message: Annotated[str | None, typer.Option("--message", metavar="ID", help="Only this message of it.")] = None,
    resource: Resource = None,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Delete a message, a thread, or (with --resource alone) everything of a person, with all that was derived."""
    from api.cli.connect import open_memory

    if thread is None and (message is not None or resource is None):
        raise typer.BadParameter("say what to forget: --thread T, --thread T --message ID, or --resource R")
    what = f"thread {thread}" if thread else f"everything of resource {resource}"
    _ask(yes, f"Delete {f'message {message} of ' if message else ''}{what}, for good?")
    with open_memory(tenant, ring=True) as memory:
        if thread and message:
            found = memory.delete_message(thread, message, resource=resource)
        elif thread:
            found = memory.delete_thread(thread, resource=resource)
        else:
            found = memory.delete_resource(str(resource))
        _show(found, as_json=as_json)


def _ask(yes: bool, question: str) -> None:
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _show(found: JsonObject, *, as_json: bool) -> None:
    from api.cli.output import emit_json, say

    if as_json:
        emit_json(found)
        return
    gone = ", ".join(f"{count:,} {name}" for name, count in found.items() if count) or "nothing"
    say(f"Gone: {gone}. Notes that are left are made again where they have to be.")
