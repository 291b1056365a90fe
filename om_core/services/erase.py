"""What a removal does under its locks (DESIGN 3.3): tombstones, cancelled jobs, erased text, another base, repairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from om_core.domain.chunk import ReflectionState
from om_core.domain.content_words import content_words, message_words
from om_core.domain.extraction import value_text
from om_core.domain.job import JobKind
from om_core.domain.taint import covering, spread
from om_core.domain.thresholds import REPAIR, Action
from om_core.services.enqueue import decide_again, new_jobs, rebuild_job
from om_core.services.recount import restate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from om_core.domain.job import JobRef
    from om_core.domain.message import JsonObject
    from om_core.domain.taint import ChunkFact, Taint
    from om_core.domain.thread import MemoryState
    from om_core.ports import NewJob, Transaction
    from om_core.ports.removal import Cancelled, Erased, Family
    from om_core.services.deps import Services

    Rows = Mapping[int, Sequence[int]]
    """Seqs by thread."""

ALL = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a removal did: messages emptied, chunks and generations erased, and the jobs that repair them."""

    messages: int = 0
    chunks: int = 0
    reflections: int = 0
    jobs: tuple[JobRef, ...] = ()

    def to_json(self) -> JsonObject:
        """The counts, as answers show them."""
        return {"messages": self.messages, "chunks": self.chunks, "reflections": self.reflections}


@dataclass(slots=True, kw_only=True)
class _Removal:
    """One removal, as far as it has come."""

    family: Family
    removed: Rows
    words: frozenset[str]
    taint: Taint
    erased: tuple[Erased, ...]
    cancelled: tuple[Cancelled, ...]
    leaving: int | None
    fallen: set[int] = field(default_factory=set)
    """Memories that lost their base."""


def erase(
    tx: Transaction,
    services: Services,
    family: Family,
    removed: Rows,
    *,
    keep_ids: bool,
    leaving: int | None = None,
) -> Removed:
    """Remove rows of locked threads, and everything derived from them.

    Args:
        tx: a transaction that holds the family's locks.
        services: policies and adapters; the caller rings.
        family: the threads of these rows among others, and their memories.
        removed: live rows, seqs by thread.
        keep_ids: whether the ids of the messages stay known.
        leaving: a thread whose rows the caller deletes next: nothing is made due for it.
    """
    rows = [row for thread_id, seqs in sorted(removed.items()) for row in tx.messages.at(thread_id, seqs)]
    words = message_words(rows)
    since = {resource: tx.removal.first_stored_at(part) for resource, part in _by_resource(family, removed)}
    for thread_id, seqs in sorted(removed.items()):
        tx.removal.empty_messages(thread_id, seqs, keep_ids=keep_ids)
    cancelled = tx.removal.cancel_jobs(family.memories)
    facts = tx.removal.chunks(family.memories)
    taint = spread(
        facts,
        tx.removal.generations(family.memories),
        covering=covering(facts, removed),
        words=words,
        said=tx.removal.words,
        own_words=lambda chunk: _own_words(tx, chunk),
    )
    done = _Removal(
        family=family,
        removed=removed,
        words=words,
        taint=taint,
        erased=tx.removal.erase_chunks(taint.chunks),
        cancelled=cancelled,
        leaving=leaving,
    )
    for memory in family.memories.values():
        tx.removal.erase_generations(memory.id, taint.generations_of(memory.id))
        lost_notes = any(family.threads[one.thread_id].memory_id == memory.id for one in done.erased)
        if _rebase(tx, services, memory, taint, lost_notes=lost_notes):
            done.fallen.add(memory.id)
    _erase_kept(tx, done, since)
    titled = {(chunk.thread_id, chunk.to_seq) for chunk in facts if chunk.id in taint.chunks}
    told = {one.thread_id for one in done.erased}
    for state in family.threads.values():
        policy = services.policies.of(family.memories[state.memory_id])
        lost, untitled = state.id in removed, (state.id, state.title_seq) in titled
        restate(tx, policy, state, lost_rows=lost, lost_notes=state.id in told, lost_title=untitled)
    jobs = _repairs(tx, services, done)
    return Removed(
        messages=len(rows),
        chunks=len(done.erased),
        reflections=len(taint.generations),
        jobs=jobs,
    )


def _by_resource(family: Family, removed: Rows) -> Iterator[tuple[str, dict[int, Sequence[int]]]]:
    """The removed rows of each resource."""

    def owner(thread_id: int) -> str:
        return family.threads[thread_id].resource_id

    for resource, found in groupby(sorted(removed, key=owner), key=owner):
        yield resource, {thread_id: removed[thread_id] for thread_id in found}


