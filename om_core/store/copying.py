"""Copying the rows of a thread into another one, for a clone (API 3)."""

from __future__ import annotations

from typing import Final

from om_core.ports.copying import Copied
from om_core.store.removal_kept import RemovalSql

MESSAGES: Final = """
INSERT INTO messages (tenant_id, thread_id, seq, client_id, role, author, parts, tokens, fingerprint, created_at,
                      timezone, metadata, turn, continues, removed_at,
                      copied_thread_id, copied_seq, copied_resource_id)
SELECT tenant_id, :target, seq, client_id, role, author, parts, tokens, fingerprint, created_at,
       timezone, metadata, turn, continues, removed_at,
       CASE WHEN removed_at IS NULL THEN thread_id END, CASE WHEN removed_at IS NULL THEN seq END,
       CASE WHEN removed_at IS NULL THEN coalesce(copied_resource_id, :resource) END
  FROM messages WHERE tenant_id = :tenant AND thread_id = :source AND seq <= :to
"""
# Whole chunks before `to_seq` and before the first stale one. In a memory of its own the clone keeps their positions,
# which generations refer to; in one that others write to as well they are given anew.
_WHOLE: Final = """
FROM chunks c WHERE c.tenant_id = :tenant AND c.thread_id = :source AND c.to_seq <= :to
 AND NOT EXISTS (SELECT FROM chunks s WHERE s.tenant_id = :tenant AND s.thread_id = :source AND s.stale
                    AND s.from_seq <= c.from_seq)
"""
_NEW: Final = "CASE WHEN position IS NOT NULL THEN :after + row_number() OVER (ORDER BY from_seq) END"
_NOTES: Final = """
INSERT INTO chunks (tenant_id, memory_id, thread_id, from_seq, to_seq, kind, state, stale, position, text, tokens,
                    message_tokens, shown_chunks, shown_generation, hints, extracted, model, prompt_version,
                    activated_at)
SELECT tenant_id, :memory, :target, from_seq, to_seq, kind, state, stale, {position}, text, tokens,
       message_tokens, shown_chunks, {generation}, hints, extracted, model, prompt_version, activated_at
"""
CHUNKS: Final = f"{_NOTES.format(position='position', generation='shown_generation')} {_WHOLE} ORDER BY from_seq"
MOVED: Final = f"{_NOTES.format(position=_NEW, generation='CAST(NULL AS BIGINT)')} {_WHOLE} ORDER BY from_seq"
SHARED: Final = f"""
INSERT INTO chunks (tenant_id, memory_id, thread_id, from_seq, to_seq, kind, state, position, text, tokens,
                    message_tokens, shared_chunk_id, hints, activated_at)
SELECT tenant_id, :memory, :target, from_seq, to_seq, 'empty', state, {_NEW}, '', 0,
       message_tokens, coalesce(shared_chunk_id, CASE WHEN kind <> 'empty' THEN id END), hints, activated_at
{_WHOLE} AND c.state = 'active' ORDER BY from_seq
"""
SHOWN: Final = """
UPDATE chunks c SET shown_chunks = (
       SELECT coalesce(array_agg(n.id ORDER BY n.id), '{}') FROM chunks o
         JOIN chunks n ON n.tenant_id = o.tenant_id AND n.thread_id = :target AND n.from_seq = o.from_seq
        WHERE o.tenant_id = c.tenant_id AND o.thread_id = :source AND o.id = ANY (c.shown_chunks))
 WHERE c.tenant_id = :tenant AND c.thread_id = :target
"""
GENERATIONS: Final = """
INSERT INTO reflections (tenant_id, memory_id, generation, base_generation, through_position, state, text, tokens,
                         input_tokens, extracted, level, model, prompt_version, activated_at)
SELECT tenant_id, :memory, generation, base_generation, through_position, 'superseded', text, tokens,
       input_tokens, extracted, level, model, prompt_version, activated_at
  FROM reflections WHERE tenant_id = :tenant AND memory_id = :from_memory
   AND state IN ('active', 'superseded') AND generation <= :newest AND through_position <= :position
"""
WAITING: Final = """
INSERT INTO reflections (tenant_id, memory_id, generation, base_generation, through_position, state, text, tokens,
                         input_tokens, extracted, level, model, prompt_version)
SELECT tenant_id, :memory, generation, base_generation, through_position, state, text, tokens,
       input_tokens, extracted, level, model, prompt_version
  FROM reflections WHERE tenant_id = :tenant AND memory_id = :from_memory
   AND state = 'buffered' AND generation = :generation AND base_generation = :base AND through_position <= :position
RETURNING generation
"""
DOCUMENT: Final = """
INSERT INTO working_memory (tenant_id, scope, scope_key, version, format, content, source, thread_id)
SELECT tenant_id, scope, CAST(:target AS TEXT), 1, format, content, source, :target
  FROM working_memory
 WHERE tenant_id = :tenant AND scope = 'thread' AND scope_key = CAST(:source AS TEXT)
   AND created_at < coalesce((SELECT stored_at FROM messages
                               WHERE tenant_id = :tenant AND thread_id = :source AND seq = :to + 1), 'infinity')
 ORDER BY version DESC LIMIT 1
"""
VALUES: Final = """
INSERT INTO extractions (tenant_id, memory_id, slug, value, thread_id, chunk_id, generation, from_seq, to_seq)
SELECT e.tenant_id, :memory, e.slug, e.value, :target, n.id, e.generation, e.from_seq, e.to_seq
  FROM extractions e
  LEFT JOIN chunks o ON o.tenant_id = e.tenant_id AND o.id = e.chunk_id
  LEFT JOIN chunks n ON n.tenant_id = e.tenant_id AND n.thread_id = :target AND n.from_seq = o.from_seq
 WHERE e.tenant_id = :tenant AND e.memory_id = :from_memory AND e.value IS NOT NULL
   AND (n.id IS NOT NULL OR :generations AND e.generation IN (
        SELECT generation FROM reflections WHERE tenant_id = :tenant AND memory_id = :memory))
"""
CURSORS: Final = """
SELECT coalesce(max(to_seq), 0) AS buffered, coalesce(max(to_seq) FILTER (WHERE state = 'active'), 0) AS observed,
       coalesce(max(position), 0) AS position, coalesce(sum(tokens) FILTER (WHERE state = 'active'), 0) AS tokens
  FROM chunks WHERE tenant_id = :tenant AND thread_id = :target
"""


