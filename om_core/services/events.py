"""Payloads of `data-om-*` events: the reference's fields, in its camelCase, for its user interfaces (API 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.working_memory import state_signal
from om_core.ports import NewEvent
from om_core.services.deps import utc_iso

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.chunk import Chunk, Reflection
    from om_core.domain.extraction import Source
    from om_core.domain.job import Job
    from om_core.domain.message import JsonObject
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import MemoryState, ThreadState
    from om_core.domain.working_memory import WorkingMemory
    from om_core.services.values import Told

TRIGGERS = {"threshold": "threshold", "ttl": "ttl", "provider_change": "provider_change", "manual": "manual"}
ERROR_LIMIT = 2_000


def config_snapshot(policy: MemoryPolicy) -> JsonObject:
    """The `config` field of start and activation events."""
    return {
        "messageTokens": policy.observation.message_tokens,
        "observationTokens": policy.reflection.observation_tokens,
        "scope": policy.scope,
        "activateAfterIdle": policy.observation.activate_after_idle_s,
    }


def _event(kind: str, thread: ThreadState, payload: JsonObject) -> NewEvent:
    common = {"recordId": str(thread.memory_id), "threadId": thread.external_id}
    return NewEvent(
        type=f"data-om-{kind}", thread_id=thread.id, resource_id=thread.resource_id, payload={**payload, **common}
    )


def phase(job: Job) -> str:
    """`observation` while somebody waits for the job, else `buffering` (DESIGN 5)."""
    return "observation" if job.awaited else "buffering"


def started(
    job: Job, thread: ThreadState, policy: MemoryPolicy, *, operation: str, tokens: int, now: datetime
) -> NewEvent:
    """A run begins; `tokens` are those it will read."""
    size = "tokensToObserve" if phase(job) == "observation" else "tokensToBuffer"
    payload: JsonObject = {
        "cycleId": job.cycle_id,
        "operationType": operation,
        "startedAt": utc_iso(now),
        size: tokens,
        "threadIds": [thread.external_id],
        "config": config_snapshot(policy),
    }
    return _event(f"{phase(job)}-start", thread, payload)


def ended(
    job: Job,
    thread: ThreadState,
    *,
    operation: str,
    tokens: int,
    buffered_tokens: int,
    text: str,
    now: datetime,
    told: Told | None = None,
) -> NewEvent:
    """A run stored its result: `tokens` read, `buffered_tokens` written."""
    observing = phase(job) == "observation"
    payload: JsonObject = {
        "cycleId": job.cycle_id,
        "operationType": operation,
        "completedAt": utc_iso(now),
        "durationMs": _duration_ms(job, now),
        ("tokensObserved" if observing else "tokensBuffered"): tokens,
        ("observationTokens" if observing else "bufferedTokens"): buffered_tokens,
        "observations": text,
        **_values(told),
    }
    return _event(f"{phase(job)}-end", thread, payload)


def _values(told: Told | None) -> JsonObject:
    """Values and failures of extractors, where there are any."""
    if told is None:
        return {}
    found: JsonObject = {"extractedValues": told.values, "extractionFailures": list(told.failures)}
    return {name: value for name, value in found.items() if value}


def extracted(job: Job, thread: ThreadState, source: Source, told: Told, *, now: datetime) -> NewEvent:
    """A job made the values that come after the notes."""
    payload: JsonObject = {
        "cycleId": job.cycle_id,
        "operationType": "observation" if source == "observer" else "reflection",
        "completedAt": utc_iso(now),
        "durationMs": _duration_ms(job, now),
        "chunkId": job.chunk_id,
        "generation": job.input.get("generation"),
        **_values(told),
    }
    return _event("extraction-end", thread, payload)


def extraction_failed(job: Job, thread: ThreadState, *, error: str, now: datetime) -> NewEvent:
    """An attempt to make them failed; the notes are stored all the same."""
    payload: JsonObject = {
        "cycleId": job.cycle_id,
        "failedAt": utc_iso(now),
        "durationMs": _duration_ms(job, now),
        "chunkId": job.chunk_id,
        "generation": job.input.get("generation"),
        "error": error[:ERROR_LIMIT],
    }
    return _event("extraction-failed", thread, payload)


def signal(job: Job, thread: ThreadState, slug: str, sent: JsonObject, *, now: datetime) -> NewEvent:
    """A function of an extractor sent something to whoever follows the events."""
    payload: JsonObject = {"cycleId": job.cycle_id, "slug": slug, "timestamp": utc_iso(now), **sent}
    return _event("signal", thread, payload)


def failed(job: Job, thread: ThreadState, *, operation: str, tokens: int, error: str, now: datetime) -> NewEvent:
    """A run failed; it is retried, parked or discarded, as the job says."""
    payload: JsonObject = {
        "cycleId": job.cycle_id,
        "operationType": operation,
        "failedAt": utc_iso(now),
        "durationMs": _duration_ms(job, now),
        "tokensAttempted": tokens,
        "error": error[:ERROR_LIMIT],
    }
    return _event(f"{phase(job)}-failed", thread, payload)


def activation(
    thread: ThreadState,
    memory: MemoryState,
    policy: MemoryPolicy,
    chunk: Chunk,
    reason: str,
    *,
    now: datetime,
    model: str | None,
) -> NewEvent:
    """One chunk became part of the log; `thread` as it was before."""
    payload: JsonObject = {
        "cycleId": chunk.cycle_id,
        "operationType": "observation",
        "activatedAt": utc_iso(now),
        "chunksActivated": 1,
        "tokensActivated": chunk.message_tokens,
        "observationTokens": chunk.tokens,
        "messagesActivated": chunk.to_seq - chunk.from_seq + 1,
        "generationCount": memory.generation,
        "config": config_snapshot(policy),
        "observations": chunk.text,
        "triggeredBy": TRIGGERS.get(reason, reason),
    }
    early = thread.early_activation
    last = early.last_activity_at if early else thread.last_activity_at
    if reason == "ttl" and last is not None:
        payload["lastActivityAt"] = utc_iso(last)
        payload["ttlExpiredMs"] = int((now - last).total_seconds() * 1000)
    if reason == "provider_change":
        payload |= {
            "previousModel": early.previous_model if early else thread.last_model,
            "currentModel": thread.last_model if early else model,
        }
    return _event("activation", thread, payload)


def reflection_activation(
    thread: ThreadState,
    memory: MemoryState,
    policy: MemoryPolicy,
    reflection: Reflection,
    reason: str,
    *,
    now: datetime,
) -> NewEvent:
    """A generation took effect."""
    payload: JsonObject = {
        "cycleId": reflection.cycle_id,
        "operationType": "reflection",
        "activatedAt": utc_iso(now),
        "chunksActivated": 1,
        "tokensActivated": reflection.input_tokens,
        "observationTokens": memory.log_tokens,
        "messagesActivated": 0,
        "generationCount": memory.generation,
        "config": config_snapshot(policy),
        "observations": reflection.text,
        "triggeredBy": reason,
    }
    return _event("activation", thread, payload)


def thread_update(job: Job, thread: ThreadState, *, old_title: str | None, new_title: str, now: datetime) -> NewEvent:
    """The Observer gave the thread a title."""
    payload: JsonObject = {"cycleId": job.cycle_id, "newTitle": new_title, "timestamp": utc_iso(now)}
    if old_title:
        payload["oldTitle"] = old_title
    return _event("thread-update", thread, payload)


def working_memory(
    thread: ThreadState, new: WorkingMemory, old: WorkingMemory | None, *, cycle_id: str | None
) -> NewEvent:
    """A document has a new version: all of it, or what changed."""
    payload: JsonObject = {**state_signal(new, old), "timestamp": utc_iso(new.created_at)}
    if cycle_id is not None:
        payload["cycleId"] = cycle_id
    return _event("working-memory", thread, payload)


def _duration_ms(job: Job, now: datetime) -> int:
    return 0 if job.started_at is None else max(0, int((now - job.started_at).total_seconds() * 1000))
