"""Removal (DESIGN 3.3): one mechanism for deleting a message, rewinding, and deleting a thread or a resource.

One transaction: every thread of the memories that are reached is locked, then the memories; what is done under these
locks is in `erase` and `recount`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from om_core.domain.errors import ConflictError, InvalidInputError, NotFoundError
from om_core.services.context import find_snapshot
from om_core.services.erase import Removed, erase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction
    from om_core.ports.removal import Copy, Family
    from om_core.services.deps import Services

    Chosen = Callable[[Transaction, ThreadState], tuple[int, ...]]

T = TypeVar("T")
TRIES: Final = 10
"""Times that memories are locked anew because something was added to them meanwhile."""


def delete_message(services: Services, tenant: str, thread: str, message_id: str, resource: str | None) -> Removed:
    """Remove one message, everything derived from it, and its copies in clones, whoever owns them; its id stays known.
    A second time there is nothing to do.

    Raises:
        NotFoundError: no such thread or message. AmbiguousThreadError: several resources have the thread.
    """

    def chosen(tx: Transaction, state: ThreadState) -> tuple[int, ...]:
        found = tx.removal.rows_of(state.id, message_id)
        if not found and not tx.removal.is_deleted(state.id, message_id):
            raise NotFoundError(f"thread {thread!r} has no message {message_id!r}")
        return found

    return _remove(services, tenant, thread, resource, chosen, deleted=True)


def rewind(services: Services, tenant: str, thread: str, to_seq: int, resource: str | None) -> Removed:
    """Remove everything above `to_seq`, to edit and regenerate: ids of what was removed are free again. Clones keep
    their copies.

    Raises:
        InvalidInputError: `to_seq` is below 0 or above the newest message.
        NotFoundError, AmbiguousThreadError: as above.
    """

    def chosen(tx: Transaction, state: ThreadState) -> tuple[int, ...]:
        if not 0 <= to_seq <= state.head_seq:
            raise InvalidInputError(f"{to_seq} is not a seq from 0 to {state.head_seq}", path="to_seq")
        return tx.removal.live_above(state.id, to_seq)

    return _remove(services, tenant, thread, resource, chosen, deleted=False)


def _remove(
    services: Services, tenant: str, thread: str, resource: str | None, choose: Chosen, *, deleted: bool
) -> Removed:
    """Remove rows of one thread. `deleted`: for good, so that ids stay known and clones lose their copies."""

    def look(tx: Transaction) -> tuple[int, dict[int, tuple[int, ...]], frozenset[int]]:
        state = find_snapshot(tx, thread, resource).thread
        seqs = choose(tx, state)
        if not seqs:
            return state.memory_id, {}, frozenset()
        copies = tx.removal.copies(state.id, seqs) if deleted else ()
        return state.memory_id, {state.id: seqs} | by_thread(copies), reached(tx, state, seqs, copies)

    def wanted(tx: Transaction) -> frozenset[int]:
        own, _, others = look(tx)
        return others | {own}

    def act(tx: Transaction, family: Family) -> Removed:
        _, removed, _ = look(tx)
        return erase(tx, services, family, removed, keep_ids=deleted) if removed else Removed()

    result = in_family(services, tenant, wanted, act)
    services.dispatcher.ring(result.jobs)
    return result


def in_family(
    services: Services,
    tenant: str,
    wanted: Callable[[Transaction], frozenset[int]],
    act: Callable[[Transaction, Family], T],
) -> T:
    """Do something under the locks of memories and all of their threads.

    Args:
        services: the adapters.
        tenant: whose.
        wanted: ids of the memories; asked again under the locks, and more are locked if there are more by then.
        act: what to do.

    Raises:
        ConflictError: others kept adding.
    """
    known: frozenset[int] = frozenset()
    for _ in range(TRIES):
        with services.store.transaction(tenant) as tx:
            known |= wanted(tx)
            family = tx.removal.lock(known)
            if family is not None and wanted(tx) <= known:
                return act(tx, family)
    raise ConflictError("threads keep being added to what is removed: try again")


def by_thread(copies: Iterable[Copy]) -> dict[int, tuple[int, ...]]:
    """Seqs by thread."""
    found: dict[int, tuple[int, ...]] = {}
    for copy in copies:
        found[copy.thread_id] = (*found.get(copy.thread_id, ()), copy.seq)
    return found


def reached(tx: Transaction, state: ThreadState, seqs: tuple[int, ...], copies: Iterable[Copy]) -> frozenset[int]:
    """Memories beside the thread's own: those of copies, and those that a resource's document may have told of it."""
    removed: dict[str, dict[int, tuple[int, ...]]] = {state.resource_id: {state.id: seqs}}
    memories: set[int] = set()
    for copy in copies:
        memories.add(copy.memory_id)
        part = removed.setdefault(copy.resource_id, {})
        part[copy.thread_id] = (*part.get(copy.thread_id, ()), copy.seq)
    for resource, part in removed.items():
        memories |= shared_by_document(tx, resource, part)
    return frozenset(memories)


def shared_by_document(tx: Transaction, resource: str, removed: Mapping[int, tuple[int, ...]]) -> frozenset[int]:
    """Memories of a resource that were told of these rows by its working memory."""
    return tx.removal.sharing(resource, tx.removal.first_stored_at(removed))
