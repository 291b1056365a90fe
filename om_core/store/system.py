"""Finding work and holding leases, as `om_system`: ids, times, states and counters only, across tenants.

Times are the database's; clocks of workers are never compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from om_core.ports import ClaimedJob, ClaimLimits, WorkerRow
from om_core.store.claims import CLAIM, breaker_failed, breaker_gate, breaker_worked, limits_json, read_breakers
from om_core.store.events import read_news
from om_core.store.gauges import read_gauges
from om_core.store.keys import find_key, find_key_hash, find_key_id
from om_core.store.retention import tenants
from om_core.store.rows import KNOWN, job_from, moment, ref_from
from om_core.store.webhooks import claim_webhooks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from om_core.domain.job import Job, JobRef
    from om_core.domain.policy import JobPolicy
    from om_core.ports import BreakerRow, FoundKey, News, SystemGauges
    from om_core.store.engine import PostgresStore
    from om_core.store.session import Session

DEFAULT_LIMITS: Final = limits_json(ClaimLimits())
KINDS: Final = list(KNOWN)
"""Work of other kinds belongs to newer code on the same database."""
LOAD = "SELECT row_to_json(j), clock_timestamp() FROM jobs j WHERE tenant_id = %s AND id = %s"
"""Sent together with the change to the job's tenant: the system role sees no content."""

RENEW = sa.text("""
WITH held AS (SELECT unnest(CAST(:ids AS bigint[])) AS id, unnest(CAST(:attempts AS bigint[])) AS attempt),
mine AS (
    SELECT j.tenant_id, j.id FROM jobs j JOIN held h ON h.id = j.id AND h.attempt = j.attempt
     WHERE j.state = 'running' AND j.lease_owner = :owner
       FOR NO KEY UPDATE OF j SKIP LOCKED),
renewed AS (
    UPDATE jobs j SET lease_expires_at = clock_timestamp() + :lease * interval '1 second'
      FROM mine WHERE j.tenant_id = mine.tenant_id AND j.id = mine.id)
SELECT h.id FROM held h
 WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = h.id AND j.attempt = h.attempt AND j.lease_owner = :owner)
""")

RING_DUE = sa.text("""
WITH due AS MATERIALIZED (
        SELECT tenant_id, id FROM jobs
         WHERE queue = ANY (:queues) AND state IN ('available', 'retryable') AND run_at <= clock_timestamp()
           AND kind = ANY (:kinds)
           AND (rung_at IS NULL OR rung_at + least(2 ^ least(rings, 6), 60) * interval '1 second' < clock_timestamp())
         ORDER BY awaited DESC, run_at LIMIT :limit
           FOR NO KEY UPDATE SKIP LOCKED)
UPDATE jobs j SET rung_at = clock_timestamp(), rings = j.rings + 1
  FROM due WHERE j.tenant_id = due.tenant_id AND j.id = due.id
RETURNING j.id, j.tenant_id, j.kind, j.queue, j.thread, j.attempt
""")

IDLE = sa.text("""
WITH due AS MATERIALIZED (
        SELECT tenant_id, id FROM threads WHERE idle_due_at <= clock_timestamp()
         ORDER BY idle_due_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
UPDATE threads t SET idle_due_at = clock_timestamp() + interval '30 seconds'
  FROM due WHERE t.tenant_id = due.tenant_id AND t.id = due.id
RETURNING t.tenant_id, t.id
""")

EXPIRED = sa.text("""
SELECT tenant_id, id FROM jobs
 WHERE state = 'running' AND lease_expires_at < clock_timestamp() AND kind = ANY (:kinds)
 ORDER BY lease_expires_at LIMIT :limit
""")

UNATTENDED = sa.text("""
SELECT t.tenant_id, t.id FROM threads t
 WHERE (t.tenant_id, t.id) > (:tenant, :id) AND t.pending_tokens > 0
   AND (t.idle_due_at IS NULL OR t.unbuffered_tokens > 0 AND NOT EXISTS (
        SELECT FROM jobs j
         WHERE j.tenant_id = t.tenant_id AND j.thread_id = t.id AND j.kind = 'observe'
           AND j.state IN ('available', 'running', 'retryable')))
 ORDER BY t.tenant_id, t.id LIMIT :limit
""")

HEARTBEAT = sa.text("""
INSERT INTO workers (name, queues, slots, running, version) VALUES (:name, :queues, :slots, :running, :version)
ON CONFLICT (name) DO UPDATE SET queues = excluded.queues, slots = excluded.slots, running = excluded.running,
       version = excluded.version, seen_at = clock_timestamp()
""")

WORKERS = sa.text("""
SELECT name, queues, slots, running, seen_at, extract(epoch FROM clock_timestamp() - seen_at) AS age_s FROM workers
 WHERE seen_at > clock_timestamp() - :age * interval '1 second' ORDER BY name
""")


