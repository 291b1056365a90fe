"""Beat's schedule. Everything timely is in Postgres and in the sweeps; what stands here may be late or missing."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.job import Queue

if TYPE_CHECKING:
    from celery import Celery

AUDIT: Final = "om.audit"
AUDIT_S: Final = 600.0
PRUNE: Final = "om.prune"
PRUNE_S: Final = 3600.0


def beat_schedule() -> dict[str, dict[str, Any]]:
    """What beat rings, and how often. A ring that waited for a whole period is dropped: the next one is there."""
    tasks = {"audit": (AUDIT, AUDIT_S), "prune": (PRUNE, PRUNE_S)}
    options = {"queue": Queue.MAINTENANCE.value, "ignore_result": True}
    return {
        name: {"task": task, "schedule": period_s, "options": {**options, "expires": period_s}}
        for name, (task, period_s) in tasks.items()
    }


def serve(app: Celery) -> None:
    """Ring by the schedule until SIGTERM or Ctrl-C. Keeps no file: a second beat, or a restart, does no harm."""
    from celery.beat import Scheduler, Service

    def stop(*_: Any) -> None:
        raise SystemExit(0)

    app.conf.beat_schedule = beat_schedule()
    signal.signal(signal.SIGTERM, stop)
    Service(app, scheduler_cls=Scheduler).start()
