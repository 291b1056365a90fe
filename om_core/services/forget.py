"""Deleting a thread, or everything of a resource (DESIGN 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.errors import NotFoundError
from om_core.ports.removal import Family
from om_core.services.context import find_snapshot
from om_core.services.erase import Removed, erase
from om_core.services.remove import by_thread, in_family, shared_by_document

if TYPE_CHECKING:
    from om_core.domain.job import JobRef
    from om_core.domain.message import JsonObject
    from om_core.ports import Transaction
    from om_core.ports.removal import Copy
    from om_core.services.deps import Services

    Counts = dict[str, int]


def delete_thread(services: Services, tenant: str, thread: str, resource: str | None) -> JsonObject:
    """Delete a thread with everything derived from it; the counts of what is gone. What was spent stays booked, and a
    clone is a thread of its own.

    Raises:
        NotFoundError, AmbiguousThreadError: no such thread, or several and no resource given.
    """

    def wanted(tx: Transaction) -> frozenset[int]:
        state = find_snapshot(tx, thread, resource).thread
        seqs = tx.removal.live_above(state.id, 0)
        told = shared_by_document(tx, state.resource_id, {state.id: seqs}) if seqs else frozenset[int]()
        return told | {state.memory_id}

    def act(tx: Transaction, family: Family) -> tuple[Counts, tuple[JobRef, ...]]:
        state = find_snapshot(tx, thread, resource).thread
        seqs = tx.removal.live_above(state.id, 0)
        done = Removed()
        if seqs and len(family.threads) > 1:
            done = erase(tx, services, family, {state.id: seqs}, keep_ids=False, leaving=state.id)
        elif seqs:  # all that was made from it goes with its rows, but for what is kept of its resource
            since = tx.removal.first_stored_at({state.id: seqs})
            tx.removal.cancel_jobs(family.memories)
            tx.removal.erase_events((), {state.resource_id}, since)
            tx.removal.erase_documents([state], since)
        tx.removal.release_copies(state.id)
        counts = tx.deletions.thread(state)
        if len(family.threads_of(state.memory_id)) == 1:
            _add(counts, tx.deletions.memory(state.memory_id))
        else:
            counts["reflections"] = done.reflections
        return counts, done.jobs

    counts, jobs = in_family(services, tenant, wanted, act)
    services.dispatcher.ring(jobs)
    return counts


def delete_resource(services: Services, tenant: str, resource: str) -> JsonObject:
    """Delete everything of a resource: threads, memories, documents, usage, keys and webhooks narrowed to it, and the
    copies that clones of others hold of its messages; the counts.

    Raises:
        NotFoundError: nothing of this resource is stored, or it is not the caller's.
    """

    def copied(tx: Transaction) -> tuple[Copy, ...]:
        """Rows of others that were copied from this resource, by name or by way of its threads."""
        found = {(copy.thread_id, copy.seq): copy for copy in tx.removal.copies_from(resource)}
        for thread_id in tx.deletions.threads_of(resource):
            for copy in tx.removal.copies(thread_id, tx.removal.live_above(thread_id, 0)):
                found.setdefault((copy.thread_id, copy.seq), copy)
        return tuple(copy for copy in found.values() if copy.resource_id != resource)

    def wanted(tx: Transaction) -> frozenset[int]:
        elsewhere = frozenset(copy.memory_id for copy in copied(tx))
        return tx.deletions.memories_of(resource) | elsewhere

    def act(tx: Transaction, family: Family) -> tuple[Counts, tuple[JobRef, ...]]:
        copies, own = copied(tx), tx.deletions.memories_of(resource)
        jobs: tuple[JobRef, ...] = ()
        if copies:
            others = Family(
                threads={key: state for key, state in family.threads.items() if state.memory_id not in own},
                memories={key: memory for key, memory in family.memories.items() if key not in own},
            )
            jobs = erase(tx, services, others, by_thread(copies), keep_ids=True).jobs
        counts: Counts = {"threads": 0}
        for memory_id in sorted(own):
            for state in family.threads_of(memory_id):
                _add(counts, {"threads": 1, **tx.deletions.thread(state)})
            _add(counts, tx.deletions.memory(memory_id))
        _add(counts, tx.deletions.resource(resource))
        return counts, jobs

    counts, jobs = in_family(services, tenant, wanted, act)
    if not any(counts.values()):
        raise NotFoundError(f"nothing of resource {resource!r} is stored")
    services.dispatcher.ring(jobs)
    return counts


def _add(totals: Counts, more: Counts) -> None:
    for name, count in more.items():
        totals[name] = totals.get(name, 0) + count
