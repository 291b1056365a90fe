"""API keys: of one tenant, and found by their hash as the system role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from om_core.ports import FoundKey, KeyRow
from om_core.store.tables_service import api_keys

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.store.rows import Row
    from om_core.store.session import Session

FIND = """
SELECT tenant_id, resource_id, thread, read_only FROM api_keys
 WHERE hash = %s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
"""
ID = "SELECT id FROM api_keys WHERE hash = %s AND revoked_at IS NULL"
HASH = "SELECT hash FROM api_keys WHERE id = %s"
SHOWN = (
    api_keys.c.id,
    api_keys.c.prefix,
    api_keys.c.name,
    api_keys.c.created_at,
    api_keys.c.expires_at,
    api_keys.c.revoked_at,
)


def key_from(row: Row) -> KeyRow:
    return KeyRow(
        id=row["id"],
        prefix=row["prefix"],
        name=row["name"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )


def find_key(session: Session, digest: bytes) -> FoundKey | None:
    """Whose key it is, if it may be used now. The index compares hashes, so nothing of a key leaks by timing."""
    found = session.hot(FIND, (digest,))
    return FoundKey(*found[0]) if found else None


def find_key_id(session: Session, digest: bytes) -> int | None:
    """The id of a key that was not revoked."""
    found = session.hot(ID, (digest,))
    return int(found[0][0]) if found else None


def find_key_hash(session: Session, key_id: int) -> bytes | None:
    """What is stored of a key."""
    found = session.hot(HASH, (key_id,))
    return bytes(found[0][0]) if found else None


class KeyRows:
    """Implements `ports.storage.Keys`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return api_keys.c.tenant_id == self._session.tenant_id

    def add(self, *, prefix: str, digest: bytes, name: str, expires_at: datetime | None) -> KeyRow:
        row = self._session.first(
            sa.insert(api_keys)
            .values(tenant_id=self._session.tenant_id, prefix=prefix, hash=digest, name=name, expires_at=expires_at)
            .returning(*SHOWN)
        )
        assert row is not None
        return key_from(row)

    def all(self) -> tuple[KeyRow, ...]:
        rows = self._session.rows(sa.select(*SHOWN).where(self._mine).order_by(api_keys.c.id.desc()))
        return tuple(key_from(row) for row in rows)

    def revoke(self, key_id: int) -> KeyRow | None:
        row = self._session.first(
            sa.update(api_keys)
            .where(self._mine, api_keys.c.id == key_id)
            .values(revoked_at=sa.func.coalesce(api_keys.c.revoked_at, sa.func.clock_timestamp()))
            .returning(*SHOWN)
        )
        return None if row is None else key_from(row)