class SystemRows:
    """Implements `ports.storage.SystemStore`."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._after: dict[str, str] = {}
        """Per queue, the tenant after which the next claim looks: each claim sees a window of them, in turn."""

    def _session(self) -> Any:
        return self._store.session("om_system", "")

    def claim(
        self,
        *,
        queue: str,
        owner: str,
        lease_s: float,
        job_id: int | None = None,
        limits: ClaimLimits | None = None,
    ) -> ClaimedJob | None:
        after = self._after.get(queue, "")
        bound = DEFAULT_LIMITS if limits is None else limits_json(limits)
        with self._session() as session:
            [(tenant_id, claimed_id, capped, then, failing)] = session.hot(
                CLAIM, (queue, job_id, owner, lease_s, after, bound)
            )
            self._after[queue] = then
            if tenant_id is None:
                return None
            # What the job is about is read as the job's tenant: the system role sees no content.
            found = _load(session, tenant_id, claimed_id)
        return replace(found, capped=capped, breakers=frozenset(failing or ()))

    def breaker_gate(self, model: str, job: Job) -> float | None:
        with self._session() as session:
            return breaker_gate(session, model, job)

    def breaker_failed(self, model: str, job: Job, policy: JobPolicy, *, after_s: float | None) -> str:
        with self._session() as session:
            return breaker_failed(session, model, job, policy, after_s)

    def breaker_worked(self, model: str) -> bool:
        with self._session() as session:
            return breaker_worked(session, model)

    def breakers(self) -> tuple[BreakerRow, ...]:
        with self._session() as session:
            return read_breakers(session)

    def renew(self, held: Mapping[int, int], *, owner: str, lease_s: float) -> frozenset[int]:
        if not held:
            return frozenset()
        params = {"ids": list(held), "attempts": list(held.values()), "owner": owner, "lease": lease_s}
        with self._session() as session:
            return frozenset(row["id"] for row in session.rows(RENEW, params))

    def ring_due(self, queues: Sequence[str], *, limit: int) -> tuple[JobRef, ...]:
        if limit <= 0:
            return ()
        with self._session() as session:
            return tuple(
                ref_from(row)
                for row in session.rows(RING_DUE, {"queues": list(queues), "kinds": KINDS, "limit": limit})
            )

    def expired(self, *, limit: int) -> tuple[tuple[str, int], ...]:
        with self._session() as session:
            return tuple(
                (row["tenant_id"], row["id"]) for row in session.rows(EXPIRED, {"kinds": KINDS, "limit": limit})
            )

    def idle_threads(self, *, limit: int) -> tuple[tuple[str, int], ...]:
        with self._session() as session:
            return tuple((row["tenant_id"], row["id"]) for row in session.rows(IDLE, {"limit": limit}))

    def unattended(self, after: tuple[str, int], *, limit: int) -> tuple[tuple[str, int], ...]:
        params = {"tenant": after[0], "id": after[1], "limit": limit}
        with self._session() as session:
            return tuple((row["tenant_id"], row["id"]) for row in session.rows(UNATTENDED, params))

    def key(self, digest: bytes) -> FoundKey | None:
        with self._session() as session:
            return find_key(session, digest)

    def key_id(self, digest: bytes) -> int | None:
        with self._session() as session:
            return find_key_id(session, digest)

    def key_hash(self, key_id: int) -> bytes | None:
        with self._session() as session:
            return find_key_hash(session, key_id)

    def tenants(self, after: str, *, limit: int) -> tuple[str, ...]:
        with self._session() as session:
            return tenants(session, after, limit=limit)

    def job_states(self, job_ids: Sequence[int]) -> dict[int, str]:
        with self._session() as session:
            query = sa.text("SELECT id, state FROM jobs WHERE id = ANY (:ids)")
            return {row["id"]: row["state"] for row in session.rows(query, {"ids": list(job_ids)})}

    def news(self, position: str | None) -> News:
        with self._session() as session:
            return read_news(session, position)

    def due_webhooks(self, *, lease_s: float, limit: int) -> tuple[tuple[str, int], ...]:
        with self._session() as session:
            return claim_webhooks(session, lease_s=lease_s, limit=limit)

    def heartbeat(self, *, name: str, queues: Sequence[str], slots: int, running: int, version: str) -> None:
        with self._session() as session:
            session.execute(
                HEARTBEAT,
                {"name": name, "queues": list(queues), "slots": slots, "running": running, "version": version},
            )

    def forget_worker(self, name: str) -> None:
        with self._session() as session:
            session.execute(sa.text("DELETE FROM workers WHERE name = :name"), {"name": name})

    def gauges(self) -> SystemGauges:
        with self._session() as session:
            return read_gauges(session)

    def workers(self, *, max_age_s: float) -> tuple[WorkerRow, ...]:
        with self._session() as session:
            return tuple(
                WorkerRow(
                    name=row["name"],
                    queues=tuple(row["queues"]),
                    slots=row["slots"],
                    running=row["running"],
                    seen_at=row["seen_at"],
                    age_s=float(row["age_s"]),
                )
                for row in session.rows(WORKERS, {"age": max_age_s})
            )


def _load(session: Session, tenant_id: str, job_id: int) -> ClaimedJob:
    [(row, now)] = session.hot_as("om_app", tenant_id, LOAD, (tenant_id, job_id))
    current = moment(now)
    assert current is not None
    return ClaimedJob(job=job_from(row), thread=row["thread"], now=current)
