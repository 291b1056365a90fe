"""Memory rows: the rows that log writers lock."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from om_core.domain.errors import AmbiguousThreadError, NotFoundError
from om_core.store.prepared import Prepared, given
from om_core.store.rows import memory_from, snapshot_from
from om_core.store.tables import memories

if TYPE_CHECKING:
    from om_core.domain.thread import MemoryState, Snapshot
    from om_core.store.session import Session


_THIS = sa.and_(memories.c.tenant_id == sa.bindparam("tenant"), memories.c.id == sa.bindparam("memory"))
_ONE = sa.select(memories).where(_THIS)
GET = Prepared(_ONE)
LOCK = Prepared(_ONE.add_columns(sa.func.clock_timestamp().label("now")).with_for_update(key_share=True))
SNAPSHOT = "SELECT om_snapshot_v1(%s, %s, %s), clock_timestamp()"


@cache
def _update(columns: tuple[str, ...]) -> Prepared:
    """Set these columns and raise the version: callers change one of a few sets."""
    version = memories.c.version + sa.literal_column("1")
    return Prepared(sa.update(memories).where(_THIS).values(version=version, **given(*columns)))


class MemoryRows:
    """Implements `ports.storage.Memories`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _one(self, memory_id: int, *, lock: bool) -> MemoryState:
        found = self._session.fetch(LOCK if lock else GET, tenant=self._session.tenant_id, memory=memory_id)
        if not found:
            msg = f"no memory {memory_id}"
            raise NotFoundError(msg)
        if lock:
            self._session.note_clock(found[0]["now"])
        return memory_from(found[0])

    def lock(self, memory_id: int) -> MemoryState:
        return self._one(memory_id, lock=True)

    def get(self, memory_id: int) -> MemoryState:
        return self._one(memory_id, lock=False)

    def update(self, memory_id: int, **changes: Any) -> None:
        key = {"tenant": self._session.tenant_id, "memory": memory_id}
        self._session.later(_update(tuple(sorted(changes))), key | changes)

    def snapshot(self, thread_id: int) -> Snapshot:
        found = self._snapshot(thread_id, None, None)
        if found is None:
            msg = f"no thread {thread_id}"
            raise NotFoundError(msg)
        return found

    def find(self, resource_id: str | None, external_id: str) -> Snapshot | None:
        reach = self._session.reach
        if not reach.covers(resource_id, external_id):
            return None
        return self._snapshot(None, resource_id or reach.resource, external_id)

    def _snapshot(self, thread_id: int | None, resource_id: str | None, external_id: str | None) -> Snapshot | None:
        [(found, now)] = self._session.hot(SNAPSHOT, (thread_id, resource_id, external_id))
        self._session.note_clock(now)
        if found is None:
            return None
        if found["matches"] > 1:
            msg = f"thread {external_id!r} exists for several resources: name one (resource_id)"
            raise AmbiguousThreadError(msg)
        return snapshot_from(found)
