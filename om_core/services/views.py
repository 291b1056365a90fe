"""Domain values as the JSON of API 3: snake_case, times in UTC with `Z`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.formats.canonical import dump_message
from om_core.services.deps import optional_iso

if TYPE_CHECKING:
    from om_core.domain.chunk import Chunk, Hints, Reflection
    from om_core.domain.job import Job, JobRef
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.domain.thread import ThreadState
    from om_core.ports import UsageRow
    from om_core.services.ingest import StepResult


def thread_view(thread: ThreadState) -> JsonObject:
    """A thread; its token counters are in `status`."""
    return {
        "id": thread.external_id,
        "resource_id": thread.resource_id,
        "title": thread.title,
        "metadata": thread.metadata,
        "timezone": thread.timezone,
        "version": thread.version,
        "head_seq": thread.head_seq,
        "observed_seq": thread.observed_seq,
        "pending_tokens": thread.pending_tokens,
        "last_model": thread.last_model,
        "last_activity_at": optional_iso(thread.last_activity_at),
        "created_at": optional_iso(thread.created_at),
    }


def message_view(stored: StoredMessage) -> JsonObject:
    """A stored message: the canonical form, with what memory knows of it."""
    return {
        **dump_message(stored.message),
        "seq": stored.seq,
        "tokens": stored.tokens,
        "turn": stored.turn,
        "continues": stored.continues,
        "created_at": optional_iso(stored.created_at),
    }


def ref_view(ref: JobRef) -> JsonObject:
    """A job as the step that made it due names it."""
    return {"id": ref.id, "kind": ref.kind.value}


def step_view(result: StepResult) -> JsonObject:
    """The answer to `POST …/messages`, without status and context."""
    view: JsonObject = {
        "messages": [
            {"id": ref.id, "seq": ref.seq, "tokens": ref.tokens, "created": ref.created} for ref in result.messages
        ],
        "duplicates": list(result.duplicates),
        "deleted": list(result.deleted),
        "ignored": list(result.ignored),
        "jobs": [ref_view(ref) for ref in result.jobs],
        "created": result.created,
    }
    if result.diverged_at_seq is not None:
        view["diverged_at_seq"] = result.diverged_at_seq
    return view


def job_view(job: Job) -> JsonObject:
    """A job as operators see it."""
    return {
        "id": job.id,
        "kind": job.kind.value,
        "queue": job.queue.value,
        "state": job.state.value,
        "thread": job.thread,
        "reason": job.reason,
        "attempt": job.attempt,
        "failures": job.failures,
        "from_seq": job.from_seq,
        "to_seq": job.to_seq,
        "awaited": job.awaited,
        "run_at": optional_iso(job.run_at),
        "lease_owner": job.lease_owner,
        "lease_expires_at": optional_iso(job.lease_expires_at),
        "error": job.error,
        "attempts": job.attempts,
        "input_tokens": job.input_tokens,
        "output_tokens": job.output_tokens,
        "cost_usd": job.cost_usd,
        "created_at": optional_iso(job.created_at),
        "started_at": optional_iso(job.started_at),
        "finished_at": optional_iso(job.finished_at),
    }


def hints_view(hints: Hints) -> JsonObject | None:
    """Hints, or None where nothing was said."""
    if hints.is_empty:
        return None
    return {
        "seen_seq": hints.seen_seq,
        "current_task": hints.current_task,
        "suggested_response": hints.suggested_response,
    }


def chunk_view(chunk: Chunk, ids: dict[int, str | None]) -> JsonObject:
    """A chunk; `ids` maps seq to the client's message id."""
    return {
        "id": chunk.id,
        "kind": chunk.kind.value,
        "state": chunk.state.value,
        "stale": chunk.stale,
        "position": chunk.position,
        "from_seq": chunk.from_seq,
        "to_seq": chunk.to_seq,
        "from_message_id": ids.get(chunk.from_seq),
        "to_message_id": ids.get(chunk.to_seq),
        "text": chunk.text,
        "tokens": chunk.tokens,
        "message_tokens": chunk.message_tokens,
        "model": chunk.model,
        "cost": chunk.cost_usd,
        "created_at": optional_iso(chunk.created_at),
        "activated_at": optional_iso(chunk.activated_at),
        "hints": hints_view(chunk.hints),
        "extracted": chunk.extracted,
    }


def reflection_view(reflection: Reflection) -> JsonObject:
    """A generation with its text."""
    return {
        "generation": reflection.generation,
        "base_generation": reflection.base_generation,
        "through_position": reflection.through_position,
        "state": reflection.state.value,
        "text": reflection.text,
        "tokens": reflection.tokens,
        "input_tokens": reflection.input_tokens,
        "extracted": reflection.extracted,
        "model": reflection.model,
        "cost": reflection.cost_usd,
        "created_at": optional_iso(reflection.created_at),
        "activated_at": optional_iso(reflection.activated_at),
    }


def usage_view(row: UsageRow) -> JsonObject:
    """Sums of model calls, with what they are summed by."""
    return {
        **row.group,
        "calls": row.calls,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost_usd": round(row.cost_usd, 8),
    }
