"""Status of a thread: the `data-om-status` data and what explains it (API 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.activation import choose_prefix
from om_core.domain.extraction import values_by_path
from om_core.domain.job import WORKER_SEEN_S, JobKind
from om_core.domain.thresholds import decide
from om_core.services.deps import optional_iso, utc_iso
from om_core.services.limits import budget_json, budgets_of, held_back
from om_core.services.views import hints_view

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from om_core.domain.chunk import Chunk
    from om_core.domain.job import Job
    from om_core.domain.message import JsonObject
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import MemoryState, Snapshot, ThreadState
    from om_core.ports import Kept, WorkerRow
    from om_core.services.deps import Services

LEAST_SHARED = 1_000
"""Tokens of a shared budget that are shown as the log's own at least."""
WHY_IDLE = {
    "disabled": "memory is switched off (option `enabled`): messages are stored, and no notes are made",
    "running": "a job is under way",
    "nothing_pending": "every message is covered by notes",
    "open_call": "a tool call waits for its result; the next cut falls after it",
    "below_threshold": "too little is pending for the next chunk",
    "nothing_new": "the log holds too few notes since the last reflection",
    "no_progress": "the last reflection did not shorten the log; waiting for it to grow",
    "buffered": "a finished reflection takes effect with a later context, once the log has reached its threshold",
    "discarded": "the last attempt was given up; redrive it with `om jobs retry`",
}


def status(services: Services, tenant: str, thread: str, resource: str | None) -> JsonObject:
    """What memory is doing for a thread, and why it does nothing where it does nothing."""
    from om_core.services.context import find_snapshot

    with services.store.reading(tenant) as tx:
        snapshot = find_snapshot(tx, thread, resource)
        state, memory = snapshot.thread, snapshot.memory
        buffered = tx.chunks.buffered(state.id)
        waiting = memory.buffered_generation
        reflection = tx.reflections.get(memory.id, waiting) if waiting else None
        jobs = tx.jobs.page(state=None, kind=None, thread_id=state.id, cursor=None, limit=20).items
        policy = services.policies.of(memory)
        budgets = budgets_of(tx, services, state, policy, JobKind.OBSERVE)
        running = tx.jobs.running()
        now = tx.now()
        kept = tx.kept(state, memory)
    workers = services.store.system.workers(max_age_s=WORKER_SEEN_S)
    explained = _explained(snapshot, policy, jobs, workers, now)
    breaker, held = held_back(services, policy, budgets, running=running)
    return {
        "recordId": str(memory.id),
        "threadId": state.external_id,
        "stepNumber": state.turn,
        "generationCount": memory.generation,
        "windows": {
            "active": {
                "messages": {"tokens": state.pending_tokens, "threshold": policy.observation.message_tokens},
                "observations": {"tokens": memory.log_tokens, "threshold": _log_threshold(services, memory, policy)},
            },
            "buffered": {
                "observations": _buffered(snapshot, policy, buffered),
                "reflection": {
                    "inputObservationTokens": reflection.input_tokens if reflection else 0,
                    "observationTokens": reflection.tokens if reflection else 0,
                    "status": _phase(snapshot, JobKind.REFLECT, ready=reflection is not None),
                },
            },
        },
        **explained,
        **_kept(state, kept, policy),
        "breaker": breaker,
        "budget": budget_json(budgets),
        "why_idle": {**explained["why_idle"], **held, **_ignored(services, memory)},
    }


def _kept(thread: ThreadState, kept: Kept, policy: MemoryPolicy) -> JsonObject:
    """What is believed beside the notes: hints, extracted values at their paths, failures of extractors, documents."""
    specs = {spec.slug: spec for spec in (*policy.observation.extract, *policy.reflection.extract)}
    return {
        "title": thread.title,
        "hints": hints_view(thread.hints),
        "extracted": values_by_path(specs.values(), kept.extractions),
        "extractions": [
            {
                "slug": found.slug,
                "value": found.value,
                "signal": found.signal,
                "error": found.error,
                "from_seq": found.from_seq,
                "to_seq": found.to_seq,
                "generation": found.generation,
                "updated_at": optional_iso(found.updated_at),
            }
            for found in kept.extractions
        ],
        "working_memory": {document.scope: document.version for document in kept.working_memory},
    }


