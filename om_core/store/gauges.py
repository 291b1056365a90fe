"""Queue depth and ages for metrics: one statement of `om_system`, bounded however long the backlog is.

Every part of it follows a partial index and stops after a number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from om_core.ports import QueueGauge, SystemGauges

if TYPE_CHECKING:
    from om_core.store.session import Session

MOST_JOBS: Final = 10_000
"""Jobs counted per queue, those waited for apart, due and not yet due apart."""
MOST_THREADS: Final = 1_000
TIMEOUT_MS: Final = 2_000

# now(), not clock_timestamp(): a volatile function is no bound of an index scan.
GAUGES: Final = f"""
SET LOCAL statement_timeout = {TIMEOUT_MS};
WITH lanes AS (
    SELECT queue, awaited
      FROM unnest(ARRAY['observation', 'buffering', 'reflection', 'indexing', 'maintenance']) AS queue,
           unnest(ARRAY[true, false]) AS awaited),
found AS MATERIALIZED (
    SELECT l.queue, true AS due, j.* FROM lanes l CROSS JOIN LATERAL (
        SELECT kind, run_at, tenant_id, thread_id FROM jobs
         WHERE queue = l.queue AND awaited = l.awaited AND state IN ('available', 'retryable') AND run_at <= now()
         ORDER BY run_at LIMIT %s) j
     UNION ALL
    SELECT l.queue, false, j.* FROM lanes l CROSS JOIN LATERAL (
        SELECT kind, run_at, tenant_id, thread_id FROM jobs
         WHERE queue = l.queue AND awaited = l.awaited AND state IN ('available', 'retryable') AND run_at > now()
         ORDER BY run_at LIMIT %s) j),
running AS MATERIALIZED (SELECT queue, kind, tenant_id, thread_id FROM jobs WHERE state = 'running'),
depths AS (
    SELECT queue, kind, count(*) FILTER (WHERE due) AS due, count(*) FILTER (WHERE NOT due) AS waiting, 0 AS running,
           extract(epoch FROM now() - min(run_at) FILTER (WHERE due)) AS age
      FROM found GROUP BY queue, kind
     UNION ALL
    SELECT queue, kind, 0, 0, count(*), NULL FROM running GROUP BY queue, kind),
pending AS (
    SELECT t.oldest_pending_at AS at FROM (
        SELECT tenant_id, thread_id FROM found WHERE kind = 'observe'
         UNION SELECT tenant_id, thread_id FROM running WHERE kind = 'observe') j
      JOIN threads t ON t.tenant_id = j.tenant_id AND t.id = j.thread_id
     UNION ALL
    SELECT oldest_pending_at FROM (
        SELECT oldest_pending_at FROM threads WHERE idle_due_at IS NOT NULL ORDER BY idle_due_at LIMIT %s) t),
gone AS (SELECT kind FROM jobs WHERE state = 'discarded' LIMIT %s),
seen AS (SELECT slots FROM workers WHERE seen_at > now() - interval '15 seconds')
SELECT json_build_object(
    'queues', (SELECT json_agg(json_build_array(queue, kind, due, waiting, running, age)) FROM (
        SELECT queue, kind, sum(due)::bigint AS due, sum(waiting)::bigint AS waiting, sum(running)::bigint AS running,
               max(age) AS age
          FROM depths GROUP BY queue, kind) d),
    'pending', (SELECT extract(epoch FROM now() - min(at)) FROM pending),
    'discarded', (SELECT json_object_agg(kind, n) FROM (SELECT kind, count(*) AS n FROM gone GROUP BY kind) g),
    'workers', (SELECT count(*) FROM seen),
    'slots', (SELECT coalesce(sum(slots), 0) FROM seen))
"""


def read_gauges(session: Session, *, most_jobs: int = MOST_JOBS, most_threads: int = MOST_THREADS) -> SystemGauges:
    """The sums as of now, in one transaction of the system role."""
    [(found,)] = session.hot(GAUGES, (most_jobs, most_jobs, most_threads, most_jobs))
    return SystemGauges(
        queues=tuple(
            QueueGauge(
                queue=queue,
                kind=kind,
                due=due,
                waiting=waiting,
                running=running,
                oldest_due_age_s=max(0.0, float(age or 0.0)),
            )
            for queue, kind, due, waiting, running, age in found["queues"] or ()
        ),
        oldest_pending_age_s=max(0.0, float(found["pending"] or 0.0)),
        discarded=dict(found["discarded"] or {}),
        workers=found["workers"],
        slots=int(found["slots"]),
    )
