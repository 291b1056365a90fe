"""Waiting for work asked for by hand, without holding a pool thread (DESIGN 6.4): short steps in the pool, a future."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool

from om_core.domain.errors import ConflictError, GiveUpError
from om_core.memory import FLUSH_WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.message import JsonObject
    from om_core.memory import Memory
    from om_core.services.waiting import JobWaiter

_SETTLE_S: Final = 0.1
"""Added to a wait, so that a job that ends with it is still seen."""


async def ask(memory: Memory, waiter: JobWaiter, start: Callable[[], JsonObject], wait_s: float | None) -> JsonObject:
    """Start work and wait for it; the job as it stands then is the `result`.

    Args:
        memory: of the request's tenant.
        waiter: this process's poller.
        start: `Memory.observe` or `.reflect` with its arguments, not waiting.
        wait_s: seconds to wait; None or 0: not at all.

    Raises:
        GiveUpError: the awaited job was given up. ConflictError: it was cancelled.
    """
    asked = await run_in_threadpool(start)
    if asked["job"] is None:
        return {**asked, "result": None}
    if wait_s:
        await _ended(waiter, asked["job"], wait_s)
    job = await run_in_threadpool(memory.job, asked["job"])
    if wait_s:
        _raise_failure(job)
    return {**asked, "state": job["state"], "result": job}


async def flush(
    memory: Memory, waiter: JobWaiter, thread: str, resource: str | None, wait_s: float | None
) -> JsonObject:
    """Observe everything pending to the last cut, wait, activate."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + (FLUSH_WAIT_S if wait_s is None else wait_s)
    last: JsonObject | None = None
    while True:
        left = max(0.0, deadline - clock())
        asked = await ask(memory, waiter, lambda: memory.observe(thread, resource=resource), left)
        if last is None or asked["job"] is not None:
            last = asked
        if asked["job"] is None or asked["state"] != "completed":
            break
    activated = await run_in_threadpool(memory.activate, thread, resource=resource)
    return {**activated, "observe": last}


async def _ended(waiter: JobWaiter, job_id: int, wait_s: float) -> str | None:
    """The job's final state, or None when the time was over first."""
    future = waiter.watch(job_id)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), wait_s + _SETTLE_S)
    except (TimeoutError, CancelledError):
        return None


def _raise_failure(job: JsonObject) -> None:
    """Errors are errors here (API 3)."""
    if job["state"] == "discarded":
        error = job["error"] or {}
        cause = error.get("message") or error.get("detail") or error.get("code") or "no reason is stored"
        msg = f"job {job['id']} was given up: {cause}. Redrive it with POST /v1/jobs/{job['id']}/retry"
        raise GiveUpError(msg)
    if job["state"] == "cancelled":
        msg = f"job {job['id']} was cancelled"
        raise ConflictError(msg)
