"""Deleting a thread or everything of a resource, and choosing an older generation as base again (DESIGN 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.chunk import ReflectionState
from om_core.domain.errors import ConflictError, NotFoundError
from om_core.domain.job import JobKind
from om_core.services.context import find_snapshot
from om_core.services.enqueue import decide_again
from om_core.services.remove import remove_in

if TYPE_CHECKING:
    from om_core.domain.job import JobRef
    from om_core.domain.message import JsonObject
    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction
    from om_core.services.deps import Services


def delete_thread(services: Services, tenant: str, thread: str, resource: str | None) -> JsonObject:
    """Delete a thread with everything derived from it; the counts of what is gone. What was spent stays booked.

    Raises:
        NotFoundError, AmbiguousThreadError: no such thread, or several and no resource given.
    """
    with services.store.transaction(tenant) as tx:
        found = find_snapshot(tx, thread, resource).thread
        counts, jobs = _delete(tx, services, found.id, found.memory_id)
    services.dispatcher.ring(jobs)
    return counts


def delete_resource(services: Services, tenant: str, resource: str) -> JsonObject:
    """Delete everything of a resource: threads, memories, documents, usage, keys and webhooks narrowed to it.

    One transaction a thread, so that one person's long history holds no lock for long; it is done when nothing is left.

    Raises:
        NotFoundError: nothing of this resource is stored.
    """
    totals: dict[str, int] = {"threads": 0}
    while True:
        with services.store.transaction(tenant) as tx:
            left = tx.removal.threads_of_resource(resource)
            if left:
                counts, _ = _delete(tx, services, *left[0])
                counts = {**counts, "threads": 1}
            else:
                counts = tx.removal.delete_resource(resource)
        for name, count in counts.items():
            totals[name] = totals.get(name, 0) + count
        if not left:
            break
    if not any(totals.values()):
        raise NotFoundError(f"nothing of resource {resource!r} is stored")
    return totals


def _delete(
    tx: Transaction, services: Services, thread_id: int, memory_id: int
) -> tuple[dict[str, int], tuple[JobRef, ...]]:
    """Take out what the shared log holds of a thread, then its rows; alone in its memory, it takes that along."""
    locked = {state.id: state for state in tx.removal.lock_threads(memory_id)}
    if thread_id not in locked:
        raise NotFoundError("the thread was deleted meanwhile")
    memory = tx.memories.lock(memory_id)
    alone = len(locked) == 1
    jobs: tuple[JobRef, ...] = ()
    if not alone:
        seqs = tx.removal.live_above(thread_id, 0)
        if seqs:
            jobs = remove_in(tx, services, locked, memory, thread_id, seqs, keep_ids=False).jobs
    else:
        tx.removal.cancel_jobs(memory_id)
    counts = tx.removal.delete_thread(locked[thread_id], with_memory=alone)
    if not alone:
        jobs += _decide_for(tx, services, [state for state in locked.values() if state.id != thread_id])
    return counts, jobs


def _decide_for(tx: Transaction, services: Services, threads: list[ThreadState]) -> tuple[JobRef, ...]:
    jobs: tuple[JobRef, ...] = ()
    for state in sorted(threads, key=lambda state: state.id):
        jobs += decide_again(tx, services, tx.memories.snapshot(state.id), tx.now())
    return jobs


def restore(services: Services, tenant: str, thread: str, generation: int, resource: str | None) -> JsonObject:
    """Make a kept generation the base again; chunks after it are shown as they are. Nothing is erased.

    Raises:
        NotFoundError: no such thread or generation. AmbiguousThreadError: as above.
        ConflictError: the generation never took effect, or a removal has erased it.
    """
    with services.store.transaction(tenant) as tx:
        found = find_snapshot(tx, thread, resource).thread
        locked = tx.removal.lock_threads(found.memory_id)
        memory = tx.memories.lock(found.memory_id)
        chosen = tx.reflections.get(memory.id, generation)
        if chosen is None:
            raise NotFoundError(f"thread {thread!r} has no generation {generation}")
        if chosen.state not in {ReflectionState.ACTIVE, ReflectionState.SUPERSEDED}:
            raise ConflictError(f"generation {generation} is {chosen.state}: only one that took effect can be restored")
        jobs: tuple[JobRef, ...] = ()
        if chosen.state is not ReflectionState.ACTIVE:
            tx.removal.cancel_kind(memory.id, JobKind.REFLECT)  # it condenses upon another base
            tx.removal.make_base(memory.id, generation)
            tx.memories.update(
                memory.id,
                generation=generation,
                reflected_position=chosen.through_position,
                base_tokens=chosen.tokens,
                log_tokens=chosen.tokens + tx.chunks.log_tokens(memory.id, chosen.through_position),
                buffered_generation=None,
                stuck_log_tokens=None,
                discarded_version=None,
                repair_position=None,
                log_version=memory.log_version + 1,
                log_reason="restore",
            )
            jobs = _decide_for(tx, services, list(locked))
        after = tx.memories.get(memory.id)
    services.dispatcher.ring(jobs)
    return {"generation": after.generation, "log_tokens": after.log_tokens}
