"""Removal of what stands beside messages, chunks and generations: jobs' answers, events, values, documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from om_core.domain.job import Queue
from om_core.ports import NewJob
from om_core.ports.removal import Cancelled
from om_core.store.rows import KNOWN
from om_core.store.tables import LIVE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from om_core.domain.job import JobKind
    from om_core.domain.message import JsonObject
    from om_core.domain.thread import ThreadState
    from om_core.store.session import Session

KEPT_FIELDS: Final = (
    "recordId", "threadId", "threadIds", "cycleId", "operationType", "startedAt", "completedAt", "failedAt",
    "activatedAt", "timestamp", "durationMs", "tokensToBuffer", "tokensToObserve", "tokensBuffered", "tokensObserved",
    "bufferedTokens", "observationTokens", "tokensActivated", "tokensAttempted", "chunksActivated", "messagesActivated",
    "generationCount", "triggeredBy", "lastActivityAt", "ttlExpiredMs", "previousModel", "currentModel", "config",
)  # fmt: skip
"""Fields of event payloads that hold no words of a conversation."""
_SUM: Final = "(SELECT coalesce(sum((p.value->>'{}')::numeric), 0) FROM json_array_elements(live.saved) p)"
CANCEL: Final = f"""
UPDATE jobs j SET state = 'cancelled', attempt = attempt + 1, lease_owner = NULL, lease_expires_at = NULL,
                  input_tokens = input_tokens + {_SUM.format("input_tokens")},
                  output_tokens = output_tokens + {_SUM.format("output_tokens")},
                  cost_usd = cost_usd + {_SUM.format("cost_usd")},
                  partial = '[]', finished_at = clock_timestamp()
  FROM (SELECT tenant_id, id, partial AS saved FROM jobs
         WHERE tenant_id = :tenant AND memory_id = ANY (:memories) AND {LIVE} AND (:kind IS NULL OR kind = :kind)
         ORDER BY id FOR NO KEY UPDATE) live
 WHERE j.tenant_id = live.tenant_id AND j.id = live.id
RETURNING j.kind, j.queue, j.target, j.thread, j.memory_id, j.thread_id, j.chunk_id, j.reason, j.policy,
          j.prompt_version, j.traceparent, j.models, j.input
"""
ERASE_JOBS: Final = """
UPDATE jobs SET partial = '[]', input = (input::jsonb - 'guidance')::json,
                error = CASE WHEN error IS NULL THEN NULL
                             ELSE json_build_object('code', coalesce(error->>'code', 'erased'),
                                                    'message', 'the details went with removed messages') END,
                attempts = (SELECT coalesce(json_agg(a.value::jsonb - 'error'), '[]')
                              FROM json_array_elements(attempts) a)
 WHERE tenant_id = :tenant AND memory_id = ANY (:memories) AND coalesce(finished_at, 'infinity') >= :since
"""
ERASE_EVENTS: Final = """
UPDATE events e SET payload = (
       SELECT coalesce(json_object_agg(p.key, p.value), '{}') FROM json_each(e.payload) p WHERE p.key = ANY (:fields))
 WHERE e.tenant_id = :tenant AND e.created_at >= :since
   AND (e.thread_id IN (SELECT id FROM threads WHERE tenant_id = :tenant AND memory_id = ANY (:memories))
        OR (e.resource_id = ANY (:resources) AND e.type = 'data-om-working-memory'))
"""
DOCUMENTS: Final = """
SELECT scope, scope_key, max(version) AS newest FROM working_memory
 WHERE tenant_id = :tenant AND source <> 'caller' AND created_at >= :since
   AND ((scope = 'thread' AND scope_key = ANY (:threads)) OR (scope = 'resource' AND scope_key = ANY (:resources)))
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
VALUES: Final = """
SELECT memory_id, slug, value, signal, error, chunk_id, generation FROM extractions
 WHERE tenant_id = :tenant AND memory_id = ANY (:memories)
"""


class RemovalSql:
    """Statements of a removal, each with the tenant."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _rows(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        found = self._session.rows(sa.text(sql), {"tenant": self._session.tenant_id, **params})
        return [dict(row) for row in found]

    def _run(self, sql: str, **params: Any) -> int:
        return self._session.execute(sa.text(sql), {"tenant": self._session.tenant_id, **params}).rowcount


class KeptErasure(RemovalSql):
    """A part of `ports.removal.Removals`."""

    def cancel_jobs(self, memory_ids: Collection[int], kind: JobKind | None = None) -> tuple[Cancelled, ...]:
        found = self._rows(CANCEL, memories=sorted(memory_ids), kind=None if kind is None else kind.value)
        return tuple(_cancelled(row) for row in found if row["kind"] in KNOWN)

    def erase_jobs(self, memory_ids: Collection[int], since: datetime) -> None:
        self._run(ERASE_JOBS, memories=sorted(memory_ids), since=since)

    def erase_events(self, memory_ids: Collection[int], resources: Collection[str], since: datetime) -> None:
        places = {"memories": sorted(memory_ids), "resources": sorted(resources)}
        self._run(ERASE_EVENTS, since=since, fields=list(KEPT_FIELDS), **places)

    def values(self, memory_ids: Collection[int]) -> tuple[tuple[int, JsonObject], ...]:
        found = self._rows(VALUES, memories=sorted(memory_ids))
        return tuple((row["memory_id"], row) for row in found)

    def erase_values(self, memory_id: int, slugs: Collection[str]) -> None:
        sql = "DELETE FROM extractions WHERE tenant_id = :tenant AND memory_id = :memory AND slug = ANY (:slugs)"
        self._run(sql, memory=memory_id, slugs=sorted(slugs))

    def erase_documents(self, threads: Sequence[ThreadState], since: datetime) -> None:
        keys = [str(state.id) for state in threads]
        resources = sorted({state.resource_id for state in threads})
        for row in self._rows(DOCUMENTS, threads=keys, resources=resources, since=since):
            place = {"scope": row["scope"], "key": row["scope_key"]}
            self._run(ERASE_DOCUMENT, since=since, **place)
            self._run(REWRITE_DOCUMENT, newest=row["newest"], **place)


def _cancelled(row: dict[str, Any]) -> Cancelled:
    given = {**row, "kind": KNOWN[row["kind"]], "queue": Queue(row["queue"]), "models": tuple(row["models"])}
    kept = {name: value for name, value in (row["input"] or {}).items() if name == "generation"}
    return Cancelled(job=NewJob(**{**given, "input": kept}))
