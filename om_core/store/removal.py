"""Removal in SQL: locks, tombstones, chunks, generations, counters (DESIGN 3.3)."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from om_core.domain.chunk import Hints
from om_core.domain.content_words import content_words, note_words
from om_core.domain.extraction import value_text
from om_core.domain.taint import ChunkFact, GenerationFact
from om_core.ports.removal import Copy, Counted, Erased, Family
from om_core.store.removal_kept import KeptErasure
from om_core.store.rows import hints_from, memory_from, moment, thread_from
from om_core.store.tables import memories, threads

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from om_core.domain.thread import ThreadState

COPIES: Final = """
WITH RECURSIVE copy(thread_id, seq) AS (
    SELECT thread_id, seq FROM messages
     WHERE tenant_id = :tenant AND copied_thread_id = :thread AND copied_seq = ANY (:seqs)
     UNION
    SELECT m.thread_id, m.seq FROM messages m JOIN copy c ON m.copied_thread_id = c.thread_id AND m.copied_seq = c.seq
     WHERE m.tenant_id = :tenant)
SELECT m.thread_id, m.seq, t.memory_id, t.resource_id FROM copy c
  JOIN messages m ON m.tenant_id = :tenant AND m.thread_id = c.thread_id AND m.seq = c.seq AND m.removed_at IS NULL
  JOIN threads t ON t.tenant_id = :tenant AND t.id = m.thread_id
"""
COPIES_FROM: Final = """
SELECT m.thread_id, m.seq, t.memory_id, t.resource_id FROM messages m
  JOIN threads t ON t.tenant_id = m.tenant_id AND t.id = m.thread_id AND t.resource_id <> :resource
 WHERE m.tenant_id = :tenant AND m.copied_resource_id = :resource AND m.removed_at IS NULL
"""
RELEASE: Final = """
UPDATE messages c SET copied_thread_id = s.copied_thread_id, copied_seq = s.copied_seq FROM messages s
 WHERE c.tenant_id = :tenant AND c.copied_thread_id = :thread
   AND s.tenant_id = :tenant AND s.thread_id = :thread AND s.seq = c.copied_seq
"""
SHARING: Final = """
SELECT DISTINCT c.memory_id FROM threads t JOIN chunks c ON c.tenant_id = t.tenant_id AND c.thread_id = t.id
 WHERE t.tenant_id = :tenant AND t.resource_id = :resource AND c.created_at >= :since
   AND EXISTS (SELECT FROM working_memory w
                WHERE w.tenant_id = :tenant AND w.scope = 'resource' AND w.scope_key = :resource
                  AND w.source <> 'caller' AND w.created_at >= :since)
"""
EMPTY: Final = """
UPDATE messages SET parts = NULL, metadata = NULL, fingerprint = NULL, author = NULL, tokens = 0,
                    removed_at = clock_timestamp(), client_id = CASE WHEN :keep THEN client_id END
 WHERE tenant_id = :tenant AND thread_id = :thread AND seq = ANY (:seqs) AND removed_at IS NULL
"""
CHUNKS: Final = """
SELECT id, memory_id, thread_id, from_seq, to_seq, position, shared_chunk_id, shown_chunks, shown_generation FROM chunks
 WHERE tenant_id = :tenant AND memory_id = ANY (:memories) ORDER BY id
"""
SAID: Final = """
SELECT c.id, c.text, c.hints, c.extracted, CASE WHEN t.title_seq = c.to_seq THEN t.title END AS title
  FROM chunks c JOIN threads t ON t.tenant_id = c.tenant_id AND t.id = c.thread_id
 WHERE c.tenant_id = :tenant AND c.id = ANY (:ids)
"""
ERASE_CHUNKS: Final = """
WITH left_of AS (
    SELECT c.id, count(m.seq) AS rows, coalesce(sum(m.tokens), 0) AS tokens
      FROM chunks c
      LEFT JOIN messages m ON m.tenant_id = c.tenant_id AND m.thread_id = c.thread_id
                          AND m.seq BETWEEN c.from_seq AND c.to_seq AND m.removed_at IS NULL
     WHERE c.tenant_id = :tenant AND c.id = ANY (:ids) GROUP BY c.id)
UPDATE chunks c SET text = '', tokens = 0, hints = '{}', extracted = '{}', shown_chunks = '{}', shown_generation = NULL,
                    message_tokens = l.tokens, stale = l.rows > 0, shared_chunk_id = NULL,
                    kind = CASE WHEN l.rows > 0 THEN 'observed' ELSE 'empty' END
  FROM left_of l WHERE c.tenant_id = :tenant AND c.id = l.id
RETURNING c.id, c.thread_id, c.stale
"""
HINTS: Final = """
SELECT hints FROM chunks
 WHERE tenant_id = :tenant AND thread_id = :thread AND state = 'active' AND hints::text <> '{}' ORDER BY from_seq
