"""Removal in SQL: tombstones, erased notes, recounted threads (DESIGN 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from om_core.domain.taint import ChunkFact, GenerationFact
from om_core.ports.removal import Counted
from om_core.store.rows import moment, thread_from
from om_core.store.tables import LIVE, threads

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from om_core.domain.job import JobKind
    from om_core.domain.thread import ThreadState
    from om_core.store.session import Session

KEPT_FIELDS: Final = (
    "recordId", "threadId", "threadIds", "cycleId", "operationType", "startedAt", "completedAt", "failedAt",
    "activatedAt", "timestamp", "durationMs", "tokensToBuffer", "tokensToObserve", "tokensBuffered", "tokensObserved",
    "bufferedTokens", "observationTokens", "tokensActivated", "tokensAttempted", "chunksActivated", "messagesActivated",
    "generationCount", "triggeredBy", "lastActivityAt", "ttlExpiredMs", "previousModel", "currentModel", "config",
)  # fmt: skip
"""Fields of event payloads that hold no words of a conversation."""
ERASE_CHUNKS: Final = """
WITH left_of AS (
    SELECT c.id, count(m.seq) AS rows, coalesce(sum(m.tokens), 0) AS tokens
      FROM chunks c
      LEFT JOIN messages m ON m.tenant_id = c.tenant_id AND m.thread_id = c.thread_id
                          AND m.seq BETWEEN c.from_seq AND c.to_seq AND m.removed_at IS NULL
     WHERE c.tenant_id = :tenant AND c.id = ANY (:ids) GROUP BY c.id)
UPDATE chunks c SET text = '', tokens = 0, hints = '{}', extracted = '{}', message_tokens = l.tokens,
                    stale = l.rows > 0, kind = CASE WHEN l.rows > 0 THEN 'observed' ELSE 'empty' END
  FROM left_of l WHERE c.tenant_id = :tenant AND c.id = l.id
RETURNING c.id, c.thread_id, c.stale
"""
EMPTY: Final = """
UPDATE messages SET parts = NULL, metadata = NULL, fingerprint = NULL, author = NULL, tokens = 0,
                    removed_at = clock_timestamp(), client_id = CASE WHEN :keep THEN client_id END
 WHERE tenant_id = :tenant AND thread_id = :thread AND seq = ANY (:seqs) AND removed_at IS NULL
"""
ERASE_JOBS: Final = """
UPDATE jobs SET partial = '[]', input = (input::jsonb - 'guidance')::json,
                error = CASE WHEN error IS NULL THEN NULL
                             ELSE json_build_object('code', coalesce(error->>'code', 'erased'),
                                                    'message', 'the details went with removed messages') END,
                attempts = (SELECT coalesce(json_agg(a.value::jsonb - 'error'), '[]')
                              FROM json_array_elements(attempts) a)
 WHERE tenant_id = :tenant AND memory_id = :memory
"""
ERASE_EVENTS: Final = """
UPDATE events e SET payload = (
       SELECT coalesce(json_object_agg(p.key, p.value), '{}') FROM json_each(e.payload) p WHERE p.key = ANY (:fields))
 WHERE e.tenant_id = :tenant AND e.created_at >= :since
   AND e.thread_id IN (SELECT id FROM threads WHERE tenant_id = :tenant AND memory_id = :memory)
"""
ERASE_VALUES: Final = """
DELETE FROM extractions WHERE tenant_id = :tenant AND memory_id = :memory
   AND (chunk_id = ANY (:chunks) OR generation = ANY (:generations)
        OR (thread_id = :thread AND coalesce(to_seq, :lowest) >= :lowest))
"""
TAINTED_DOCUMENTS: Final = """
SELECT scope, scope_key, max(version) AS newest FROM working_memory
 WHERE tenant_id = :tenant AND source <> 'caller' AND created_at >= :since
   AND (thread_id IN (SELECT id FROM threads WHERE tenant_id = :tenant AND memory_id = :memory)
        OR (scope = 'resource' AND scope_key = :resource))
 GROUP BY scope, scope_key
"""
ERASE_DOCUMENT: Final = """
DELETE FROM working_memory WHERE tenant_id = :tenant AND scope = :scope AND scope_key = :key
   AND source <> 'caller' AND created_at >= :since
"""
REWRITE_DOCUMENT: Final = """
INSERT INTO working_memory (tenant_id, scope, scope_key, version, format, content, source)
SELECT :tenant, :scope, :key, greatest(:newest, coalesce(max(version), 0)) + 1,
       coalesce((array_agg(format ORDER BY version DESC))[1], 'markdown'),
       coalesce((array_agg(content ORDER BY version DESC))[1], ''), 'caller'
  FROM working_memory WHERE tenant_id = :tenant AND scope = :scope AND scope_key = :key
