"""The audit: what should be due is derived again from the threads themselves, in case a decision was ever missed.

Steps, commits and the sweep decide in time (DESIGN 4); each repair made here is a fault of theirs, and is logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from om_core.domain.thresholds import next_wake
from om_core.services.coverage import examine
from om_core.services.deps import ttl_seconds
from om_core.services.enqueue import decide_again
from om_core.telemetry import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.invariants import Marks
    from om_core.domain.job import JobRef
    from om_core.services.deps import Services

log = get_logger("om.audit")
BATCH = 200
CHECK_ROWS = 5_000
"""Threads with more messages are not examined here: that reads all of a thread."""
CHECK_RECENT_S = 1_800.0
"""Threads at rest for longer were examined when they came to rest: the audit comes more often than that."""
MOST_MARKS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """How many threads were looked at, how many had work that nobody would have come for, and how many invariants do
    not hold (DESIGN 2): these are logged, one line each, and are for a person to look at.
    """

    looked_at: int
    repaired: int
    violations: int = 0


def audit(services: Services, *, stopped: Callable[[], bool] = lambda: False) -> AuditResult:
    """Look at every thread with unread messages and no job for them, and decide again; one transaction per thread.

    Args:
        services: the store, policies and dispatcher.
        stopped: asked between threads; true ends the audit early.
    """
    looked_at = repaired = broken = 0
    after = ("", 0)
    while page := services.store.system.unattended(after, limit=BATCH):
        for tenant, thread_id in page:
            if stopped():
                return AuditResult(looked_at=looked_at, repaired=repaired, violations=broken)
            looked_at += 1
            repaired += repair(services, tenant, thread_id)
            broken += report(services, tenant, thread_id)
        after = page[-1]
    return AuditResult(looked_at=looked_at, repaired=repaired, violations=broken)


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


_marks: dict[tuple[str, str, int], Marks] = {}
"""What this process has seen of a thread: cursors only rise. Bounded; forgetting only makes the check weaker."""


def report(services: Services, tenant: str, thread_id: int) -> int:
    """Examine a thread that was active lately, and log every invariant that does not hold; how many."""
    with services.store.reading(tenant) as tx:
        thread = tx.threads.get_by_id(thread_id)
        now = tx.now()
    if thread is None or thread.head_seq > CHECK_ROWS or thread.last_activity_at is None:
        return 0
    if (now - thread.last_activity_at).total_seconds() > CHECK_RECENT_S:
        return 0
    key = (services.owner, tenant, thread_id)
    found, marks = examine(services, tenant, thread_id, previous=_marks.pop(key, None))
    if len(_marks) >= MOST_MARKS:
        _marks.clear()
    _marks[key] = marks
    for one in found:
        log.error(
            "invariant broken", tenant=tenant, thread=thread.external_id, rule=one.invariant.value, detail=one.detail
        )
    return len(found)
