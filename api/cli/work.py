"""Work asked for by hand: observe, reflect, activate, flush."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.options import AsJson, Resource, Tenant, Thread, Wait

ENDED_BADLY = ("discarded", "cancelled", "superseded")


def observe(
    thread: Thread, wait: Wait = 60.0, resource: Resource = None, tenant: Tenant = None, as_json: AsJson = False
) -> None:
    """Take notes of everything pending up to the last cut, whatever the thresholds say."""
    from api.cli.connect import open_memory

    with open_memory(tenant, ring=True) as memory:
        found = memory.observe(thread, resource=resource, wait_s=wait or None)
    _answer(found, waited=wait, as_json=as_json)


def reflect(
    thread: Thread,
    guidance: Annotated[str | None, typer.Option("--guidance", help="Shown to the Reflector.")] = None,
    wait: Wait = 120.0,
    resource: Resource = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Condense the log now."""
    from api.cli.connect import open_memory

    with open_memory(tenant, ring=True) as memory:
        found = memory.reflect(thread, resource=resource, wait_s=wait or None, guidance=guidance)
    _answer(found, waited=wait, as_json=as_json)


def activate(thread: Thread, resource: Resource = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Move every finished chunk into the log, and let a finished reflection take effect."""
    from api.cli.connect import open_memory
    from api.cli.output import emit_json, say

    with open_memory(tenant, ring=True) as memory:
        found = memory.activate(thread, resource=resource)
    if as_json:
        emit_json(found)
    else:
        say(_activated(found["activated"]))


def flush(
    thread: Thread, wait: Wait = 120.0, resource: Resource = None, tenant: Tenant = None, as_json: AsJson = False
) -> None:
    """Take notes of everything pending, wait for them, and activate them."""
    from api.cli.connect import open_memory
    from api.cli.output import say

    with open_memory(tenant, ring=True) as memory:
        found = memory.flush(thread, resource=resource, wait_s=wait)
    if not as_json:
        say(_activated(found["activated"]))
    _answer({**found, **found["observe"]}, waited=wait, as_json=as_json, shown=found)


def _answer(found: dict[str, Any], *, waited: float, as_json: bool, shown: dict[str, Any] | None = None) -> None:
    """Print what came of a request; exit code 1 when its job failed or did not end within the wait."""
    from api.cli.output import emit_json, note, say

    job, state = found["job"], found["state"]
    if as_json:
        emit_json(shown or found)
    elif job is None:
        say(f"nothing to do: {found['reason']}")
    else:
        say(f"job {job}: {state or 'due'}")
    if job is None or not waited or state == "completed":
        return
    if state in ENDED_BADLY:
        note(f"error: job {job} is {state}; see `om jobs`")
    else:
        note(f"error: job {job} has not ended within {waited:g} s; a worker goes on with it, see `om jobs`")
    raise typer.Exit(1)


def _activated(found: dict[str, Any] | None) -> str:
    if found is None:
        return "nothing was ready to activate"
    if not found["chunks"]:
        return f"reflection {found['generation']} took effect"
    return (
        f"activated {found['chunks']} chunks: {found['messages']} messages ({found['tokens']:,} tokens) became "
        f"{found['observation_tokens']:,} tokens of notes"
    )
