"""Deleting what is past its time, a bounded number of rows per statement, oldest first by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from om_core.store.session import Session

SPENDING_DAYS: Final = 40
TENANTS: Final = """
WITH RECURSIVE walk(tenant_id, n) AS (
    (SELECT tenant_id, 1 FROM threads WHERE tenant_id > %s ORDER BY tenant_id LIMIT 1)
     UNION ALL
    SELECT (SELECT t.tenant_id FROM threads t WHERE t.tenant_id > w.tenant_id ORDER BY t.tenant_id LIMIT 1), w.n + 1
      FROM walk w WHERE w.tenant_id IS NOT NULL AND w.n < %s)
SELECT tenant_id FROM walk WHERE tenant_id IS NOT NULL
"""
JOBS: Final = """
DELETE FROM jobs j USING unnest(ARRAY['completed', 'cancelled', 'superseded']) AS ended(state), LATERAL (
    SELECT id FROM jobs WHERE tenant_id = %s AND state = ended.state ORDER BY id LIMIT %s) old
 WHERE j.tenant_id = %s AND j.id = old.id AND j.state = ended.state
   AND j.finished_at < clock_timestamp() - %s * interval '1 day'
RETURNING j.id
"""
EVENTS: Final = """
DELETE FROM events
 WHERE tenant_id = %s AND id IN (SELECT id FROM events WHERE tenant_id = %s ORDER BY id LIMIT %s)
   AND created_at < clock_timestamp() - %s * interval '1 day'
RETURNING id
"""
SPENDING: Final = "DELETE FROM spending WHERE tenant_id = %s AND day < current_date - %s RETURNING day"


def tenants(session: Session, after: str, *, limit: int) -> tuple[str, ...]:
    """Tenants that have threads, in order, above one."""
    return tuple(row[0] for row in session.hot(TENANTS, (after, limit)))


def prune_jobs(session: Session, days: int, *, limit: int) -> int:
    """Delete finished jobs of this tenant among the oldest of each state, and its sums of days long past."""
    tenant = session.tenant_id
    session.hot(SPENDING, (tenant, SPENDING_DAYS))
    return len(session.hot(JOBS, (tenant, limit, tenant, days)))


def prune_events(session: Session, days: int, *, limit: int) -> int:
    """Delete events of this tenant among its oldest."""
    tenant = session.tenant_id
    return len(session.hot(EVENTS, (tenant, tenant, limit, days)))
