"""Work asked for by hand: observe, reflect, activate, flush. Errors are errors here (API 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from om_core.domain.job import JobKind
from om_core.domain.thresholds import Action
from om_core.formats.sanitise import sanitise_text
from om_core.services.context import find_snapshot
from om_core.services.enqueue import new_jobs

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request by hand led to: the live job, or the reason why there is nothing to do."""

    job_id: int | None
    reason: str
    thread_id: int


def ask_for(
    services: Services, tenant: str, kind: JobKind, thread: str, resource: str | None, *, guidance: str | None = None
) -> Asked:
    """Make a job due now, whatever the thresholds say; the live one, if there is one already."""
    with services.store.transaction(tenant) as tx:
        found = find_snapshot(tx, thread, resource)
        tx.threads.lock_by_id(found.thread.id)
        snapshot = tx.memories.snapshot(found.thread.id)
        state, memory = snapshot.thread, snapshot.memory
        if kind is JobKind.OBSERVE and state.cut_seq <= state.buffered_seq:
            reason = "nothing is pending" if state.head_seq <= state.buffered_seq else "an open tool call holds the cut"
            return Asked(job_id=None, reason=reason, thread_id=state.id)
        if kind is JobKind.REFLECT and memory.buffered_generation is not None:
            return Asked(job_id=None, reason="a finished reflection waits to take effect", thread_id=state.id)
        if kind is JobKind.REFLECT and memory.next_position - 1 <= memory.reflected_position:
            return Asked(job_id=None, reason="no notes since the last reflection", thread_id=state.id)
        policy = services.policies.of(memory)
        inserted = tx.jobs.insert(new_jobs(services, snapshot, policy, [Action(kind, "manual")]))
        job = inserted[0] if inserted else tx.jobs.live(state.id, kind)
        if job is not None:
            tx.jobs.ask(job.id, sanitise_text(guidance) if guidance else None)
    if job is None:
        return Asked(job_id=None, reason="the work was done meanwhile", thread_id=found.thread.id)
    services.dispatcher.ring([job])
    return Asked(job_id=job.id, reason="due", thread_id=found.thread.id)


def asked_view(asked: Asked, state: str | None) -> JsonObject:
    """The answer before or after waiting."""
    return {"job": asked.job_id, "state": state, "reason": asked.reason}
