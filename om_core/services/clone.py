"""A fork of a thread with its memory (API 3): one transaction, no model call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from om_core.domain.cuts import MOST_OPEN_CALLS, open_calls
from om_core.domain.errors import ConflictError, InvalidInputError, NotFoundError
from om_core.domain.thresholds import next_wake
from om_core.formats.fields import check_id
from om_core.ports import NewThread
from om_core.services.context import find_snapshot
from om_core.services.deps import ttl_seconds
from om_core.services.enqueue import decide_again
from om_core.services.recount import ALL, restate

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.message import OpenCall
    from om_core.domain.thread import MemoryState, ThreadState
    from om_core.ports import Transaction
    from om_core.ports.copying import Copied
    from om_core.services.deps import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    """Which thread becomes which. `to_seq`: the last message taken over; None: all of them."""

    thread: str
    resource: str | None
    to_thread: str
    to_resource: str | None = None
    to_seq: int | None = None


def clone(services: Services, tenant: str, request: CloneRequest) -> ThreadState:
    """Make a thread that goes on from another one as it is, or as it was at `to_seq`; its state.

    A chunk that reaches beyond `to_seq` is not taken over, its messages are observed again; so is what stands after
    notes that a removal has emptied. Work that is under way stays with the original.

    Where threads of a resource share a memory, a clone for the same resource shares it too: notes that the log has are
    not written a second time. For another resource the thread's own notes are added to the log of that one.

    Raises:
        NotFoundError, AmbiguousThreadError: no such thread, or several and no resource given.
        InvalidInputError: an id is wrong, or `to_seq` is above the newest message.
        ConflictError: the new thread exists already.
    """
    check_id(request.to_thread, "thread")
    if request.to_resource is not None:
        check_id(request.to_resource, "resource_id")
    with services.store.transaction(tenant) as tx:
        found = find_snapshot(tx, request.thread, request.resource)
        source = tx.threads.lock_by_id(found.thread.id)
        if source is None:
            raise NotFoundError(f"no thread {request.thread!r}")
        to_seq = source.head_seq if request.to_seq is None else request.to_seq
        if not 0 <= to_seq <= source.head_seq:
            raise InvalidInputError(f"{to_seq} is not a seq from 0 to {source.head_seq}", path="to_seq")
        target = _created(tx, source, found.memory, request, to_seq)
        locked = {memory_id: tx.memories.lock(memory_id) for memory_id in sorted({source.memory_id, target.memory_id})}
        copy = _Copy(source, target, locked[source.memory_id], locked[target.memory_id], to_seq)
        _fill(tx, services, copy)
        snapshot = tx.memories.snapshot(target.id)
        jobs = decide_again(tx, services, snapshot, tx.now())
    services.dispatcher.ring(jobs)
    return snapshot.thread


@dataclass(frozen=True, slots=True)
class _Copy:
    """Two locked threads with their memories, and the last message taken over."""

    source: ThreadState
    target: ThreadState
    memory: MemoryState
    into: MemoryState
    to_seq: int

    @property
    def whole(self) -> bool:
        return self.to_seq == self.source.head_seq


def _created(
    tx: Transaction, source: ThreadState, memory: MemoryState, request: CloneRequest, to_seq: int
) -> ThreadState:
    resource = request.to_resource or source.resource_id
    known = source.title_seq is None or source.title_seq <= to_seq
    created = tx.threads.create(
        NewThread(
            external_id=request.to_thread,
            resource_id=resource,
            scope=memory.scope,
            title=source.title if known else None,
            metadata=source.metadata,
            timezone=source.timezone,
            config=memory.config,
        )
    )
    target = tx.threads.get(resource, request.to_thread)
    if not created or target is None:
        raise ConflictError(f"thread {request.to_thread!r} of resource {resource!r} exists already")
    return replace(target, title_seq=source.title_seq if known else None)


def _fill(tx: Transaction, services: Services, copy: _Copy) -> None:
    source, target, to_seq = copy.source, copy.target, copy.to_seq
    tx.copies.messages(source.id, target.id, resource=source.resource_id, to_seq=to_seq)
    copied = _notes(tx, copy)
    tx.copies.document(source.id, target.id, to_seq=to_seq)
    now = tx.now()
    calls, turn = _calls_and_turn(tx, copy, now)
    observed = copied.observed_seq
    pins = {pin for pin in source.pins if pin <= observed} | {call.seq for call in calls if call.seq <= observed}
    changes: dict[str, Any] = {
        "head_seq": to_seq,
        "buffered_seq": copied.buffered_seq,
        "observed_seq": observed,
        "open_calls": calls,
        "pins": tuple(sorted(pins)),
        "turn": turn,
        "turn_open": copy.whole and source.turn_open,
        "title_seq": target.title_seq,
        "last_model": source.last_model,
        "last_activity_at": now if to_seq else None,
        "shown_position": tx.memories.get(target.memory_id).next_position - 1,
    }
    tx.threads.update(target.id, **changes)
    policy = services.policies.of(copy.into)
    restate(tx, policy, replace(target, **changes), lost_rows=True, lost_notes=True, lost_title=False)
    made = tx.memories.snapshot(target.id).thread
    tx.threads.update(
        target.id,
        hints=source.hints if source.hints.seen_seq <= to_seq else made.hints,
        prefix_reason=None,
        idle_due_at=next_wake(made, policy, ttl_seconds(policy.observation.activate_after_idle_s, made.last_model)),
    )


def _calls_and_turn(tx: Transaction, copy: _Copy, now: datetime) -> tuple[tuple[OpenCall, ...], int]:
    """Calls without a result among what was taken over, and the number of its last turn."""
    if copy.whole:
        return copy.source.open_calls, copy.source.turn
    rows = [row for row in tx.messages.between(copy.target.id, 0, None, limit=ALL) if not row.removed]
    return open_calls(rows, stored_at=now)[-MOST_OPEN_CALLS:], rows[-1].turn if rows else 0


def _notes(tx: Transaction, copy: _Copy) -> Copied:
    """Take over chunks, and the generations of a memory that is the thread's own."""
    source, target, into, to_seq = copy.source.id, copy.target.id, copy.into, copy.to_seq
    if copy.memory.scope == "thread":
        copied = tx.copies.chunks(source, target, into.id, to_seq=to_seq)
        position = copied.position
        tx.copies.generations(copy.memory.id, into.id, newest=copy.memory.generation, position=position)
        tx.copies.values(copy.memory.id, into.id, target, generations=True)
        _make_log(tx, copy.memory, into.id, position)
        return copied
    after = into.next_position - 1
    if into.id == copy.memory.id:
        copied = tx.copies.shared_chunks(source, target, into.id, to_seq=to_seq, after=after)
    else:
        copied = tx.copies.moved_chunks(source, target, into.id, to_seq=to_seq, after=after)
        tx.copies.values(copy.memory.id, into.id, target, generations=False)
    log_tokens = into.log_tokens + copied.tokens
    tx.memories.update(into.id, next_position=max(after, copied.position) + 1, log_tokens=log_tokens)
    return copied


def _make_log(tx: Transaction, memory: MemoryState, memory_id: int, position: int) -> None:
    """Make the newest generation taken over the base of the new memory, take over what waits upon it, and count."""
    generation = tx.removal.newest_kept(memory_id)
    base = tx.reflections.get(memory_id, generation) if generation else None
    if base is not None:
        tx.removal.make_base(memory_id, generation)
    through, tokens = (base.through_position, base.tokens) if base else (0, 0)
    same = generation == memory.generation and (memory.repair_position or 0) <= position
    waiting = memory.buffered_generation if same else None
    if waiting is not None and not tx.copies.waiting(
        memory.id, memory_id, generation=waiting, base=generation, position=position
    ):
        waiting = None
    tx.memories.update(
        memory_id,
        generation=generation,
        buffered_generation=waiting,
        reflected_position=through,
        base_tokens=tokens,
        log_tokens=tokens + tx.chunks.log_tokens(memory_id, through),
        next_position=max(position, through) + 1,
        repair_position=memory.repair_position if same else None,
    )
