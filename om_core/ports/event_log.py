"""The event log as the services see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.ports.records import EventRow, NewEvent


class Events(Protocol):
    """The event log of a tenant."""

    def add(self, events: Sequence[NewEvent]) -> None: ...

    def after(
        self, *, thread_id: int | None, resource_id: str | None, last_id: str | None, limit: int
    ) -> tuple[EventRow, ...]:
        """Events after an id, never passing an open transaction; `last_id` None: the newest `limit`."""

    def position(self) -> str:
        """An id that every event settled by now is before, and every later one after."""
