"""Beat's schedule. Everything timely is in Postgres and in the sweeps; what stands here may be late or missing."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.job import Queue

if TYPE_CHECKING:
    from celery import Celery

AUDIT: Final = "om.audit"
AUDIT_S: Final = 600.0


def beat_schedule() -> dict[str, dict[str, Any]]:
    """What beat rings, and how often. A ring that waited for a whole period is dropped: the next one is there."""
    options = {"queue": Queue.MAINTENANCE.value, "expires": AUDIT_S, "ignore_result": True}
    return {"audit": {"task": AUDIT, "schedule": AUDIT_S, "options": options}}


def serve(app: Celery) -> None:
    """Ring by the schedule until SIGTERM or Ctrl-C. Keeps no file: a second beat, or a restart, does no harm."""
    from celery.beat import Scheduler, Service

    def stop(*_: Any) -> None:
        raise SystemExit(0)

    app.conf.beat_schedule = beat_schedule()
    signal.signal(signal.SIGTERM, stop)
    Service(app, scheduler_cls=Scheduler).start()
