"""The part of `Memory` that shows how the log was condensed (API 3, reflections)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.ports import Page
from om_core.services.context import find_snapshot
from om_core.services.generations import generation as one_generation
from om_core.services.views import reflection_view

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services


class GenerationMethods:
    """Methods of `Memory`, which has the services and the tenant."""

    services: Services
    tenant: str

    def reflections(
        self, thread: str, *, resource: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[JsonObject]:
        """Generations, newest first."""
        with self.services.store.reading(self.tenant) as tx:
            memory = find_snapshot(tx, thread, resource).memory
            page = tx.reflections.page(memory.id, cursor=cursor, limit=limit)
        return Page(tuple(map(reflection_view, page.items)), page.next_cursor)

    def reflection(
        self, thread: str, generation: int, *, resource: str | None = None, against: int | None = None
    ) -> JsonObject:
        """One generation with the messages behind it and its changes `against` another one, by default its base.

        Raises:
            NotFoundError: there is no such generation.
        """
        return one_generation(self.services, self.tenant, thread, resource, generation, against=against)
