"""Retention: finished jobs and old events are deleted in small batches, one tenant and one transaction at a time.

Live jobs stay, and so do discarded ones: somebody may redrive them. What was spent stays in `usage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from om_core.telemetry import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.ports import Store
    from om_core.services.deps import Services

log = get_logger("om.prune")
BATCH: Final = 500
TENANTS: Final = 200
JOBS_DAYS: Final = 30
EVENTS_DAYS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """How many rows were deleted."""

    jobs: int = 0
    events: int = 0


def prune(
    services: Services,
    *,
    jobs_days: int = JOBS_DAYS,
    events_days: int = EVENTS_DAYS,
    batch: int = BATCH,
    stopped: Callable[[], bool] = lambda: False,
) -> PruneResult:
    """Delete jobs that finished, and events that were written, longer ago than this.

    Args:
        services: the store.
        jobs_days: how long a completed, cancelled or superseded job is kept.
        events_days: how long an event is kept.
        batch: rows looked at in one transaction.
        stopped: asked between transactions; true ends it early, and the next run goes on.
    """
    jobs = events = 0
    after = ""
    while page := services.store.system.tenants(after, limit=TENANTS):
        for tenant in page:
            jobs += _all(services.store, tenant, "jobs", jobs_days, batch, stopped)
            events += _all(services.store, tenant, "events", events_days, batch, stopped)
            if stopped():
                return PruneResult(jobs=jobs, events=events)
        after = page[-1]
    return PruneResult(jobs=jobs, events=events)


def _all(store: Store, tenant: str, what: str, days: int, batch: int, stopped: Callable[[], bool]) -> int:
    """Batch by batch, until one has nothing left to delete."""
    total = 0
    while not stopped():
        with store.transaction(tenant) as tx:
            deleted = tx.prune_jobs(days, limit=batch) if what == "jobs" else tx.prune_events(days, limit=batch)
        total += deleted
        if deleted == 0:
            break
    return total