"""
"""What is left becomes the newest version again, under a number that nobody has read yet."""
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
         WHERE c.tenant_id = :tenant AND c.thread_id = :thread AND c.stale AND c.state = 'active') AS stale
  FROM messages WHERE tenant_id = :tenant AND thread_id = :thread AND seq > :observed AND removed_at IS NULL
"""
BOUND: Final = """
SELECT position FROM (
       SELECT position, sum(tokens) OVER (ORDER BY position DESC) AS reached FROM chunks
        WHERE tenant_id = :tenant AND memory_id = :memory AND position > :after) p
 WHERE reached > :tokens ORDER BY position DESC LIMIT 1
"""


class RemovalRows:
    """Implements `ports.removal.Removals`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _rows(self, sql: str, **params: Any) -> list[Any]:
        return list(self._session.rows(sa.text(sql), {"tenant": self._session.tenant_id, **params}))

    def _run(self, sql: str, **params: Any) -> int:
        return self._session.execute(sa.text(sql), {"tenant": self._session.tenant_id, **params}).rowcount

    def lock_threads(self, memory_id: int) -> tuple[ThreadState, ...]:
        rows = self._session.rows(
            sa.select(threads)
            .where(threads.c.tenant_id == self._session.tenant_id, threads.c.memory_id == memory_id)
            .order_by(threads.c.id)
            .with_for_update(key_share=True)
        )
        return tuple(thread_from(row) for row in rows)

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

    def first_stored_at(self, thread_id: int, seqs: Sequence[int]) -> datetime:
        sql = """SELECT min(stored_at) AS at FROM messages
        WHERE tenant_id = :tenant AND thread_id = :thread AND seq = ANY (:seqs)"""
        found: datetime = self._rows(sql, thread=thread_id, seqs=list(seqs))[0]["at"]
        return found

    def empty_messages(self, thread_id: int, seqs: Sequence[int], *, keep_ids: bool) -> None:
        self._run(EMPTY, thread=thread_id, seqs=list(seqs), keep=keep_ids)

    def chunks(self, memory_id: int) -> tuple[ChunkFact, ...]:
        sql = """SELECT id, thread_id, from_seq, to_seq, position, text, shown_chunks, shown_generation FROM chunks
        WHERE tenant_id = :tenant AND memory_id = :memory ORDER BY id"""
        return tuple(
            ChunkFact(
                id=row["id"],
                thread_id=row["thread_id"],
                from_seq=row["from_seq"],
                to_seq=row["to_seq"],
                position=row["position"],
                text=row["text"],
                shown_chunks=tuple(row["shown_chunks"]),
                shown_generation=row["shown_generation"] or None,
            )
            for row in self._rows(sql, memory=memory_id)
        )

    def generations(self, memory_id: int) -> tuple[GenerationFact, ...]:
        sql = "SELECT generation, through_position FROM reflections WHERE tenant_id = :tenant AND memory_id = :memory"
        return tuple(
            GenerationFact(generation=row["generation"], through_position=row["through_position"])
            for row in self._rows(sql, memory=memory_id)
        )

    def erase_chunks(self, chunk_ids: Collection[int]) -> tuple[tuple[int, int, bool], ...]:
        rows = self._rows(ERASE_CHUNKS, ids=sorted(chunk_ids))
        return tuple((row["id"], row["thread_id"], row["stale"]) for row in sorted(rows, key=lambda row: row["id"]))

    def erase_generations(self, memory_id: int, generations: Collection[int]) -> None:
        sql = """UPDATE reflections SET text = '', tokens = 0, extracted = '{}', state = 'erased'
        WHERE tenant_id = :tenant AND memory_id = :memory AND generation = ANY (:ids)"""
        self._run(sql, memory=memory_id, ids=sorted(generations))

    def newest_kept(self, memory_id: int) -> tuple[int, int, int]:
        sql = """SELECT generation, through_position, tokens FROM reflections
        WHERE tenant_id = :tenant AND memory_id = :memory AND state IN ('active', 'superseded')
        ORDER BY generation DESC LIMIT 1"""
        found = self._rows(sql, memory=memory_id)
        if not found:
            return (0, 0, 0)
        return (found[0]["generation"], found[0]["through_position"], found[0]["tokens"])

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

    def cancel_jobs(self, memory_id: int) -> None:
        self._cancel(memory_id, "")

    def cancel_kind(self, memory_id: int, kind: JobKind) -> None:
        self._cancel(memory_id, "AND kind = :kind", kind=kind.value)

    def _cancel(self, memory_id: int, which: str, **params: Any) -> None:
        self._run(
            f"""UPDATE jobs SET state = 'cancelled', attempt = attempt + 1, lease_owner = NULL, lease_expires_at = NULL,
                                partial = '[]', finished_at = clock_timestamp()
                 WHERE tenant_id = :tenant AND memory_id = :memory AND {LIVE} {which}""",
            memory=memory_id,
            **params,
        )

    def erase_jobs(self, memory_id: int) -> None:
        self._run(ERASE_JOBS, memory=memory_id)

    def erase_events(self, memory_id: int, since: datetime) -> None:
        self._run(ERASE_EVENTS, memory=memory_id, since=since, fields=list(KEPT_FIELDS))

    def erase_kept(
        self,
        thread: ThreadState,
        *,
        lowest_seq: int,
        since: datetime,
        chunk_ids: Collection[int],
        generations: Collection[int],
    ) -> None:
        self._run(
            ERASE_VALUES,
            memory=thread.memory_id,
            chunks=sorted(chunk_ids),
            generations=sorted(generations),
            thread=thread.id,
            lowest=lowest_seq,
        )
        found = self._rows(TAINTED_DOCUMENTS, memory=thread.memory_id, resource=thread.resource_id, since=since)
        for row in found:
            place = {"scope": row["scope"], "key": row["scope_key"]}
            self._run(ERASE_DOCUMENT, since=since, **place)
            self._run(REWRITE_DOCUMENT, newest=row["newest"], **place)

    def recount(self, thread: ThreadState) -> Counted:
        [row] = self._rows(RECOUNT, thread=thread.id, observed=thread.observed_seq, buffered=thread.buffered_seq)
        wanted = sorted({*thread.pins, *(call.seq for call in thread.open_calls)})
        sql = """SELECT seq FROM messages
        WHERE tenant_id = :tenant AND thread_id = :thread AND seq = ANY (:seqs) AND removed_at IS NULL"""
        live = {found["seq"] for found in self._rows(sql, thread=thread.id, seqs=wanted)} if wanted else set()
        return Counted(
            pending_tokens=int(row["pending"]),
            unbuffered_tokens=int(row["unbuffered"]),
            stale_tokens=int(row["stale"]),
            question_seq=row["question"] or 0,
            oldest_pending_at=moment(row["oldest"]) if row["oldest"] else None,
            last_live_turn=row["turn"] or 0,
            live_pins=tuple(pin for pin in thread.pins if pin in live),
            live_calls=tuple(call for call in thread.open_calls if call.seq in live),
        )

    def delete_thread(self, thread: ThreadState, *, with_memory: bool) -> dict[str, int]:
        own = {"thread": thread.id}
        counts = {
            "jobs": self._run("DELETE FROM jobs WHERE tenant_id = :tenant AND thread_id = :thread", **own),
            "events": self._run("DELETE FROM events WHERE tenant_id = :tenant AND thread_id = :thread", **own),
            "chunks": self._run("DELETE FROM chunks WHERE tenant_id = :tenant AND thread_id = :thread", **own),
            "messages": self._run("DELETE FROM messages WHERE tenant_id = :tenant AND thread_id = :thread", **own),
        }
        self._run("DELETE FROM threads WHERE tenant_id = :tenant AND id = :thread", **own)
        counts["reflections"] = 0
        if with_memory:
            memory = {"memory": thread.memory_id}
            self._run("DELETE FROM jobs WHERE tenant_id = :tenant AND memory_id = :memory", **memory)
            self._run("DELETE FROM extractions WHERE tenant_id = :tenant AND memory_id = :memory", **memory)
            counts["reflections"] = self._run(
                "DELETE FROM reflections WHERE tenant_id = :tenant AND memory_id = :memory", **memory
            )
            self._run("DELETE FROM memories WHERE tenant_id = :tenant AND id = :memory", **memory)
        documents = "DELETE FROM working_memory WHERE tenant_id = :tenant AND scope = 'thread' AND scope_key = :key"
        self._run(documents, key=str(thread.id))
        return counts

    def threads_of_resource(self, resource_id: str) -> tuple[tuple[int, int], ...]:
        sql = "SELECT id, memory_id FROM threads WHERE tenant_id = :tenant AND resource_id = :resource ORDER BY id"
        return tuple((row["id"], row["memory_id"]) for row in self._rows(sql, resource=resource_id))

    def delete_resource(self, resource_id: str) -> dict[str, int]:
        own = {"resource": resource_id}
        for table in ("working_memory", "spending"):
            self._run(
                f"DELETE FROM {table} WHERE tenant_id = :tenant AND scope = 'resource' AND scope_key = :resource", **own
            )
        return {
            "usage": self._run("DELETE FROM usage WHERE tenant_id = :tenant AND resource_id = :resource", **own),
            "keys": self._run("DELETE FROM api_keys WHERE tenant_id = :tenant AND resource_id = :resource", **own),
            "webhooks": self._run("DELETE FROM webhooks WHERE tenant_id = :tenant AND resource_id = :resource", **own),
        }
