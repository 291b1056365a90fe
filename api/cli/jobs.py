"""`om jobs`: the queue's truth, and redrive."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from api.cli.options import AsJson, Cursor, Limit, Resource, Tenant

STATES: Final = ("available", "running", "retryable", "completed", "discarded", "cancelled", "superseded")
State = Annotated[str | None, typer.Option("--state", metavar="S", help=f"One of {', '.join(STATES)}.")]
JobId = Annotated[int, typer.Argument(metavar="ID", help="Number of the job.")]
ERROR_WIDTH: Final = 60

jobs = typer.Typer(help="List jobs; redrive and cancel them.", no_args_is_help=False)


@jobs.callback(invoke_without_command=True)
def list_jobs(  # noqa: PLR0913, PLR0917 - the options of a command
    context: typer.Context,
    state: State = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="K", help="observe, rebuild, extract, reflect, index.")
    ] = None,
    thread: Annotated[str | None, typer.Option("--thread", metavar="T", help="Of one thread.")] = None,
    resource: Resource = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first; redrive and cancel them with the commands below."""
    if context.invoked_subcommand is not None:
        return
    from api.cli.connect import open_memory
    from api.cli.output import emit_json, note

    _check_state(state)
    with open_memory(tenant) as memory:
        page = memory.jobs(state=state, kind=kind, thread=thread, resource=resource, cursor=cursor, limit=limit)
    if as_json:
        emit_json({"items": list(page.items), "next_cursor": page.next_cursor})
        return
    _print(list(page.items))
    if page.next_cursor:
        note(f"more: --cursor {page.next_cursor}")


@jobs.command("retry")
def retry(
    job: Annotated[int | None, typer.Argument(metavar="[ID]", help="Number of a discarded job.")] = None,
    state: Annotated[str | None, typer.Option("--state", metavar="discarded", help="All that are discarded.")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Run discarded jobs again: one by its number, or all with --state discarded."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json, note

    if (job is None) == (state is None):
        raise typer.BadParameter("name one job, or all of them with --state discarded")
    if state not in {None, "discarded"}:
        raise typer.BadParameter(f"only discarded jobs can run again, not {state!r}")
    with open_memory(tenant, ring=True) as memory:
        found = memory.retry_discarded() if job is None else [memory.retry_job(job)]
    if as_json:
        emit_json({"items": found, "next_cursor": None})
        return
    _print(found)
    if not found:
        note("no job is discarded")


@jobs.command("cancel")
def cancel(job: JobId, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Cancel a live job; a worker that holds it writes nothing."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json

    with open_memory(tenant, ring=True) as memory:
        found = memory.cancel_job(job)
    if as_json:
        emit_json(found)
    else:
        _print([found])


def _check_state(state: str | None) -> None:
    if state is not None and state not in STATES:
        raise typer.BadParameter(f"{state!r} is no state of a job: {', '.join(STATES)}")


def _print(found: list[dict[str, Any]]) -> None:
    from api.cli.output import print_table

    rows = [
        (
            str(job["id"]),
            job["kind"],
            job["state"],
            job["thread"],
            f"{job['from_seq']}-{job['to_seq']}" if job["from_seq"] else None,
            f"{job['attempt']}/{job['failures']}",
            job["queue"],
            job["created_at"],
            ((job["error"] or {}).get("message") or "")[:ERROR_WIDTH],
        )
        for job in found
    ]
    headers = ("id", "kind", "state", "thread", "messages", "attempts/failures", "queue", "created", "error")
    print_table(headers, rows, right=("id",))