"""
RECOUNT: Final = """
SELECT coalesce(sum(tokens) FILTER (WHERE seq > :observed), 0) AS pending,
       coalesce(sum(tokens) FILTER (WHERE seq > :buffered), 0) AS unbuffered,
       min(stored_at) FILTER (WHERE seq > :buffered) AS oldest,
       (SELECT turn FROM messages WHERE tenant_id = :tenant AND thread_id = :thread AND removed_at IS NULL
         ORDER BY seq DESC LIMIT 1) AS turn,
       (SELECT seq FROM messages WHERE tenant_id = :tenant AND thread_id = :thread AND removed_at IS NULL
           AND role = 'user' AND EXISTS (SELECT FROM json_array_elements(parts) p
                                          WHERE p.value->>'type' IN ('text', 'image', 'file'))
         ORDER BY seq DESC LIMIT 1) AS question,
       (SELECT coalesce(sum(m.tokens), 0) FROM chunks c
          JOIN messages m ON m.tenant_id = c.tenant_id AND m.thread_id = c.thread_id
                         AND m.seq BETWEEN c.from_seq AND c.to_seq AND m.removed_at IS NULL
         WHERE c.tenant_id = :tenant AND c.thread_id = :thread AND c.stale AND c.state = 'active') AS stale,
       (SELECT array_agg(seq) FROM messages
         WHERE tenant_id = :tenant AND thread_id = :thread AND seq = ANY (:seqs) AND removed_at IS NULL) AS live
  FROM messages WHERE tenant_id = :tenant AND thread_id = :thread AND seq > :observed AND removed_at IS NULL
"""
BOUND: Final = """
SELECT position FROM (
       SELECT position, sum(tokens) OVER (ORDER BY position DESC) AS reached FROM chunks
        WHERE tenant_id = :tenant AND memory_id = :memory AND position > :after) p
 WHERE reached > :tokens ORDER BY position DESC LIMIT 1
