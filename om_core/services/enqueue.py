"""From decided actions to job rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from om_core.domain.job import QUEUE_OF, JobKind
from om_core.domain.thresholds import REPAIR, decide
from om_core.ports import NewJob
from om_core.prompts.extract import EXTRACT_VERSION
from om_core.prompts.observer import OBSERVER_VERSION
from om_core.prompts.reflector import REFLECTOR_VERSION
from om_core.tracing import traceparent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from om_core.domain.job import Job, JobRef
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import Snapshot, ThreadState
    from om_core.domain.thresholds import Action
    from om_core.ports import Transaction
    from om_core.services.deps import Services


def new_jobs(services: Services, snapshot: Snapshot, policy: MemoryPolicy, actions: Iterable[Action]) -> list[NewJob]:
    """Rows for these actions, with the policy and prompt version they will run under."""
    thread, cause = snapshot.thread, traceparent() if actions else ""
    return [
        NewJob(
            kind=action.kind,
            queue=QUEUE_OF[action.kind],
            target=target(action.kind, thread_id=thread.id, memory_id=thread.memory_id),
            thread=thread.external_id,
            memory_id=thread.memory_id,
            thread_id=thread.id,
            reason=action.reason,
            policy=services.policies.as_json(policy),
            prompt_version=REFLECTOR_VERSION if action.kind is JobKind.REFLECT else OBSERVER_VERSION,
            traceparent=cause,
            models=models_of(policy, action.kind),
        )
        for action in actions
    ]


def rebuild_job(services: Services, policy: MemoryPolicy, thread: ThreadState, chunk_id: int) -> NewJob:
    """A row that makes the notes of a stale chunk again."""
    return NewJob(
        kind=JobKind.REBUILD,
        queue=QUEUE_OF[JobKind.REBUILD],
        target=target(JobKind.REBUILD, thread_id=thread.id, memory_id=thread.memory_id, chunk_id=chunk_id),
        thread=thread.external_id,
        memory_id=thread.memory_id,
        thread_id=thread.id,
        chunk_id=chunk_id,
        reason=REPAIR,
        policy=services.policies.as_json(policy),
        prompt_version=OBSERVER_VERSION,
        models=models_of(policy, JobKind.REBUILD),
    )


def models_of(policy: MemoryPolicy, kind: JobKind) -> tuple[str, ...]:
    """Which models a job of this kind may call, in the order in which they are asked."""
    phase = policy.reflection.model if kind is JobKind.REFLECT else policy.observation.model
    return tuple(dict.fromkeys(name for _, name in phase.by_input_tokens)) or (phase.name, *phase.fallbacks)


def target(
    kind: JobKind, *, thread_id: int, memory_id: int, chunk_id: int | None = None, generation: int | None = None
) -> str:
    """What a job of this kind is exclusive on: one live job per target and kind."""
    if kind is JobKind.REFLECT:
        return f"memory:{memory_id}"
    if kind is JobKind.REBUILD or chunk_id is not None:
        return f"chunk:{chunk_id}"
    if generation is not None:
        return f"generation:{memory_id}:{generation}"
    return f"thread:{thread_id}"


def late_job(
    tx: Transaction,
    job: Job,
    thread: ThreadState,
    policy: MemoryPolicy,
    *,
    chunk_id: int | None = None,
    generation: int | None = None,
) -> tuple[JobRef, ...]:
    """A job for the values that take a call of their own or a function, under the policy of the job before it."""
    key = target(
        JobKind.EXTRACT, thread_id=thread.id, memory_id=thread.memory_id, chunk_id=chunk_id, generation=generation
    )
    new = NewJob(
        kind=JobKind.EXTRACT,
        queue=QUEUE_OF[JobKind.EXTRACT],
        target=key,
        thread=thread.external_id,
        memory_id=thread.memory_id,
        thread_id=thread.id,
        chunk_id=chunk_id,
        input={} if generation is None else {"generation": generation},
        reason="values",
        policy=job.policy,
        prompt_version=EXTRACT_VERSION,
        traceparent=job.traceparent,
        models=models_of(policy, JobKind.EXTRACT),
    )
    return tx.jobs.insert([new])


def decide_again(
    tx: Transaction, services: Services, snapshot: Snapshot, now: datetime, *, ended: JobKind | None = None
) -> tuple[JobRef, ...]:
    """Insert what is due now; `ended` is a kind whose live job this transaction has just ended."""
    policy = services.policies.of(snapshot.memory)
    live = snapshot.live_jobs - {ended} if ended else snapshot.live_jobs
    current = replace(snapshot, live_jobs=live)
    return tx.jobs.insert(new_jobs(services, current, policy, decide(current, policy, now).actions))
