"""A fork of a thread with its memory (API 3): one transaction, no model call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
    from om_core.domain.thread import MemoryState, ThreadState
    from om_core.ports import Transaction
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

    Raises:
        NotFoundError, AmbiguousThreadError: no such thread, or several and no resource given.
        InvalidInputError: an id is wrong, or `to_seq` is above the newest message.
        ConflictError: the new thread exists already, or the original shares its memory with other threads.
    """
    check_id(request.to_thread, "thread")
    if request.to_resource is not None:
        check_id(request.to_resource, "resource_id")
    with services.store.transaction(tenant) as tx:
        found = find_snapshot(tx, request.thread, request.resource)
        source = tx.threads.lock_by_id(found.thread.id)
        if source is None:
            raise NotFoundError(f"no thread {request.thread!r}")
        memory = tx.memories.lock(source.memory_id)
        if memory.scope != "thread":
            raise ConflictError(
                "this thread shares its memory with others of its resource: only a thread that has "
                "its own (scope 'thread') can be cloned"
            )
        to_seq = source.head_seq if request.to_seq is None else request.to_seq
        if not 0 <= to_seq <= source.head_seq:
            raise InvalidInputError(f"{to_seq} is not a seq from 0 to {source.head_seq}", path="to_seq")
        target = _created(tx, source, memory, request, to_seq)
        _fill(tx, services, source, memory, target, to_seq)
        snapshot = tx.memories.snapshot(target.id)
        jobs = decide_again(tx, services, snapshot, tx.now())
    services.dispatcher.ring(jobs)
    return snapshot.thread


def _created(
    tx: Transaction, source: ThreadState, memory: MemoryState, request: CloneRequest, to_seq: int
) -> ThreadState:
    resource = request.to_resource or source.resource_id
    known = source.title_seq is None or source.title_seq <= to_seq
    created = tx.threads.create(
        NewThread(
            external_id=request.to_thread,
            resource_id=resource,
            scope="thread",
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


def _fill(
    tx: Transaction, services: Services, source: ThreadState, memory: MemoryState, target: ThreadState, to_seq: int
) -> None:
    tx.copies.messages(source.id, target.id, resource=source.resource_id, to_seq=to_seq)
    buffered, observed, position = tx.copies.chunks(source.id, target.id, target.memory_id, to_seq=to_seq)
    tx.copies.generations(memory.id, target.memory_id, newest=memory.generation, position=position)
    tx.copies.kept(source, target, to_seq=to_seq)
    through = _log(tx, memory, target.memory_id, position)
    rows = [row for row in tx.messages.between(target.id, 0, None, limit=ALL) if not row.removed]
    now = tx.now()
    calls = open_calls(rows, stored_at=now)[-MOST_OPEN_CALLS:]
    pins = {pin for pin in source.pins if pin <= observed} | {call.seq for call in calls if call.seq <= observed}
    whole = to_seq == source.head_seq
    changes = {
        "head_seq": to_seq,
        "buffered_seq": buffered,
        "observed_seq": observed,
        "open_calls": calls,
        "pins": tuple(sorted(pins)),
        "turn": rows[-1].turn if rows else 0,
        "turn_open": whole and source.turn_open,
        "title_seq": target.title_seq,
        "last_model": source.last_model,
        "last_activity_at": now if rows else None,
        "shown_position": max(position, through),
    }
    tx.threads.update(target.id, **changes)
    policy = services.policies.of(tx.memories.get(target.memory_id))
    restate(tx, policy, replace(target, **changes), lost_rows=True, lost_notes=True, lost_title=False)
    made = tx.memories.snapshot(target.id).thread
    tx.threads.update(
        target.id,
        hints=source.hints if source.hints.seen_seq <= to_seq else made.hints,
        prefix_reason=None,
        idle_due_at=next_wake(made, policy, ttl_seconds(policy.observation.activate_after_idle_s, made.last_model)),
    )


def _log(tx: Transaction, memory: MemoryState, memory_id: int, position: int) -> int:
    """Make the newest generation taken over the base, and count the log; the position that it stands for."""
    generation = tx.removal.newest_kept(memory_id)
    base = tx.reflections.get(memory_id, generation) if generation else None
    if base is not None:
        tx.removal.make_base(memory_id, generation)
    through, tokens = (base.through_position, base.tokens) if base else (0, 0)
    same = generation == memory.generation and (memory.repair_position or 0) <= position
    tx.memories.update(
        memory_id,
        generation=generation,
        reflected_position=through,
        base_tokens=tokens,
        log_tokens=tokens + tx.chunks.log_tokens(memory_id, through),
        next_position=position + 1,
        repair_position=memory.repair_position if same else None,
    )
    return through
