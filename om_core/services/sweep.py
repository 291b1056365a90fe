"""The sweep: a jittered loop in every worker process, no singleton (DESIGN 5).

It rings due jobs, takes over expired leases, wakes idle threads, and, while rings cannot be sent, does the work itself.
"""

from __future__ import annotations

import random  # jitter only
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from om_core import metrics
from om_core.domain.cuts import CutState, release_cut
from om_core.domain.job import JobKind, JobState
from om_core.domain.thresholds import next_wake
from om_core.ports import FinishedJob
from om_core.services.activate import activate_in
from om_core.services.deps import ttl_seconds
from om_core.services.enqueue import decide_again
from om_core.services.failures import backoff_s, conclude
from om_core.services.measure import activated, lease_expired, swept
from om_core.telemetry import described, get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from om_core.domain.job import Job, JobRef
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction
    from om_core.services.deps import Services
    from om_core.services.run_jobs import JobRunner

log = get_logger("om.sweep")
BATCH = 50
REST_S = 60.0
"""Pause before a thread whose time has come, but for which nothing can be done now, is looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What one sweep did."""

    rung: int = 0
    ran: int = 0
    rescued: int = 0
    woken: int = 0


class Sweeper:
    """The loop of one process. `ring` False: there is no broker, so it always does the work itself."""

    def __init__(
        self,
        services: Services,
        runner: JobRunner,
        *,
        name: str,
        queues: Sequence[str],
        slots: int,
        period_s: float,
        ring: bool = True,
        version: str = "",
    ) -> None:
        self._services = services
        self._runner = runner
        self._name = name
        self._queues = tuple(queues)
        self._slots = slots
        self._period_s = period_s
        self._ring = ring
        self._version = version
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Begin sweeping in a thread of its own."""
        self._thread = threading.Thread(target=self._loop, name="om-sweep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop and forget this worker."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        try:
            self._services.store.system.forget_worker(self._name)
        except Exception:  # the database is away: the row grows old by itself
            log.debug("worker row not removed")

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self.sweep_once()
            except Exception as error:  # the database is away: the next sweep tries again
                metrics.SWEEP_FAILURES.inc()
                log.warning("sweep failed", **described(error))
            self._stop.wait(self._period_s * random.uniform(0.5, 1.5))

    def sweep_once(self) -> SweepResult:
        """One round; raises what the database raises."""
        services, system = self._services, self._services.store.system
        running = self._runner.running
        system.heartbeat(
            name=self._name, queues=self._queues, slots=self._slots, running=running, version=self._version
        )
        rescued = sum(self._tried(rescue, *found) for found in system.expired(limit=BATCH))
        woken = sum(self._tried(wake, *found) for found in system.idle_threads(limit=BATCH))
        free = max(0, self._slots - running)
        if self._ring and getattr(services.dispatcher, "healthy", True):
            due = system.ring_due(self._queues, limit=free)
            services.dispatcher.ring(due)
            return swept(SweepResult(rung=len(due), rescued=rescued, woken=woken))
        due = system.ring_due(self._queues, limit=free)
        services.dispatcher.ring(due[:1])  # a probe: one success makes rings healthy again
        return swept(SweepResult(ran=self._work(due), rescued=rescued, woken=woken))

    def _tried(self, step: Callable[[Services, str, int], bool], tenant: str, target_id: int) -> bool:
        """One target's step; what is wrong with it must not keep the others waiting."""
        try:
            return step(self._services, tenant, target_id)
        except Exception as error:  # it comes again; a database that is away fails the next statement as well
            metrics.SWEEP_FAILURES.inc()
            log.warning("sweep step failed", step=step.__name__, tenant=tenant, id=target_id, **described(error))
            return False

    def _work(self, due: Sequence[JobRef]) -> int:
        """Do due jobs in this process, each pool thread going on while its queue has more."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=self._slots, thread_name_prefix="om-sweep-job")
        for job in due:
            self._pool.submit(self._work_off, job)
        return len(due)

    def _work_off(self, job: JobRef) -> None:
        job_id: int | None = job.id
        try:
            while self._runner.run(job.queue.value, job_id) is not None and not self._stop.is_set():
                job_id = None
                if self._ring and getattr(self._services.dispatcher, "healthy", True):
                    return
        except Exception as error:  # the claim failed: the next sweep finds the job again
            log.warning("claim failed", **described(error))


def rescue(services: Services, tenant: str, job_id: int) -> bool:
    """Take a job from a worker that is gone: due again at once; the fifth time in a row counts as a failure."""
    due: tuple[JobRef, ...] = ()
    with services.store.transaction(tenant) as tx:
        found = tx.jobs.get(job_id)
        thread = None if found is None else tx.threads.lock_by_id(int(found.thread_id or 0))
        if thread is None:
            return False
        tx.memories.lock(thread.memory_id)
        job = tx.jobs.lock_expired(job_id)
        if job is None:
            return False
        policy = services.policies.resolve()
        result = _expired(job, policy)
        if result.state is JobState.DISCARDED:  # it kills its workers: given up like any other failure
            _, due = conclude(tx, services, job, thread, policy, result)
        else:
            tx.jobs.finish(job, result)
            if job.reserved_tokens:  # what it spent is not known: all that it may have
                tx.book_usage(thread, job.kind.value, str(next(iter(job.models), "")), result)
    lease_expired(job)
    services.dispatcher.ring(due)
    log.warning("lease expired", job=job_id, owner=job.lease_owner, attempt=job.attempt)
    return True


def _expired(job: Job, policy: MemoryPolicy) -> FinishedJob:
    """What an expired lease means for its job."""
    limits = policy.job
    repeated = job.expired_leases + 1 >= limits.max_expired_leases
    spent_up = repeated and job.failures + 1 >= limits.max_failures
    return FinishedJob(
        state=JobState.DISCARDED if spent_up else JobState.RETRYABLE,
        error={"code": "lease_expired", "message": f"lease of {job.lease_owner} expired"},
        retry_after_s=backoff_s(1, limits.backoff_base_s, limits.backoff_cap_s) if repeated else 0.0,
        failed=repeated,
        outcome="lease_expired",
        input_tokens=job.reserved_tokens,
        cost_usd=job.reserved_usd,
    )


def wake(services: Services, tenant: str, thread_id: int) -> bool:
    """What an idle thread needs now: activation, observation of a small old tail; then its next time."""
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(thread_id)
        if thread is None:
            return False
        policy = services.policies.of(tx.memories.get(thread.memory_id))
        now = tx.now()
        _release(tx, thread, policy, now)
        result = activate_in(tx, services, thread_id, model=None)
        jobs = (*result.jobs, *decide_again(tx, services, tx.memories.snapshot(thread_id), now))
        current = tx.memories.snapshot(thread_id).thread
        ttl = ttl_seconds(policy.observation.activate_after_idle_s, current.last_model)
        due = next_wake(current, policy, ttl)
        if due is not None and due <= now:
            due = _rest(current, policy, ttl, now, working=tx.jobs.live(thread_id, JobKind.OBSERVE) is not None)
        tx.threads.update(thread_id, idle_due_at=due)
    activated(result.activated)
    services.dispatcher.ring(jobs)
    return True


def _rest(thread: ThreadState, policy: MemoryPolicy, ttl_s: float | None, now: datetime, *, working: bool) -> datetime:
    """When to look again at a thread whose time has come, but for which nothing can be done now.

    While a job is live, soon; else after as long as it has been idle already, so that threads left alone for months
    cost nothing, or at the next time that changes something by itself. A step brings it forward.
    """
    idle = now - (thread.last_activity_at or now)
    pause = timedelta(seconds=REST_S) if working else max(timedelta(seconds=REST_S), idle)
    later = next_wake(thread, policy, ttl_s, after=now)
    return now + pause if later is None else min(now + pause, later)


def _release(tx: Transaction, thread: ThreadState, policy: MemoryPolicy, now: datetime) -> None:
    """A call that has been open for too long no longer holds the cut (DESIGN 6.2)."""
    before = CutState(cut_seq=thread.cut_seq, open_calls=thread.open_calls, held_tokens=thread.held_tokens)
    after = release_cut(
        before,
        head_seq=thread.head_seq,
        question_seq=thread.question_seq,
        now=now,
        max_age_s=policy.observation.open_call_max_age_s,
    )
    if after != before:
        tx.threads.update(thread.id, cut_seq=after.cut_seq, held_tokens=after.held_tokens)
