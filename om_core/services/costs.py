"""What model calls cost (DESIGN 5): booked once, when a call's answer is saved, or else when its attempt ends.

Whatever becomes of the job afterwards (it waits, is cancelled, loses its lease), a saved call has been paid for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.errors import LostRaceError
from om_core.domain.job import JobState
from om_core.ports import FinishedJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.job import Job
    from om_core.domain.message import JsonObject
    from om_core.domain.thread import ThreadState
    from om_core.ports import ModelReply
    from om_core.services.deps import Services

COSTS = ("input_tokens", "output_tokens", "cost_usd")


def usage_of(replies: Sequence[ModelReply]) -> JsonObject:
    """What calls of one answer cost together, as saved with it."""
    return {
        "model": replies[-1].model,
        "input_tokens": sum(reply.input_tokens for reply in replies),
        "output_tokens": sum(reply.output_tokens for reply in replies),
        "cost_usd": sum(reply.cost_usd or 0.0 for reply in replies),
    }


def finished_with(answers: Sequence[JsonObject]) -> FinishedJob:
    """A completed job with the sum of its saved calls."""
    return FinishedJob(
        state=JobState.COMPLETED, booked=True, **{name: sum(item[name] for item in answers) for name in COSTS}
    )


def save_call(services: Services, tenant: str, job: Job, thread: ThreadState, answers: Sequence[JsonObject]) -> None:
    """Save the newest of a job's answers under its fence, and book it.

    Raises:
        LostRaceError: somebody else has the job; nothing was written.
    """
    newest = answers[-1]
    with services.store.transaction(tenant) as tx:
        if not tx.jobs.save_partial(job, answers):
            raise LostRaceError("the lease was lost during the model call", usage=newest)
        if newest["model"]:
            cost = FinishedJob(state=JobState.RUNNING, **{name: newest[name] for name in COSTS})
            tx.book_usage(thread, job.kind.value, newest["model"], cost)


def book_lost(services: Services, tenant: str, job: Job, usage: JsonObject | None) -> None:
    """Book a call whose result was dropped; of an attempt whose lease expired only what goes beyond its reservation,
    which was booked in full when that was found.
    """
    if usage is None or job.thread_id is None:
        return
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(job.thread_id)
        if thread is None:  # deleted, and with it whose it was: nothing of a deleted resource may come back
            return
        current = tx.jobs.get(job.id)
        beyond = _beyond(usage, [] if current is None else [one for one in current.attempts if _expired(one, job)])
        if any(beyond.values()):
            lost = FinishedJob(state=JobState.SUPERSEDED, outcome="lost", **beyond)
            tx.book_usage(thread, job.kind.value, str(usage["model"]), lost)


def _expired(entry: JsonObject, job: Job) -> bool:
    return entry.get("attempt") == job.attempt and entry.get("outcome") == "lease_expired"


def _beyond(usage: JsonObject, covered: Sequence[JsonObject]) -> JsonObject:
    """What of a call's cost these bookings do not cover; their tokens are all counted as input."""
    tokens = sum(entry["input_tokens"] + entry["output_tokens"] for entry in covered)
    money = sum(entry["cost_usd"] for entry in covered)
    more_input = max(0, usage["input_tokens"] - tokens)
    return {
        "input_tokens": more_input,
        "output_tokens": min(usage["output_tokens"], max(0, usage["input_tokens"] + usage["output_tokens"] - tokens)),
        "cost_usd": max(0.0, usage["cost_usd"] - money),
    }
