"""The audit: what should be due is derived again from the threads themselves, in case a decision was ever missed.

Steps, commits and the sweep decide in time (DESIGN 4); each repair made here is a fault of theirs, and is logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from om_core.domain.thresholds import next_wake
from om_core.services.deps import ttl_seconds
from om_core.services.enqueue import decide_again
from om_core.telemetry import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.job import JobRef
    from om_core.services.deps import Services

log = get_logger("om.audit")
BATCH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """How many threads were looked at, and how many had work that nobody would have come for."""

    looked_at: int
    repaired: int


def audit(services: Services, *, stopped: Callable[[], bool] = lambda: False) -> AuditResult:
    """Look at every thread with unread messages and no job for them, and decide again; one transaction per thread.

    Args:
        services: the store, policies and dispatcher.
        stopped: asked between threads; true ends the audit early.
    """
    looked_at = repaired = 0
    after = ("", 0)
    while page := services.store.system.unattended(after, limit=BATCH):
        for tenant, thread_id in page:
            if stopped():
                return AuditResult(looked_at=looked_at, repaired=repaired)
            looked_at += 1
            repaired += repair(services, tenant, thread_id)
        after = page[-1]
    return AuditResult(looked_at=looked_at, repaired=repaired)


def repair(services: Services, tenant: str, thread_id: int) -> bool:
    """Insert the jobs that are due and set the time of the sweep's next look; whether anything was missing."""
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(thread_id)
        if thread is None or thread.pending_tokens == 0:
            return False
        now = tx.now()
        snapshot = tx.memories.snapshot(thread_id)
        jobs: tuple[JobRef, ...] = decide_again(tx, services, snapshot, now)
        policy = services.policies.of(snapshot.memory)
        ttl = ttl_seconds(policy.observation.activate_after_idle_s, thread.last_model)
        # Where everything is buffered and no idle time activates it, there is no time at which to look.
        sleeping = thread.idle_due_at is None and next_wake(thread, policy, ttl) is not None
        if sleeping:
            tx.threads.update(thread_id, idle_due_at=now)  # the sweep then works out the right time
    services.dispatcher.ring(jobs)
    if jobs or sleeping:
        kinds = [job.kind.value for job in jobs]
        log.warning("audit repaired a thread", tenant=tenant, thread=thread.external_id, jobs=kinds, no_wake=sleeping)
    return bool(jobs or sleeping)
