"""Choosing an older generation as the base of the log again (DESIGN 3.3). Nothing is erased."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.errors import ConflictError, NotFoundError
from om_core.domain.job import JobKind
from om_core.services.context import find_snapshot
from om_core.services.enqueue import decide_again
from om_core.services.erase import took_effect
from om_core.services.remove import in_family

if TYPE_CHECKING:
    from om_core.domain.chunk import Reflection
    from om_core.domain.job import JobRef
    from om_core.domain.message import JsonObject
    from om_core.ports import Transaction
    from om_core.ports.removal import Family
    from om_core.services.deps import Services


def restore(services: Services, tenant: str, thread: str, generation: int, resource: str | None) -> JsonObject:
    """Make a kept generation the base again; chunks after it are shown as they are.

    Raises:
        NotFoundError: no such thread or generation. AmbiguousThreadError: several resources have the thread.
        ConflictError: the generation never took effect, or a removal has erased it.
    """

    def wanted(tx: Transaction) -> frozenset[int]:
        return frozenset({find_snapshot(tx, thread, resource).memory.id})

    def act(tx: Transaction, family: Family) -> tuple[JsonObject, tuple[JobRef, ...]]:
        memory = family.memories[find_snapshot(tx, thread, resource).memory.id]
        chosen = tx.reflections.get(memory.id, generation)
        if chosen is None:
            raise NotFoundError(f"thread {thread!r} has no generation {generation}")
        if not took_effect(chosen.state):
            raise ConflictError(f"generation {generation} is {chosen.state}: only one that took effect can be restored")
        jobs = _rebase(tx, services, family, memory.id, chosen) if generation != memory.generation else ()
        after = tx.memories.get(memory.id)
        return {"generation": after.generation, "log_tokens": after.log_tokens}, jobs

    result, jobs = in_family(services, tenant, wanted, act)
    services.dispatcher.ring(jobs)
    return result


def _rebase(
    tx: Transaction, services: Services, family: Family, memory_id: int, chosen: Reflection
) -> tuple[JobRef, ...]:
    memory = family.memories[memory_id]
    tx.removal.cancel_jobs([memory_id], JobKind.REFLECT)  # it condenses upon another base
    tx.removal.make_base(memory_id, chosen.generation)
    tx.memories.update(
        memory_id,
        generation=chosen.generation,
        reflected_position=chosen.through_position,
        base_tokens=chosen.tokens,
        log_tokens=chosen.tokens + tx.chunks.log_tokens(memory_id, chosen.through_position),
        buffered_generation=None,
        stuck_log_tokens=None,
        discarded_version=None,
        repair_position=None,
        log_version=memory.log_version + 1,
        log_reason="restore",
    )
    jobs: tuple[JobRef, ...] = ()
    for state in family.threads_of(memory_id):
        jobs += decide_again(tx, services, tx.memories.snapshot(state.id), tx.now())
    return jobs
