"""Deleting rows altogether: of a thread, a memory, a resource (DESIGN 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from om_core.domain.errors import NotFoundError
from om_core.store.removal_kept import RemovalSql

if TYPE_CHECKING:
    from om_core.domain.thread import ThreadState

MEMORIES_OF: Final = """
SELECT memory_id AS id FROM threads WHERE tenant_id = :tenant AND resource_id = :resource
 UNION
SELECT id FROM memories WHERE tenant_id = :tenant AND scope = 'resource' AND scope_key = :resource
"""


class DeletionRows(RemovalSql):
    """Implements `ports.removal.Deletions`."""

    def _delete(self, table: str, where: str, **params: object) -> int:
        return self._run(f"DELETE FROM {table} WHERE tenant_id = :tenant AND {where}", **params)

    def thread(self, thread: ThreadState) -> dict[str, int]:
        counts = {
            table: self._delete(table, "thread_id = :thread", thread=thread.id)
            for table in ("jobs", "events", "chunks", "messages")
        }
        self._delete("extractions", "thread_id = :thread", thread=thread.id)
        self._delete("threads", "id = :thread", thread=thread.id)
        self._delete("working_memory", "scope = 'thread' AND scope_key = :key", key=str(thread.id))
        return counts

    def memory(self, memory_id: int) -> dict[str, int]:
        counts = {"jobs": self._delete("jobs", "memory_id = :memory", memory=memory_id)}
        self._delete("extractions", "memory_id = :memory", memory=memory_id)
        counts["reflections"] = self._delete("reflections", "memory_id = :memory", memory=memory_id)
        self._delete("memories", "id = :memory", memory=memory_id)
        return counts

    def _within(self, resource_id: str) -> None:
        if not self._session.reach.covers_resource(resource_id):
            msg = f"nothing of resource {resource_id!r} is stored"
            raise NotFoundError(msg)

    def threads_of(self, resource_id: str) -> tuple[int, ...]:
        self._within(resource_id)
        sql = "SELECT id FROM threads WHERE tenant_id = :tenant AND resource_id = :resource ORDER BY id"
        return tuple(row["id"] for row in self._rows(sql, resource=resource_id))

    def memories_of(self, resource_id: str) -> frozenset[int]:
        self._within(resource_id)
        return frozenset(row["id"] for row in self._rows(MEMORIES_OF, resource=resource_id))

    def resource(self, resource_id: str) -> dict[str, int]:
        for table in ("working_memory", "spending"):
            self._delete(table, "scope = 'resource' AND scope_key = :resource", resource=resource_id)
        return {
            "usage": self._delete("usage", "resource_id = :resource", resource=resource_id),
            "keys": self._delete("api_keys", "resource_id = :resource", resource=resource_id),
            "webhooks": self._delete("webhooks", "resource_id = :resource", resource=resource_id),
        }
