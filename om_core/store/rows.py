"""From rows to domain values. A row is a mapping from SQLAlchemy, or JSON from a hot statement (times as text)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from om_core.domain.chunk import Chunk, ChunkKind, ChunkState, Hints, Reflection, ReflectionState
from om_core.domain.extraction import Extraction
from om_core.domain.job import Job, JobKind, JobRef, JobState, Queue
from om_core.domain.message import Message, OpenCall, Role, StoredMessage
from om_core.domain.other_threads import OtherThread
from om_core.domain.thread import EarlyActivation, MemoryState, Snapshot, ThreadState
from om_core.domain.working_memory import WorkingMemory
from om_core.formats.canonical import parse_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import RowMapping

    from om_core.domain.message import JsonObject

    Row: TypeAlias = Mapping[str, Any] | RowMapping


KNOWN = {kind.value: kind for kind in JobKind}
"""Kinds of jobs by the text in their rows. During an upgrade the database holds others too."""


def moment(value: datetime | str | None) -> datetime | None:
    """A time from either source."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def open_calls_json(calls: tuple[OpenCall, ...]) -> list[JsonObject]:
    return [{"call_id": c.call_id, "seq": c.seq, "name": c.name, "at": c.at.isoformat()} for c in calls]


def open_call(data: JsonObject) -> OpenCall:
    return OpenCall(call_id=data["call_id"], seq=data["seq"], name=data["name"], at=datetime.fromisoformat(data["at"]))


def hints_json(hints: Hints) -> JsonObject:
    if hints.is_empty:
        return {}
    return {
        "seen_seq": hints.seen_seq,
        "current_task": hints.current_task,
        "suggested_response": hints.suggested_response,
    }


def hints_from(data: JsonObject | None) -> Hints:
    data = data or {}
    return Hints(
        seen_seq=data.get("seen_seq", 0),
        current_task=data.get("current_task"),
        suggested_response=data.get("suggested_response"),
    )


def early_json(early: EarlyActivation | None) -> JsonObject | None:
    """As the thread's row keeps it."""
    if early is None:
        return None
    last = early.last_activity_at
    return {
        "reason": early.reason,
        "last_activity_at": last.isoformat() if last else None,
        "previous_model": early.previous_model,
        "chunks": early.chunks,
        "reflection": early.reflection,
    }


def early_from(data: JsonObject | None) -> EarlyActivation | None:
    """The reverse."""
    if not data:
        return None
    return EarlyActivation(
        reason=data["reason"],
        last_activity_at=moment(data["last_activity_at"]),
        previous_model=data["previous_model"],
        chunks=data["chunks"],
        reflection=data["reflection"],
    )


def thread_from(row: Row) -> ThreadState:
    return ThreadState(
        id=row["id"],
        tenant_id=row["tenant_id"],
        external_id=row["external_id"],
        resource_id=row["resource_id"],
        memory_id=row["memory_id"],
        title=row["title"],
        title_seq=row["title_seq"],
        metadata=row["metadata"] or {},
        timezone=row["timezone"],
        version=row["version"],
        head_seq=row["head_seq"],
        buffered_seq=row["buffered_seq"],
        observed_seq=row["observed_seq"],
        cut_seq=row["cut_seq"],
        pending_tokens=row["pending_tokens"],
        unbuffered_tokens=row["unbuffered_tokens"],
        held_tokens=row["held_tokens"],
        stale_tokens=row["stale_tokens"],
        open_calls=tuple(open_call(item) for item in row["open_calls"] or ()),
        turn=row["turn"],
        turn_open=row["turn_open"],
        question_seq=row["question_seq"],
        last_model=row["last_model"],
        last_activity_at=moment(row["last_activity_at"]),
        oldest_pending_at=moment(row["oldest_pending_at"]),
        idle_due_at=moment(row["idle_due_at"]),
        wait_latch_seq=row["wait_latch_seq"],
        shown_from_seq=row["shown_from_seq"],
        shown_position=row["shown_position"],
        shown_version=row["shown_version"],
        pins=tuple(row["pins"] or ()),
        hints=hints_from(row["hints"]),
        early_activation=early_from(row["early_activation"]),
        prefix_version=row["prefix_version"],
        prefix_reason=row["prefix_reason"],
        created_at=moment(row["created_at"]),
    )


def memory_from(row: Row) -> MemoryState:
    return MemoryState(
        id=row["id"],
        scope=row["scope"],
        scope_key=row["scope_key"],
        config=row["config"] or {},
        version=row["version"],
        generation=row["generation"],
        log_tokens=row["log_tokens"],
        base_tokens=row["base_tokens"],
        next_position=row["next_position"],
        reflected_position=row["reflected_position"],
        log_version=row["log_version"],
        log_reason=row["log_reason"],
        buffered_generation=row["buffered_generation"],
        repair_position=row["repair_position"],
        stuck_log_tokens=row["stuck_log_tokens"],
        discarded_version=row["discarded_version"],
    )


def snapshot_from(found: Mapping[str, Any]) -> Snapshot:
    """What the hot functions return about a thread, its memory and their live jobs."""
    memory = memory_from(found["memory"])
    given_up = memory.discarded_version == memory.version
    # Work of kinds that only newer code knows is not this code's business.
    live = [(KNOWN[kind], state) for kind, state in found["jobs"] or () if kind in KNOWN]
    return Snapshot(
        thread=thread_from(found["thread"]),
        memory=memory,
        live_jobs=frozenset(kind for kind, _ in live),
        running_jobs=frozenset(kind for kind, state in live if state == "running"),
        ready_tokens=tuple(found.get("ready") or ()),
        discarded_jobs=frozenset({JobKind.REFLECT} if given_up else ()),
    )