def _own_words(tx: Transaction, chunk: ChunkFact) -> frozenset[str]:
    return message_words(tx.messages.between(chunk.thread_id, chunk.from_seq - 1, chunk.to_seq, limit=ALL))


def _rebase(tx: Transaction, services: Services, memory: MemoryState, taint: Taint, *, lost_notes: bool) -> bool:
    """Fall back to the newest generation that is left, and count the log anew; whether the base fell."""
    gone = taint.generations_of(memory.id)
    fell, waiting = memory.generation in gone, memory.buffered_generation
    base = tx.removal.newest_kept(memory.id) if fell else memory.generation
    if fell or waiting in gone:
        tx.removal.make_base(memory.id, base)
        waiting = None
    kept = tx.reflections.get(memory.id, base) if base else None
    through, tokens = (kept.through_position, kept.tokens) if kept else (0, 0)
    repair = memory.repair_position
    if fell:
        most = services.policies.of(memory).reflection.block_after_tokens
        repair = tx.removal.bound(memory.id, through, max(0, most - tokens))
    changed = {"log_version": memory.log_version + 1, "log_reason": "removal"} if gone or lost_notes else {}
    tx.memories.update(
        memory.id,
        generation=base,
        reflected_position=through,
        base_tokens=tokens,
        log_tokens=tokens + tx.chunks.log_tokens(memory.id, through),
        buffered_generation=waiting,
        stuck_log_tokens=None,
        discarded_version=None,
        repair_position=repair,
        **changed,
    )
    return fell


def _erase_kept(tx: Transaction, done: _Removal, since: Mapping[str, datetime]) -> None:
    """Values, documents, and what events and jobs say in words."""
    taint, words, family = done.taint, done.words, done.family
    for resource, moment in since.items():
        threads = [state for state in family.threads.values() if state.resource_id == resource]
        memories = {state.memory_id for state in threads}
        tx.removal.erase_jobs(memories, moment)
        tx.removal.erase_events(memories, {resource}, moment)
        tx.removal.erase_documents(threads, moment)
    gone: dict[int, list[str]] = {}
    for memory_id, value in tx.removal.values(family.memories):
        made = value["chunk_id"] in taint.chunks or (memory_id, value["generation"]) in taint.generations
        unknown = value["chunk_id"] is None and value["generation"] is None
        said = [value["error"] or ""]
        said += [value["signal"] or "", value_text(value["value"])] if unknown else []
        if made or content_words(*said) & words:
            gone.setdefault(memory_id, []).append(value["slug"])
    for memory_id, slugs in gone.items():
        tx.removal.erase_values(memory_id, slugs)


def _repairs(tx: Transaction, services: Services, done: _Removal) -> tuple[JobRef, ...]:
    """Jobs that make the notes of stale chunks again, condense a log that lost its base, go on with what was cancelled
    and is still wanted, and whatever else is due.
    """
    family = done.family
    staying = [state for _, state in sorted(family.threads.items()) if state.id != done.leaving]
    jobs = tx.jobs.insert([*_rebuilds(services, done), *_still_wanted(done)])
    for memory_id in sorted(done.fallen):
        state = next((state for state in staying if state.memory_id == memory_id), None)
        if state is None:
            continue
        snapshot = tx.memories.snapshot(state.id)
        if snapshot.memory.next_position - 1 > snapshot.memory.reflected_position:
            policy = services.policies.of(snapshot.memory)
            jobs += tx.jobs.insert(new_jobs(services, snapshot, policy, [Action(JobKind.REFLECT, REPAIR)]))
    for state in staying:
        jobs += decide_again(tx, services, tx.memories.snapshot(state.id), tx.now())
    return jobs


def _rebuilds(services: Services, done: _Removal) -> Iterator[NewJob]:
    for one in done.erased:
        if not one.stale or one.thread_id == done.leaving:
            continue
        state = done.family.threads[one.thread_id]
        policy = services.policies.of(done.family.memories[state.memory_id])
        yield rebuild_job(services, policy, state, one.id)


def _still_wanted(done: _Removal) -> Iterator[NewJob]:
    """Cancelled work on chunks and generations that are left: nobody would decide on it again."""
    for job in (one.job for one in done.cancelled):
        if job.kind not in {JobKind.REBUILD, JobKind.EXTRACT} or job.thread_id == done.leaving:
            continue
        erased = (job.memory_id, job.input.get("generation")) in done.taint.generations
        if job.chunk_id not in done.taint.chunks and not erased:
            yield job


def took_effect(state: ReflectionState) -> bool:
    """Whether a generation can be the base: it was one before, and its text is kept."""
    return state in {ReflectionState.ACTIVE, ReflectionState.SUPERSEDED}
