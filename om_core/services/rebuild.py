"""A rebuild job: the text of a parked or stale chunk is made again from its messages, in place (DESIGN 6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.chunk import ChunkKind, ChunkState, Hints
from om_core.domain.cuts import Cut, open_calls
from om_core.domain.errors import LostRaceError
from om_core.domain.extraction import Extraction
from om_core.domain.job import JobKind, JobState
from om_core.options import policy_from_json
from om_core.ports import FinishedJob, NewChunk, ObserverMaterial
from om_core.prompts.observer import OBSERVER_VERSION
from om_core.services.costs import finished_with
from om_core.services.enqueue import decide_again, late_job
from om_core.services.model_calls import input_room
from om_core.services.observe import SYSTEM_TOKENS, Range, ask, gaps, notes_of
from om_core.services.ranges import READ_LIMIT
from om_core.services.stored_chunk import chunk_ended
from om_core.services.values import inline_values, keep

if TYPE_CHECKING:
    from threading import Event

    from om_core.domain.chunk import Chunk
    from om_core.domain.job import Job, JobRef
    from om_core.domain.message import JsonObject
    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction
    from om_core.services.deps import Services


def run_rebuild(services: Services, tenant: str, job: Job, cancelled: Event) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Do a claimed rebuild job; returns and raises as `run_observe`."""
    chosen = _choose(services, tenant, job)
    if chosen is None:
        return _superseded(services, tenant, job)
    replies = ask(services, tenant, job, chosen, cancelled)
    return _store(services, tenant, job, chosen, replies)


def _choose(services: Services, tenant: str, job: Job) -> Range | None:
    with services.store.reading(tenant) as tx:
        snapshot = tx.memories.snapshot(int(job.thread_id or 0))
        chunk = tx.chunks.get(int(job.chunk_id or 0))
        if chunk is None:
            raise LostRaceError("the chunk is gone")
        if not _wanting(chunk):
            return None
        messages = tx.messages.between(snapshot.thread.id, chunk.from_seq - 1, chunk.to_seq, limit=READ_LIMIT)
        policy = policy_from_json(job.policy)
        kept = tx.kept(snapshot.thread, snapshot.memory) if policy.observation.extract else None
        pauses = gaps(tx, snapshot.thread, policy, messages)
    tokens = sum(message.tokens for message in messages)
    room = input_room(services.model, policy.observation.model, overhead_tokens=SYSTEM_TOKENS)
    waiting = open_calls(messages)
    return Range(
        snapshot=snapshot,
        policy=policy,
        messages=messages,
        cut=Cut(
            to_seq=chunk.to_seq,
            tokens=tokens,
            message_count=len(messages),
            open_calls=tuple(call.call_id for call in waiting),
            sliced=tokens > room,
        ),
        material=ObserverMaterial(
            messages=tuple(message for message in messages if not message.removed),
            open_calls=waiting,
            timezone=snapshot.thread.timezone or "UTC",
            ask_current_task=False,
            gaps=pauses,
        ),
        shown_chunks=(),
        kept=kept,
    )


def _wanting(chunk: Chunk) -> bool:
    """Whether there is anything to make again."""
    return chunk.stale or chunk.kind is ChunkKind.PARKED


def _superseded(services: Services, tenant: str, job: Job) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """End a job whose chunk was rebuilt by another, or it would be tried for ever."""
    result = FinishedJob(state=JobState.SUPERSEDED, outcome="superseded")
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(int(job.thread_id or 0))
        if thread is None:
            raise LostRaceError("the thread was deleted")
        tx.memories.lock(thread.memory_id)
        if not tx.jobs.finish(job, result):
            raise LostRaceError("another worker has the job")
        jobs = decide_again(tx, services, tx.memories.snapshot(thread.id), tx.now(), ended=JobKind.REBUILD)
    return result, jobs


def _store(
    services: Services, tenant: str, job: Job, chosen: Range, replies: list[JsonObject]
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Rewrite the row, fenced by the attempt and by the row still being stale or parked."""
    text = notes_of(replies)
    result = finished_with(replies)
    values = inline_values(chosen.policy, "observer", replies)
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(chosen.thread.id)
        chunk = tx.chunks.get(int(job.chunk_id or 0))
        if thread is None or chunk is None:
            raise LostRaceError("the chunk is gone")
        tx.memories.lock(thread.memory_id)
        new = NewChunk(
            memory_id=thread.memory_id,
            thread_id=thread.id,
            from_seq=chunk.from_seq,
            to_seq=chunk.to_seq,
            kind=ChunkKind.OBSERVED if text else ChunkKind.EMPTY,
            text=text,
            tokens=services.counter.count_text(text) if text else 0,
            message_tokens=chunk.message_tokens,
            job_id=job.id,
            attempt=job.attempt,
            hints=Hints(),
            shown_chunks=values.shown_chunks,
            extracted=values.extracted,
            model=replies[-1]["model"],
            prompt_version=OBSERVER_VERSION,
            cost_usd=result.cost_usd,
        )
        if not tx.jobs.finish(job, result) or not tx.chunks.rewrite(chunk.id, new):
            raise LostRaceError("the chunk was rebuilt meanwhile")
        recount(tx, thread, chunk, new)
        where = Extraction(thread_id=thread.id, job_id=job.id, from_seq=new.from_seq, to_seq=new.to_seq)
        told = keep(tx, chosen.policy, thread, job, values.specs, values.settled, where)
        tx.events.add([chunk_ended(job, thread, new, tx.now(), told)])
        jobs = decide_again(tx, services, tx.memories.snapshot(thread.id), tx.now(), ended=JobKind.REBUILD)
        if values.late:
            jobs += late_job(tx, job, thread, chosen.policy, chunk_id=chunk.id)
    return result, jobs


def recount(tx: Transaction, thread: ThreadState, chunk: Chunk, new: NewChunk) -> None:
    """A chunk of the log that changes is a prefix change of every thread that may show it, and the log's counter
    follows (DESIGN 2.5).
    """
    memory = tx.memories.get(thread.memory_id)
    if chunk.state is ChunkState.ACTIVE and (chunk.position or 0) > memory.reflected_position:
        log_tokens = memory.log_tokens + new.tokens - chunk.tokens
        changed = {"log_version": memory.log_version + 1, "log_reason": "rebuild"}
        tx.memories.update(memory.id, log_tokens=log_tokens, stuck_log_tokens=None, **changed)
    if chunk.stale and chunk.state is ChunkState.ACTIVE:
        tx.threads.update(thread.id, stale_tokens=max(0, thread.stale_tokens - chunk.message_tokens))
