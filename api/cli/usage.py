"""`om usage`: what memory costs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.options import AsJson, Cursor, Limit, Resource, Tenant

if TYPE_CHECKING:
    from om_core.memory import Memory

Day = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DAY", help="UTC, as in 2026-01-31.")]


def usage(  # noqa: PLR0913, PLR0917 - the options of a command
    by: Annotated[
        str, typer.Option("--by", help="What to sum by, with commas: day, resource, thread, kind, model; or none.")
    ] = "day,kind,model",
    thread: Annotated[str | None, typer.Option("--thread", metavar="T", help="Only this thread's.")] = None,
    resource: Resource = None,
    first_day: Day = None,
    last_day: Day = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Every row as CSV on stdout, nothing else.")] = False,
) -> None:
    """Model calls, tokens and US dollars, summed by day, resource, thread, kind or model."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json, note, print_table, say
    from om_core.formats.table import csv_lines
    from om_core.memory_usage import usage_columns

    groups = [] if by == "none" else by.split(",")
    query = {
        "by": groups,
        "thread": thread,
        "resource": resource,
        "first_day": first_day.date() if first_day else None,
        "last_day": last_day.date() if last_day else None,
    }
    with open_memory(tenant) as memory:
        if as_csv:
            rows = _every_row(memory, query)
            say(csv_lines(usage_columns(groups), rows).removesuffix("\r\n"))
            return
        page = memory.usage(cursor=cursor, limit=limit, **query)  # type: ignore[arg-type]  # `usage` checks them
    if as_json:
        emit_json({"items": list(page.items), "next_cursor": page.next_cursor})
        return
    columns = usage_columns(groups)
    shown = [[row[name] for name in columns] for row in page.items]
    print_table(columns, shown, right=columns[-4:])
    if not shown:
        note("no model was called yet")
    if page.next_cursor is not None:
        note(f"more: --cursor {page.next_cursor}")


def _every_row(memory: Memory, query: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = memory.usage(cursor=cursor, limit=200, **query)
        rows += page.items
        cursor = page.next_cursor
        if cursor is None:
            return rows