class CopyRows(RemovalSql):
    """Implements `ports.copying.Copies`."""

    def messages(self, source: int, target: int, *, resource: str, to_seq: int) -> None:
        self._run(MESSAGES, source=source, target=target, resource=resource, to=to_seq)

    def chunks(self, source: int, target: int, memory_id: int, *, to_seq: int) -> Copied:
        return self._copied(CHUNKS, source, target, memory_id, to=to_seq)

    def moved_chunks(self, source: int, target: int, memory_id: int, *, to_seq: int, after: int) -> Copied:
        return self._copied(MOVED, source, target, memory_id, to=to_seq, after=after)

    def shared_chunks(self, source: int, target: int, memory_id: int, *, to_seq: int, after: int) -> Copied:
        return self._copied(SHARED, source, target, memory_id, to=to_seq, after=after)

    def _copied(self, sql: str, source: int, target: int, memory_id: int, **values: int) -> Copied:
        self._run(sql, source=source, target=target, memory=memory_id, **values)
        self._run(SHOWN, source=source, target=target)
        [row] = self._rows(CURSORS, target=target)
        return Copied(
            buffered_seq=row["buffered"], observed_seq=row["observed"], position=row["position"], tokens=row["tokens"]
        )

    def generations(self, from_memory: int, memory_id: int, *, newest: int, position: int) -> None:
        self._run(GENERATIONS, from_memory=from_memory, memory=memory_id, newest=newest, position=position)

    def waiting(self, from_memory: int, memory_id: int, *, generation: int, base: int, position: int) -> bool:
        given = {"generation": generation, "base": base, "position": position}
        return bool(self._rows(WAITING, from_memory=from_memory, memory=memory_id, **given))

    def document(self, source: int, target: int, *, to_seq: int) -> None:
        self._run(DOCUMENT, source=source, target=target, to=to_seq)

    def values(self, from_memory: int, memory_id: int, target: int, *, generations: bool) -> None:
        self._run(VALUES, from_memory=from_memory, memory=memory_id, target=target, generations=generations)