"""


class RemovalRows(KeptErasure):
    """Implements `ports.removal.Removals`."""

    def lock(self, memory_ids: Collection[int]) -> Family | None:
        ids, tenant = sorted(memory_ids), self._session.tenant_id
        mine = sa.and_(threads.c.tenant_id == tenant, threads.c.memory_id.in_(ids))
        locked = self._session.rows(
            sa.select(threads).where(mine).order_by(threads.c.id).with_for_update(key_share=True)
        )
        # FOR UPDATE, not FOR NO KEY UPDATE: a row that refers to the memory, as a new thread's does, has to wait.
        kept = self._session.rows(
            sa.select(memories)
            .where(memories.c.tenant_id == tenant, memories.c.id.in_(ids))
            .order_by(memories.c.id)
            .with_for_update()
        )
        by_id = {row["id"]: thread_from(row) for row in locked}
        if {row["id"] for row in self._session.rows(sa.select(threads.c.id).where(mine))} != by_id.keys():
            return None
        return Family(threads=by_id, memories={row["id"]: memory_from(row) for row in kept})

    def rows_of(self, thread_id: int, client_id: str) -> tuple[int, ...]:
        sql = """
        WITH first AS (SELECT seq FROM messages WHERE tenant_id = :tenant AND thread_id = :thread AND client_id = :id)
        SELECT m.seq FROM messages m, first f WHERE m.tenant_id = :tenant AND m.thread_id = :thread
           AND (m.seq = f.seq OR m.continues = f.seq) AND m.removed_at IS NULL ORDER BY m.seq
        """
        return tuple(row["seq"] for row in self._rows(sql, thread=thread_id, id=client_id))

    def is_deleted(self, thread_id: int, client_id: str) -> bool:
        sql = """SELECT 1 AS one FROM messages
        WHERE tenant_id = :tenant AND thread_id = :thread AND client_id = :id AND removed_at IS NOT NULL"""
        return bool(self._rows(sql, thread=thread_id, id=client_id))

    def live_above(self, thread_id: int, seq: int) -> tuple[int, ...]:
        sql = """SELECT seq FROM messages
        WHERE tenant_id = :tenant AND thread_id = :thread AND seq > :seq AND removed_at IS NULL ORDER BY seq"""
        return tuple(row["seq"] for row in self._rows(sql, thread=thread_id, seq=seq))

    def copies(self, thread_id: int, seqs: Collection[int]) -> tuple[Copy, ...]:
        return tuple(Copy(**row) for row in self._rows(COPIES, thread=thread_id, seqs=sorted(seqs)))

    def copies_from(self, resource_id: str) -> tuple[Copy, ...]:
        return tuple(Copy(**row) for row in self._rows(COPIES_FROM, resource=resource_id))

    def release_copies(self, thread_id: int) -> None:
        self._run(RELEASE, thread=thread_id)

    def sharing(self, resource_id: str, since: datetime) -> frozenset[int]:
        found = self._rows(SHARING, resource=resource_id, since=since)
        return frozenset(row["memory_id"] for row in found)

    def first_stored_at(self, removed: Mapping[int, Collection[int]]) -> datetime:
        sql = """SELECT min(stored_at) AS at FROM messages
        WHERE tenant_id = :tenant AND thread_id = :thread AND seq = ANY (:seqs)"""
        found: list[datetime] = [
            self._rows(sql, thread=thread_id, seqs=sorted(seqs))[0]["at"] for thread_id, seqs in removed.items()
        ]
        return min(found)

    def empty_messages(self, thread_id: int, seqs: Collection[int], *, keep_ids: bool) -> None:
        self._run(EMPTY, thread=thread_id, seqs=sorted(seqs), keep=keep_ids)

    def chunks(self, memory_ids: Collection[int]) -> tuple[ChunkFact, ...]:
        return tuple(_fact(row) for row in self._rows(CHUNKS, memories=sorted(memory_ids)))

    def words(self, chunk_ids: Collection[int]) -> Mapping[int, frozenset[str]]:
        return {row["id"]: _said(row) for row in self._rows(SAID, ids=sorted(chunk_ids))}

    def generations(self, memory_ids: Collection[int]) -> tuple[GenerationFact, ...]:
        sql = """SELECT memory_id, generation, through_position FROM reflections
        WHERE tenant_id = :tenant AND memory_id = ANY (:memories)"""
        return tuple(GenerationFact(**row) for row in self._rows(sql, memories=sorted(memory_ids)))

    def erase_chunks(self, chunk_ids: Collection[int]) -> tuple[Erased, ...]:
        found = [Erased(**row) for row in self._rows(ERASE_CHUNKS, ids=sorted(chunk_ids))]
        return tuple(sorted(found, key=lambda one: one.id))

    def erase_generations(self, memory_id: int, generations: Collection[int]) -> None:
        sql = """UPDATE reflections SET text = '', tokens = 0, extracted = '{}', state = 'erased'
        WHERE tenant_id = :tenant AND memory_id = :memory AND generation = ANY (:ids)"""
        self._run(sql, memory=memory_id, ids=sorted(generations))

    def newest_kept(self, memory_id: int) -> int:
        sql = """SELECT max(generation) AS newest FROM reflections
        WHERE tenant_id = :tenant AND memory_id = :memory AND state IN ('active', 'superseded')"""
        return int(self._rows(sql, memory=memory_id)[0]["newest"] or 0)

    def make_base(self, memory_id: int, generation: int) -> None:
        mine = "WHERE tenant_id = :tenant AND memory_id = :memory"
        change = f"UPDATE reflections SET state = :state {mine}"
        others = f"{change} AND state = 'active' AND generation <> :base"
        self._run(others, memory=memory_id, base=generation, state="superseded")
        self._run(f"{change} AND state = 'buffered'", memory=memory_id, state="discarded")
        self._run(f"{change} AND generation = :base", memory=memory_id, base=generation, state="active")

    def bound(self, memory_id: int, after_position: int, tokens: int) -> int | None:
        found = self._rows(BOUND, memory=memory_id, after=after_position, tokens=tokens)
        return found[0]["position"] if found else None

    def hints(self, thread_id: int) -> Hints:
        left = [hints_from(row["hints"]) for row in self._rows(HINTS, thread=thread_id)]
        return reduce(lambda older, newer: newer.merged_over(older), left, Hints())

    def recount(self, thread: ThreadState, seqs: Collection[int]) -> Counted:
        [row] = self._rows(
            RECOUNT, thread=thread.id, observed=thread.observed_seq, buffered=thread.buffered_seq, seqs=sorted(seqs)
        )
        return Counted(
            pending_tokens=int(row["pending"]),
            unbuffered_tokens=int(row["unbuffered"]),
            stale_tokens=int(row["stale"]),
            question_seq=row["question"] or 0,
            oldest_pending_at=moment(row["oldest"]),
            last_live_turn=row["turn"] or 0,
            live=frozenset(row["live"] or ()),
        )


def _fact(row: Any) -> ChunkFact:
    return ChunkFact(
        id=row["id"],
        memory_id=row["memory_id"],
        thread_id=row["thread_id"],
        from_seq=row["from_seq"],
        to_seq=row["to_seq"],
        position=row["position"],
        shared_chunk_id=row["shared_chunk_id"],
        shown_chunks=tuple(row["shown_chunks"]),
        shown_generation=row["shown_generation"] or None,
    )


def _said(row: Any) -> frozenset[str]:
    hints = hints_from(row["hints"])
    beside = (hints.current_task, hints.suggested_response, value_text(row["extracted"]), row["title"])
    return note_words(row["text"]) | content_words(*(text for text in beside if text))
