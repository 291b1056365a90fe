"""Chunk rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from om_core.ports import Page
from om_core.store.cursors import decode_cursor, encode_cursor
from om_core.store.prepared import Prepared, given
from om_core.store.rows import chunk_from, hints_json
from om_core.store.tables import chunks, threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.chunk import Chunk
    from om_core.domain.message import JsonObject
    from om_core.ports import NewChunk
    from om_core.store.session import Session

NOTES_PAGE, MOST_NOTES = 64, 1_024
"""Chunks looked at for prior notes, at least and at most."""
SMALL_NOTES = 32
"""Tokens of a small chunk: so many chunks may be needed to fill a limit."""


def _values(new: NewChunk) -> dict[str, Any]:
    return {
        "kind": new.kind.value,
        "text": new.text,
        "tokens": new.tokens,
        "message_tokens": new.message_tokens,
        "job_id": new.job_id,
        "attempt": new.attempt,
        "shown_chunks": list(new.shown_chunks),
        "shown_generation": new.shown_generation,
        "hints": hints_json(new.hints),
        "extracted": new.extracted,
        "model": new.model,
        "prompt_version": new.prompt_version,
        "cost_usd": new.cost_usd,
    }


ADD = Prepared(
    sa.insert(chunks)
    .values(
        **given("tenant_id", "memory_id", "thread_id", "from_seq", "to_seq", "state", "kind", "text", "tokens"),
        **given("message_tokens", "job_id", "attempt", "shown_chunks", "shown_generation", "hints", "extracted"),
        **given("model", "prompt_version", "cost_usd"),
    )
    .inline()
)
_IDS = sa.bindparam("ids", type_=sa.ARRAY(sa.BigInteger))
ACTIVATE = Prepared(
    sa.update(chunks)
    .where(chunks.c.tenant_id == sa.bindparam("tenant"), chunks.c.id == sa.func.any(_IDS))
    .values(
        state=sa.literal_column("'active'"),
        position=sa.bindparam("first", type_=sa.BigInteger)
        + sa.func.array_position(_IDS, chunks.c.id)
        - sa.literal_column("1"),
        activated_at=sa.func.clock_timestamp(),
    )
)
NEWEST_NOTES = Prepared(
    sa.select(chunks)
    .where(
        chunks.c.tenant_id == sa.bindparam("tenant"),
        chunks.c.memory_id == sa.bindparam("memory"),
        chunks.c.tokens > sa.literal_column("0"),
        sa.or_(chunks.c.position.is_not(None), chunks.c.thread_id == sa.bindparam("thread")),
    )
    .order_by(chunks.c.id.desc())
    .limit(sa.bindparam("most"))
)


OVER = Prepared(
    sa.select(chunks.c.id).where(
        chunks.c.tenant_id == sa.bindparam("tenant"),
        chunks.c.thread_id == sa.bindparam("thread"),
        chunks.c.from_seq == sa.bindparam("first"),
    )
)


class ChunkRows:
    """Implements `ports.storage.Chunks`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return chunks.c.tenant_id == self._session.tenant_id

    def add(self, chunk: NewChunk) -> None:
        row = {
            "tenant_id": self._session.tenant_id,
            "memory_id": chunk.memory_id,
            "thread_id": chunk.thread_id,
            "from_seq": chunk.from_seq,
            "to_seq": chunk.to_seq,
            "state": "buffered",
            **_values(chunk),
        }
        self._session.later(ADD, row)

    def buffered(self, thread_id: int) -> tuple[Chunk, ...]:
        # Chunks below the cursor are active: starting there makes this cost the same at any length of the log.
        cursor = sa.select(threads.c.observed_seq).where(
            threads.c.tenant_id == self._session.tenant_id, threads.c.id == thread_id
        )
        rows = self._session.rows(
            sa.select(chunks)
            .where(self._mine, chunks.c.thread_id == thread_id, chunks.c.from_seq > cursor.scalar_subquery())
            .order_by(chunks.c.from_seq)
        )
        return tuple(chunk_from(row) for row in rows)

    def activate(self, chunk_ids: Sequence[int], first_position: int) -> None:
        params = {"tenant": self._session.tenant_id, "ids": list(chunk_ids), "first": first_position}
        self._session.later(ACTIVATE, params)

    def log(self, memory_id: int, after_position: int) -> tuple[Chunk, ...]:
        rows = self._session.rows(
            sa.select(chunks, threads.c.external_id.label("thread"))
            .join(threads, sa.and_(threads.c.tenant_id == chunks.c.tenant_id, threads.c.id == chunks.c.thread_id))
            .where(self._mine, chunks.c.memory_id == memory_id, chunks.c.position > after_position)
            .order_by(chunks.c.position)
        )
        return tuple(chunk_from(row) for row in rows)

    def log_tokens(self, memory_id: int, after_position: int) -> int:
        return int(
            self._session.scalar(
                sa.select(sa.func.coalesce(sa.func.sum(chunks.c.tokens), 0)).where(
                    self._mine, chunks.c.memory_id == memory_id, chunks.c.position > after_position
                )
            )
        )

    def newest_notes(self, memory_id: int, thread_id: int, max_tokens: int) -> tuple[Chunk, ...]:
        rows = self._session.fetch(
            NEWEST_NOTES,
            tenant=self._session.tenant_id,
            memory=memory_id,
            thread=thread_id,
            most=min(MOST_NOTES, max(NOTES_PAGE, max_tokens // SMALL_NOTES)),
        )
        picked: list[Chunk] = []
        left = max_tokens
        for chunk in map(chunk_from, rows):
            if chunk.tokens + 1 > left:  # one for the line end between two
                if not picked and left > 0:
                    picked.append(chunk)  # the caller shows the newest lines of it
                break
            picked.append(chunk)
            left -= chunk.tokens + 1
        return tuple(reversed(picked))

    def stale_seqs(self, thread_id: int) -> tuple[int, ...]:
        found = self._session.rows(
            sa.select(chunks.c.from_seq, chunks.c.to_seq).where(
                self._mine, chunks.c.thread_id == thread_id, chunks.c.stale, chunks.c.state == "active"
            )
        )
        return tuple(seq for row in found for seq in range(row["from_seq"], row["to_seq"] + 1))

    def any_stale(self, memory_id: int, after_position: int, through_position: int) -> bool:
        found = sa.select(chunks.c.id).where(
            self._mine,
            chunks.c.memory_id == memory_id,
            chunks.c.position > after_position,
            chunks.c.position <= through_position,
            chunks.c.stale,
        )
        return bool(self._session.scalar(sa.select(found.exists())))

    def get(self, chunk_id: int) -> Chunk | None:
        row = self._session.first(sa.select(chunks).where(self._mine, chunks.c.id == chunk_id))
        return None if row is None else chunk_from(row)

    def set_extracted(self, chunk_id: int, values: JsonObject, shown: Sequence[int]) -> None:
        # The chunks whose values were shown count as shown: what is removed from them reaches this one as well.
        seen = sa.cast(list(shown), sa.ARRAY(sa.BigInteger))
        self._session.execute(
            sa.update(chunks)
            .where(self._mine, chunks.c.id == chunk_id)
            .values(extracted=values, shown_chunks=chunks.c.shown_chunks + seen)
        )

    def over(self, thread_id: int, from_seq: int) -> int | None:
        found = self._session.fetch(OVER, tenant=self._session.tenant_id, thread=thread_id, first=from_seq)
        return found[0]["id"] if found else None

    def rewrite(self, chunk_id: int, new: NewChunk) -> bool:
        changed = self._session.execute(
            sa.update(chunks)
            .where(self._mine, chunks.c.id == chunk_id, sa.or_(chunks.c.stale, chunks.c.kind == "parked"))
            .values(stale=False, **_values(new))
        )
        return changed.rowcount == 1

    def page(self, thread_id: int, *, state: str, cursor: str | None, limit: int) -> Page[Chunk]:
        after = decode_cursor(cursor)
        query = (
            sa.select(chunks)
            .where(self._mine, chunks.c.thread_id == thread_id)
            .order_by(chunks.c.from_seq)
            .limit(limit + 1)
        )
        if state != "all":
            query = query.where(chunks.c.state == state)
        if after is not None:
            query = query.where(chunks.c.from_seq > after)
        found = [chunk_from(row) for row in self._session.rows(query)]
        more = len(found) > limit
        return Page(tuple(found[:limit]), encode_cursor(found[limit - 1].from_seq) if more else None)
