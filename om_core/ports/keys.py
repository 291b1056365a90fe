"""API keys as the services see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.reach import Reach
    from om_core.ports.records import KeyRow, Page


class Keys(Protocol):
    """API keys of a tenant."""

    def add(self, *, prefix: str, digest: bytes, name: str, reach: Reach, expires_at: datetime | None) -> KeyRow: ...

    def page(self, *, cursor: str | None, limit: int) -> Page[KeyRow]:
        """Newest first, also revoked and expired ones."""

    def used(self, key_id: int) -> bool:
        """Remember that the key was used now, unless that is known to the minute; whether it was written."""

    def revoke(self, key_id: int) -> KeyRow | None:
        """The key after it; None when the tenant has no such key."""
