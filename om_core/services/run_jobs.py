"""Running jobs: claim, do, commit, record. What a Celery task and the sweep both call."""

from __future__ import annotations

import threading
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import structlog

from om_core import tracing
from om_core.domain.errors import LostRaceError
from om_core.domain.job import JobKind
from om_core.services import measure
from om_core.services.breaker import GuardedModel
from om_core.services.extract import run_extract
from om_core.services.failures import record_failure, record_loss
from om_core.services.leases import LeaseKeeper
from om_core.services.limits import claim_limits
from om_core.services.observe import run_observe
from om_core.services.rebuild import run_rebuild
from om_core.services.reflect import run_reflect
from om_core.telemetry import described, get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from om_core.domain.job import JobRef
    from om_core.ports import ClaimedJob, FinishedJob
    from om_core.services.deps import Services

log = get_logger("om.jobs")

HANDLERS: dict[JobKind, Callable[..., tuple[FinishedJob, tuple[JobRef, ...]]]] = {
    JobKind.OBSERVE: run_observe,
    JobKind.REFLECT: run_reflect,
    JobKind.REBUILD: run_rebuild,
    JobKind.EXTRACT: run_extract,
}


class JobRunner:
    """Does jobs of this process, one per calling thread; knows how many run."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._policy = services.policies.resolve()
        self._limits = claim_limits(services)
        self.capped = False
        """Whether the newest claim took its tenant's last slot: rings of others may have been in vain."""
        self.leases = LeaseKeeper(services)
        self._lock = threading.Lock()
        self._running = 0
        self._idle = threading.Condition(self._lock)
        self._closed = False

    @property
    def running(self) -> int:
        """Jobs under way."""
        return self._running

    def run(self, queue: str, job_id: int | None = None) -> str | None:
        """Claim the rung job if it is due, else the best due job of the queue, and do it.

        Returns:
            A word for the outcome; None when there was nothing to claim, or this process is stopping.

        Raises:
            Exception: only if the claim itself failed (the database is away); the sweep rings again.
        """
        with self._lock:
            if self._closed:
                return None
            self._running += 1
        try:
            services = self._services
            claimed = services.store.system.claim(
                queue=queue, owner=services.owner, lease_s=services.lease_s, job_id=job_id, limits=self._limits
            )
            self.capped = claimed is not None and claimed.capped
            return None if claimed is None else self._do(claimed)
        finally:
            with self._lock:
                self._running -= 1
                self._idle.notify_all()

    def _do(self, claimed: ClaimedJob) -> str:
        job, now = claimed.job, claimed.now
        cancelled, started = self.leases.hold(job), perf_counter()
        measure.claimed(job, late_s=(now - (job.run_at or now)).total_seconds())
        bound = {"job": job.id, "kind": job.kind.value, "thread": job.thread, "attempt": job.attempt}
        with structlog.contextvars.bound_contextvars(**bound, cycle=job.cycle_id), tracing.job(job):
            try:
                outcome = self._attempt(claimed, cancelled)
                tracing.note_outcome(outcome)
            finally:
                self.leases.release(job)
            measure.attempt_ended(job, outcome, perf_counter() - started)
            log.info("job ended", outcome=outcome)
        return outcome

    def _attempt(self, claimed: ClaimedJob, cancelled: Event) -> str:
        services, job = self._services, claimed.job
        guarded = GuardedModel(services.model, services.store.system, claimed, self._policy.job)
        try:
            result, due = HANDLERS[job.kind](replace(services, model=guarded), job.tenant_id, job, cancelled)
        except Exception as error:  # every failure becomes a verdict in the jobs table: the one retry authority
            try:
                if isinstance(error, LostRaceError):
                    log.info("result dropped", reason=str(error))
                    record_loss(services, job.tenant_id, job, error)
                    return "lost"
                log.warning("attempt failed", **described(error))
                result, due = record_failure(services, job.tenant_id, job, error)
            except Exception as second:  # the database is away: the lease expires and the job is taken over
                log.warning("failure not recorded", **described(second))
                return "not_recorded"
        services.dispatcher.ring(due)
        return result.outcome

    def drain(self, timeout_s: float) -> bool:
        """Claim nothing more and wait for running jobs; whether all ended in time."""
        with self._lock:
            self._closed = True
            return self._idle.wait_for(lambda: self._running == 0, timeout=timeout_s)

    def abandon(self) -> None:
        """Cancel what still runs: its jobs go back to the queue with a short pause."""
        self.leases.cancel_all()

    def close(self) -> None:
        """Stop the lease thread."""
        self.leases.stop()