def message_from(row: Row) -> StoredMessage:
    removed = row["removed_at"] is not None
    created_at = moment(row["created_at"])
    assert created_at is not None
    message = Message(
        id=row["client_id"],
        role=Role(row["role"]),
        author=row["author"],
        parts=() if removed else tuple(parse_part(part, "parts") for part in row["parts"]),
        created_at=created_at,
        timezone=row["timezone"],
        metadata=row["metadata"] or {},
    )
    return StoredMessage(
        seq=row["seq"],
        message=message,
        tokens=row["tokens"],
        created_at=created_at,
        turn=row["turn"],
        continues=row["continues"],
        removed=removed,
    )


def chunk_from(row: Row) -> Chunk:
    return Chunk(
        id=row["id"],
        thread_id=row["thread_id"],
        thread=row.get("thread", ""),
        from_seq=row["from_seq"],
        to_seq=row["to_seq"],
        kind=ChunkKind(row["kind"]),
        state=ChunkState(row["state"]),
        text=row["text"],
        tokens=row["tokens"],
        message_tokens=row["message_tokens"],
        stale=row["stale"],
        position=row["position"],
        hints=hints_from(row["hints"]),
        extracted=row["extracted"] or {},
        model=row["model"],
        cost_usd=None if row["cost_usd"] is None else float(row["cost_usd"]),
        job_id=row["job_id"],
        attempt=row["attempt"],
        created_at=moment(row["created_at"]),
        activated_at=moment(row["activated_at"]),
    )


def reflection_from(row: Row) -> Reflection:
    return Reflection(
        generation=row["generation"],
        base_generation=row["base_generation"],
        through_position=row["through_position"],
        text=row["text"],
        tokens=row["tokens"],
        state=ReflectionState(row["state"]),
        input_tokens=row["input_tokens"],
        extracted=row["extracted"] or {},
        model=row["model"],
        cost_usd=None if row["cost_usd"] is None else float(row["cost_usd"]),
        job_id=row["job_id"],
        attempt=row["attempt"],
        created_at=moment(row["created_at"]),
        activated_at=moment(row["activated_at"]),
    )


def working_memory_from(row: Row) -> WorkingMemory:
    created_at = moment(row["created_at"])
    assert created_at is not None
    return WorkingMemory(
        scope=row["scope"],
        scope_key=row["scope_key"],
        version=row["version"],
        format=row["format"],
        content=row["content"],
        source=row["source"],
        base_version=row["base_version"],
        thread_id=row["thread_id"],
        job_id=row["job_id"],
        chunk_id=row["chunk_id"],
        from_seq=row["from_seq"],
        to_seq=row["to_seq"],
        created_at=created_at,
    )


def other_from(row: Row) -> OtherThread:
    return OtherThread(
        thread=row["thread"],
        timezone=row["timezone"],
        notes=tuple(row["notes"] or ()),
        messages=tuple(message_from(message) for message in row["messages"] or ()),
    )


def extraction_from(row: Row) -> Extraction:
    return Extraction(
        slug=row["slug"],
        value=row["value"],
        signal=row["signal"],
        error=row["error"],
        thread_id=row["thread_id"],
        chunk_id=row["chunk_id"],
        generation=row["generation"],
        job_id=row["job_id"],
        from_seq=row["from_seq"],
        to_seq=row["to_seq"],
        updated_at=moment(row["updated_at"]),
    )


def job_from(row: Row) -> Job:
    return Job(
        id=row["id"],
        tenant_id=row["tenant_id"],
        kind=JobKind(row["kind"]),
        queue=Queue(row["queue"]),
        state=JobState(row["state"]),
        thread=row["thread"],
        memory_id=row["memory_id"],
        thread_id=row["thread_id"],
        chunk_id=row["chunk_id"],
        from_seq=row["from_seq"],
        to_seq=row["to_seq"],
        attempt=row["attempt"],
        failures=row["failures"],
        expired_leases=row["expired_leases"],
        reason=row["reason"],
        run_at=moment(row["run_at"]),
        awaited=row["awaited"],
        lease_owner=row["lease_owner"],
        lease_expires_at=moment(row["lease_expires_at"]),
        policy=row["policy"] or {},
        prompt_version=row["prompt_version"],
        traceparent=row["traceparent"],
        input=row["input"] or {},
        partial=list(row["partial"] or ()),
        error=row["error"],
        attempts=list(row["attempts"] or ()),
        models=tuple(row["models"]),
        reserved_tokens=row["reserved_tokens"],
        reserved_usd=float(row["reserved_usd"]),
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cost_usd=float(row["cost_usd"]),
        created_at=moment(row["created_at"]),
        started_at=moment(row["started_at"]),
        finished_at=moment(row["finished_at"]),
    )


def ref_from(row: Row) -> JobRef:
    return JobRef(
        id=row["id"],
        tenant_id=row["tenant_id"],
        kind=JobKind(row["kind"]),
        queue=Queue(row["queue"]),
        thread=row["thread"],
        attempt=row["attempt"],
    )