def _ignored(services: Services, memory: MemoryState) -> dict[str, str]:
    """A configuration of the memory's own that does not apply, and why."""
    problem = services.policies.problem(memory)
    if problem is None:
        return {}
    return {"config": f"the options of this memory are ignored until they are corrected: {problem}"}


def _log_threshold(services: Services, memory: MemoryState, policy: MemoryPolicy) -> int:
    """What the log may take; of a shared budget, what the messages leave."""
    given = services.policies.given(memory)
    if not given.share_token_budget:
        return policy.reflection.observation_tokens
    budget = given.observation.message_tokens + given.reflection.observation_tokens
    return max(LEAST_SHARED, budget - policy.observation.message_tokens)


def _buffered(snapshot: Snapshot, policy: MemoryPolicy, buffered: Sequence[Chunk]) -> JsonObject:
    thread = snapshot.thread
    sizes = [chunk.message_tokens for chunk in buffered]
    chosen = choose_prefix(sizes, thread.pending_tokens, policy, "threshold") if sizes else 0
    return {
        "chunks": len(buffered),
        "messageTokens": min(sum(sizes), thread.pending_tokens),
        "projectedMessageRemoval": sum(sizes[:chosen]),
        "observationTokens": sum(chunk.tokens for chunk in buffered),
        "status": _phase(snapshot, JobKind.OBSERVE, ready=bool(buffered)),
    }


def _phase(snapshot: Snapshot, kind: JobKind, *, ready: bool) -> str:
    if kind in snapshot.live_jobs:
        return "running"
    return "complete" if ready else "idle"


def _explained(
    snapshot: Snapshot,
    policy: MemoryPolicy,
    jobs: Sequence[Job],
    workers: Sequence[WorkerRow],
    now: datetime,
) -> JsonObject:
    """The extra fields of our status: what is pending and since when, what runs, what went wrong."""
    thread = snapshot.thread
    oldest = thread.oldest_pending_at
    failed = next((job for job in jobs if job.error), None)
    idle = dict(decide(snapshot, policy, now).idle)
    reasons = {kind.value: WHY_IDLE.get(code, code) for kind, code in idle.items()}
    if snapshot.live_jobs and not workers:
        reasons["workers"] = "jobs are waiting, and no worker was seen in the last 15 seconds: start `om worker`"
    return {
        "pending_tokens": thread.pending_tokens,
        "unbuffered_tokens": thread.unbuffered_tokens,
        "pending_seq_range": [thread.observed_seq + 1, thread.head_seq]
        if thread.head_seq > thread.observed_seq
        else None,
        "head_seq": thread.head_seq,
        "buffered_seq": thread.buffered_seq,
        "observed_seq": thread.observed_seq,
        "oldest_pending_age_s": None if oldest is None else round(max(0.0, (now - oldest).total_seconds()), 3),
        "running": [
            {"id": job.id, "kind": job.kind.value, "attempt": job.attempt, "owner": job.lease_owner}
            for job in jobs
            if job.state.value == "running" and job.lease_expires_at and job.lease_expires_at > now
        ],
        "live_jobs": sorted(kind.value for kind in snapshot.live_jobs),
        "last_error": None if failed is None else {"job": failed.id, **(failed.error or {})},
        "discarded_jobs": [job.id for job in jobs if job.state.value == "discarded"],
        "omitted_positions": _omitted(snapshot),
        "open_calls": [call.call_id for call in thread.open_calls],
        "workers": len(workers),
        "why_idle": reasons,
        "last_activity_at": utc_iso(thread.last_activity_at) if thread.last_activity_at else None,
    }


def _omitted(snapshot: Snapshot) -> list[int] | None:
    """First and last position whose notes contexts leave out until a reflection replaces what a removal took away."""
    memory = snapshot.memory
    if memory.shown_after <= memory.reflected_position:
        return None
    return [memory.reflected_position + 1, memory.shown_after]
