"""Reading commands: threads, status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api.cli.options import AsJson, Cursor, Limit, Resource, Tenant, Thread

if TYPE_CHECKING:
    from rich.text import Text


def threads(
    resource: Resource = None, limit: Limit = 50, cursor: Cursor = None, tenant: Tenant = None, as_json: AsJson = False
) -> None:
    """List threads, newest first."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json, note, print_table
    from om_core.services.views import thread_view

    with open_memory(tenant) as memory:
        page = memory.threads(resource=resource, cursor=cursor, limit=limit)
    views = [thread_view(thread) for thread in page.items]
    if as_json:
        emit_json({"items": views, "next_cursor": page.next_cursor})
        return
    rows = [
        (
            view["id"],
            view["resource_id"],
            view["head_seq"],
            view["observed_seq"],
            view["pending_tokens"],
            view["last_activity_at"],
            view["title"],
        )
        for view in views
    ]
    headers = ("thread", "resource", "messages", "observed", "pending tokens", "last activity", "title")
    print_table(headers, rows, right=("messages", "observed", "pending tokens"))
    if not rows:
        note("no threads yet")
    if page.next_cursor:
        note(f"more: --cursor {page.next_cursor}")


def status(thread: Thread, resource: Resource = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Token windows, cursors, running jobs and errors of a thread, and why nothing happens where nothing does."""
    from api.cli.connect import open_memory
    from api.cli.output import console, emit_json

    with open_memory(tenant) as memory:
        found = memory.status(thread, resource=resource)
    if as_json:
        emit_json(found)
        return
    for line in status_lines(found):
        console().print(line)


def status_lines(found: dict[str, Any]) -> list[Text | str]:
    """A status for people: bars first, then what explains them."""
    from api.cli.output import ago, bar

    active, buffered = found["windows"]["active"], found["windows"]["buffered"]
    notes, reflection = buffered["observations"], buffered["reflection"]
    running = [f"{job['kind']} {job['id']} (attempt {job['attempt']})" for job in found["running"]]
    pending = found["pending_seq_range"]
    sizes = (
        f"{notes['chunks']} chunks, {notes['messageTokens']:,} message tokens as {notes['observationTokens']:,} of "
        f"notes; {notes['projectedMessageRemoval']:,} would leave the prompt"
    )
    lines: list[Text | str] = [
        bar("messages", active["messages"]["tokens"], active["messages"]["threshold"]),
        bar("notes", active["observations"]["tokens"], active["observations"]["threshold"]),
        f"{'buffered':<13} {sizes}",
        f"{'reflection':<13} generation {found['generationCount']}, {reflection['status']}",
        f"{'cursors':<13} head {found['head_seq']}, buffered {found['buffered_seq']}, observed {found['observed_seq']}"
        + (f"; pending {pending[0]} to {pending[1]}" if pending else ""),
        f"{'oldest':<13} {ago(found['oldest_pending_age_s'])} pending without notes",
        f"{'running':<13} {', '.join(running) or 'nothing'}; {found['workers']} workers seen",
    ]
    lines += [f"{name:<13} {why}" for name, why in found["why_idle"].items()]
    if found["open_calls"]:
        lines.append(f"{'open calls':<13} {', '.join(found['open_calls'])}")
    if found["discarded_jobs"]:
        ids = ", ".join(map(str, found["discarded_jobs"]))
        lines.append(f"{'discarded':<13} jobs {ids}: `om jobs retry ID` runs one again")
    error = found["last_error"]
    if error:
        lines.append(f"{'last error':<13} job {error['job']}: {error.get('message', '')}")
    return lines
