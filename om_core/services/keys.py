"""API keys: made once, shown once, stored as a hash; listed and revoked (API 3)."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError, NotFoundError
from om_core.domain.reach import EVERYTHING, Reach
from om_core.formats.fields import check_id
from om_core.services.deps import optional_iso

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.message import JsonObject
    from om_core.ports import KeyRow, Page
    from om_core.services.deps import Services

PREFIX: Final = "om_live_"
"""So that secret scanners and people recognise a key."""
NAME_LENGTH: Final = 100
SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key. `secret` is the whole key; it is nowhere stored and cannot be shown again."""

    row: KeyRow
    secret: str


def digest(key: str) -> bytes:
    """What is stored of a key. A key has 256 random bits, so a plain hash is enough and costs nothing per request."""
    return hashlib.sha256(key.encode()).digest()


def create_key(
    services: Services, tenant: str, *, name: str, days: float | None = None, reach: Reach = EVERYTHING
) -> CreatedKey:
    """Make a key of a tenant, with an expiry in days or without one, for everything or narrowed.

    Raises:
        InvalidInputError: the name is empty or too long, the days are not more than 0, an id is wrong, or a thread is
            named without its resource.
    """
    if not 1 <= len(name.strip()) <= NAME_LENGTH:
        raise InvalidInputError(f"1 to {NAME_LENGTH} characters, to recognise the key by", path="name")
    if days is not None and not 0 < days <= 36_500:
        raise InvalidInputError(f"{days:g} is not a number of days from above 0 to 36500", path="days")
    _check_reach(reach)
    shown = secrets.token_hex(4)
    key = f"{PREFIX}{shown}_{secrets.token_urlsafe(SECRET_BYTES)}"
    with services.store.transaction(tenant) as tx:
        expires = None if days is None else tx.now() + timedelta(days=days)
        row = tx.keys.add(
            prefix=f"{PREFIX}{shown}", digest=digest(key), name=name.strip(), reach=reach, expires_at=expires
        )
    return CreatedKey(row=row, secret=key)


def _check_reach(reach: Reach) -> None:
    if reach.resource is not None:
        check_id(reach.resource, "resource_id")
    if reach.thread is not None:
        check_id(reach.thread, "thread")
        if reach.resource is None:
            raise InvalidInputError(
                "name the thread's resource too: two resources may have this id", path="resource_id"
            )


def list_keys(services: Services, tenant: str, *, cursor: str | None = None, limit: int = 50) -> Page[KeyRow]:
    """Keys of a tenant, newest first, also revoked and expired ones."""
    with services.store.reading(tenant) as tx:
        return tx.keys.page(cursor=cursor, limit=limit)


def revoke_key(services: Services, tenant: str, key_id: int) -> KeyRow:
    """Make a key useless from now on; revoking twice changes nothing.

    Raises:
        NotFoundError: this tenant has no such key.
    """
    with services.store.transaction(tenant) as tx:
        row = tx.keys.revoke(key_id)
    if row is None:
        raise NotFoundError(f"no key {key_id}")
    return row


def key_view(row: KeyRow, now: datetime) -> JsonObject:
    """A key as lists show it: never the secret, never the hash."""
    expired = row.expires_at is not None and row.expires_at <= now
    return {
        "id": row.id,
        "prefix": row.prefix,
        "name": row.name,
        "resource_id": row.reach.resource,
        "thread": row.reach.thread,
        "read_only": row.reach.read_only,
        "state": "revoked" if row.revoked_at else "expired" if expired else "active",
        "created_at": optional_iso(row.created_at),
        "expires_at": optional_iso(row.expires_at),
        "revoked_at": optional_iso(row.revoked_at),
        "last_used_at": optional_iso(row.last_used_at),
    }
