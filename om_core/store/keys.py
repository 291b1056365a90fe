"""API keys: of one tenant, and found by their hash as the system role."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from om_core.domain.reach import Reach
from om_core.ports import FoundKey, KeyRow, Page
from om_core.store.cursors import decode_cursor, encode_cursor
from om_core.store.tables_service import api_keys

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.store.rows import Row
    from om_core.store.session import Session

FIND = """
SELECT id, tenant_id, resource_id, thread, read_only FROM api_keys
 WHERE hash = %s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
"""
ID = "SELECT id FROM api_keys WHERE hash = %s AND revoked_at IS NULL"
HASH = "SELECT hash FROM api_keys WHERE id = %s"
SHOWN = (
    api_keys.c.id,
    api_keys.c.prefix,
    api_keys.c.name,
    api_keys.c.resource_id,
    api_keys.c.thread,
    api_keys.c.read_only,
    api_keys.c.created_at,
    api_keys.c.expires_at,
    api_keys.c.revoked_at,
    api_keys.c.last_used_at,
)
USED_EVERY_S: Final = 60
"""Seconds between writes of a key's last use."""
USED = sa.text("""
UPDATE api_keys SET last_used_at = clock_timestamp()
 WHERE tenant_id = :tenant AND id IN (
       SELECT id FROM api_keys
        WHERE tenant_id = :tenant AND id = :id
          AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - :pause * interval '1 second')
          FOR NO KEY UPDATE SKIP LOCKED)
""")
"""Never waits: if somebody else has the row, it is being written or revoked."""


def key_from(row: Row) -> KeyRow:
    return KeyRow(
        id=row["id"],
        prefix=row["prefix"],
        name=row["name"],
        reach=Reach(resource=row["resource_id"], thread=row["thread"], read_only=row["read_only"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        last_used_at=row["last_used_at"],
    )


def find_key(session: Session, digest: bytes) -> FoundKey | None:
    """Whose key it is, if it may be used now. The index compares hashes, so nothing of a key leaks by timing."""
    found = session.hot(FIND, (digest,))
    if not found:
        return None
    [(key_id, tenant_id, resource_id, thread, read_only)] = found
    return FoundKey(key_id, tenant_id, Reach(resource=resource_id, thread=thread, read_only=read_only))


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

    def add(self, *, prefix: str, digest: bytes, name: str, reach: Reach, expires_at: datetime | None) -> KeyRow:
        row = self._session.first(
            sa.insert(api_keys)
            .values(
                tenant_id=self._session.tenant_id,
                prefix=prefix,
                hash=digest,
                name=name,
                resource_id=reach.resource,
                thread=reach.thread,
                read_only=reach.read_only,
                expires_at=expires_at,
            )
            .returning(*SHOWN)
        )
        assert row is not None
        return key_from(row)

    def page(self, *, cursor: str | None, limit: int) -> Page[KeyRow]:
        before = decode_cursor(cursor)
        query = sa.select(*SHOWN).where(self._mine).order_by(api_keys.c.id.desc()).limit(limit + 1)
        if before is not None:
            query = query.where(api_keys.c.id < before)
        found = [key_from(row) for row in self._session.rows(query)]
        more = len(found) > limit
        return Page(tuple(found[:limit]), encode_cursor(found[limit - 1].id) if more else None)

    def used(self, key_id: int) -> bool:
        changed = self._session.execute(USED, {"tenant": self._session.tenant_id, "id": key_id, "pause": USED_EVERY_S})
        return changed.rowcount == 1

    def revoke(self, key_id: int) -> KeyRow | None:
        row = self._session.first(
            sa.update(api_keys)
            .where(self._mine, api_keys.c.id == key_id)
            .values(revoked_at=sa.func.coalesce(api_keys.c.revoked_at, sa.func.clock_timestamp()))
            .returning(*SHOWN)
        )
        return None if row is None else key_from(row)
