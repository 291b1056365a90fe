"""Removal (DESIGN 3.3): one mechanism for deleting a message, rewinding, and deleting a thread or a resource.

One transaction: every thread of the memory is locked, then the memory; messages become tombstones, live jobs are
cancelled, whatever was made from what was removed is erased, and what is left of it is made again by jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from om_core.domain.cuts import CutState, advance_cut, buffered_cut
from om_core.domain.errors import InvalidInputError, NotFoundError
from om_core.domain.job import QUEUE_OF, JobKind
from om_core.domain.message import text_of
from om_core.domain.taint import content_words, spread
from om_core.domain.thresholds import Action
from om_core.ports import NewJob
from om_core.prompts.observer import OBSERVER_VERSION
from om_core.services.context import find_snapshot
from om_core.services.enqueue import decide_again, models_of, new_jobs, target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from om_core.domain.job import JobRef
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.taint import ChunkFact, Taint
    from om_core.domain.thread import MemoryState, ThreadState
    from om_core.ports import Transaction
    from om_core.services.deps import Services

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


def delete_message(services: Services, tenant: str, thread: str, message_id: str, resource: str | None) -> Removed:
    """Remove one message and everything derived from it; its id stays known. A second time there is nothing to do.

    Raises:
        NotFoundError: no such thread or message. AmbiguousThreadError: several resources have the thread.
    """

    def chosen(tx: Transaction, state: ThreadState) -> tuple[int, ...]:
        found = tx.removal.rows_of(state.id, message_id)
        if not found and not tx.removal.is_deleted(state.id, message_id):
            raise NotFoundError(f"thread {thread!r} has no message {message_id!r}")
        return found

    return _remove(services, tenant, thread, resource, chosen, keep_ids=True)


def rewind(services: Services, tenant: str, thread: str, to_seq: int, resource: str | None) -> Removed:
    """Remove everything above `to_seq`, to edit and regenerate: ids of what was removed are free again.

    Raises:
        InvalidInputError: `to_seq` is below 0 or above the newest message.
        NotFoundError, AmbiguousThreadError: as above.
    """

    def chosen(tx: Transaction, state: ThreadState) -> tuple[int, ...]:
        if not 0 <= to_seq <= state.head_seq:
            raise InvalidInputError(f"{to_seq} is not a seq from 0 to {state.head_seq}", path="to_seq")
        return tx.removal.live_above(state.id, to_seq)

    return _remove(services, tenant, thread, resource, chosen, keep_ids=False)


def _remove(
    services: Services,
    tenant: str,
    thread: str,
    resource: str | None,
    choose: Callable[[Transaction, ThreadState], Sequence[int]],
    *,
    keep_ids: bool,
) -> Removed:
    with services.store.transaction(tenant) as tx:
        found = find_snapshot(tx, thread, resource).thread
        locked = {state.id: state for state in tx.removal.lock_threads(found.memory_id)}
        if found.id not in locked:
            raise NotFoundError(f"no thread {thread!r}")
        memory = tx.memories.lock(found.memory_id)
        seqs = choose(tx, locked[found.id])
        if not seqs:
            return Removed()
        result = remove_in(tx, services, locked, memory, found.id, seqs, keep_ids=keep_ids)
    services.dispatcher.ring(result.jobs)
    return result


def remove_in(
    tx: Transaction,
    services: Services,
    locked: dict[int, ThreadState],
    memory: MemoryState,
    thread_id: int,
    seqs: Sequence[int],
    *,
    keep_ids: bool,
) -> Removed:
    """The same inside a transaction that has locked every thread of the memory, and the memory."""
    thread, lowest = locked[thread_id], min(seqs)
    since = tx.removal.first_stored_at(thread_id, seqs)
    words = content_words(*map(_words_of, tx.messages.at(thread_id, seqs)))
    tx.removal.empty_messages(thread_id, seqs, keep_ids=keep_ids)
    tx.removal.cancel_jobs(memory.id)
    taint = _taint(tx, memory.id, thread_id, frozenset(seqs), words)
    erased = tx.removal.erase_chunks(taint.chunks)
    tx.removal.erase_generations(memory.id, taint.generations)
    tx.removal.erase_jobs(memory.id)
    tx.removal.erase_events(memory.id, since)
    tx.removal.erase_kept(thread, lowest_seq=lowest, since=since, chunk_ids=taint.chunks, generations=taint.generations)
    policy = services.policies.of(memory)
    base_fell = _base(tx, memory, policy, taint)
    touched = {thread_id, *(owner for _, owner, _ in erased)}
    for state in locked.values():
        if state.id in touched:
            _recount(tx, state, policy, lowest if state.id == thread_id else None)
    jobs = _repairs(tx, services, memory, policy, locked, erased, base_fell=base_fell)
    return Removed(messages=len(seqs), chunks=len(erased), reflections=len(taint.generations), jobs=jobs)


def _words_of(row: StoredMessage) -> str:
    """Everything a note could have been made from: words, and the values of calls and results."""
    return f"{text_of(row.parts)} {row.message.author or ''} {row.parts!r}"


def _taint(tx: Transaction, memory_id: int, thread_id: int, seqs: frozenset[int], words: frozenset[str]) -> Taint:
    chunks = tx.removal.chunks(memory_id)
    covering = [
        chunk.id
        for chunk in chunks
        if chunk.thread_id == thread_id and any(chunk.from_seq <= seq <= chunk.to_seq for seq in seqs)
    ]

    def own_words(chunk: ChunkFact) -> frozenset[str]:
        rows = tx.messages.between(chunk.thread_id, chunk.from_seq - 1, chunk.to_seq, limit=ALL)
        return content_words(*(_words_of(row) for row in rows if not row.removed))

    return spread(chunks, tx.removal.generations(memory_id), covering=covering, words=words, own_words=own_words)


def _base(tx: Transaction, memory: MemoryState, policy: MemoryPolicy, taint: Taint) -> bool:
    """Fall back to the newest generation that is left, and recount the log; whether the base fell."""
    generation, through, tokens = tx.removal.newest_kept(memory.id)
    fell = memory.generation in taint.generations
    if fell or memory.buffered_generation in taint.generations:
        tx.removal.make_base(memory.id, generation)
    if not fell:
        through, tokens = memory.reflected_position, memory.base_tokens
    log_tokens = tokens + tx.chunks.log_tokens(memory.id, through)
    waits = memory.buffered_generation if not fell and memory.buffered_generation not in taint.generations else None
    repair = memory.repair_position
    if fell:
        room = max(0, policy.reflection.block_after_tokens - tokens)
        repair = tx.removal.bound(memory.id, through, room)
    tx.memories.update(
        memory.id,
        generation=generation if fell else memory.generation,
        reflected_position=through,
        base_tokens=tokens,
        log_tokens=log_tokens,
        buffered_generation=waits,
        stuck_log_tokens=None,
        discarded_version=None,
        repair_position=repair,
        log_version=memory.log_version + 1,  # every thread finds its prefix changed at its next context
        log_reason="removal",
    )
    return fell


def _recount(tx: Transaction, thread: ThreadState, policy: MemoryPolicy, lowest: int | None) -> None:
    """Counters, cut, question and pins of a thread after its rows or chunks changed; `lowest`: what it lost of them."""
    counted = tx.removal.recount(thread)
    changes: JsonObject = {"stale_tokens": counted.stale_tokens}
    if lowest is not None:
        rows = tx.messages.between(thread.id, thread.buffered_seq, None, limit=ALL)
        below = tuple(call for call in counted.live_calls if call.seq <= thread.buffered_seq)
        cut = advance_cut(
            CutState(cut_seq=thread.buffered_seq, open_calls=below),
            [row for row in rows if not row.removed],
            question_seq=counted.question_seq,
            now=tx.now(),
            max_age_s=policy.observation.open_call_max_age_s,
        )
        cut = buffered_cut(cut, buffered_seq=thread.buffered_seq, unbuffered_tokens=counted.unbuffered_tokens)
        live = [row for row in rows if not row.removed]
        reached_end = not live or cut.cut_seq >= live[-1].seq
        changes |= {
            "pending_tokens": counted.pending_tokens,
            "unbuffered_tokens": counted.unbuffered_tokens,
            "held_tokens": cut.held_tokens,
            "cut_seq": thread.head_seq if reached_end else cut.cut_seq,
            "open_calls": cut.open_calls,
            "question_seq": counted.question_seq,
            "oldest_pending_at": counted.oldest_pending_at,
            "pins": counted.live_pins,
            "shown_from_seq": 0,
            "turn_open": thread.turn_open and counted.last_live_turn == thread.turn,
            "early_activation": None,
            "wait_latch_seq": None,
        }
        if thread.title_seq is not None and thread.title_seq >= lowest:
            changes |= {"title": None, "title_seq": None}
    if lowest is None or thread.hints.seen_seq >= lowest:
        changes["hints"] = type(thread.hints)()
    tx.threads.update(thread.id, **changes)


def _repairs(
    tx: Transaction,
    services: Services,
    memory: MemoryState,
    policy: MemoryPolicy,
    locked: dict[int, ThreadState],
    erased: Iterable[tuple[int, int, bool]],
    *,
    base_fell: bool,
) -> tuple[JobRef, ...]:
    """Jobs that make the notes of stale chunks again, condense a log that lost its base, and whatever else is due."""
    rebuilds = [
        NewJob(
            kind=JobKind.REBUILD,
            queue=QUEUE_OF[JobKind.REBUILD],
            target=target(JobKind.REBUILD, thread_id=owner, memory_id=memory.id, chunk_id=chunk_id),
            thread=locked[owner].external_id,
            memory_id=memory.id,
            thread_id=owner,
            chunk_id=chunk_id,
            reason="repair",
            policy=services.policies.as_json(policy),
            prompt_version=OBSERVER_VERSION,
            models=models_of(policy, JobKind.REBUILD),
        )
        for chunk_id, owner, stale in erased
        if stale
    ]
    jobs = tx.jobs.insert(rebuilds)
    for thread_id in sorted(locked):
        snapshot = tx.memories.snapshot(thread_id)
        if base_fell and snapshot.memory.log_tokens >= policy.reflection.observation_tokens:
            jobs += tx.jobs.insert(new_jobs(services, snapshot, policy, [Action(JobKind.REFLECT, "repair")]))
            snapshot = tx.memories.snapshot(thread_id)
        jobs += decide_again(tx, services, snapshot, tx.now())
    return jobs
