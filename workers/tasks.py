"""The tasks: what a ring makes a worker do. The arguments are for people to read in Flower; the job is in Postgres."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from om_core.domain.job import JobKind
from workers.schedule import AUDIT, PRUNE

if TYPE_CHECKING:
    from celery import Celery

RunJob: TypeAlias = Callable[[str, int], str | None]
"""(queue, job id) -> a word for the outcome, or None when there was nothing to do."""

TASK_OF: Final = {kind: f"om.{kind.value}" for kind in JobKind}


def register(app: Celery, run: RunJob, audit: Callable[[], str], prune: Callable[[], str]) -> None:
    """Give the application one task per kind of job, all done by `run`, and those that beat rings."""
    for name in TASK_OF.values():
        _register(app, name, run)

    @app.task(name=AUDIT, ignore_result=True, shared=False)
    def ring() -> str:
        """Look for work that nobody would come for."""
        return audit()

    @app.task(name=PRUNE, ignore_result=True, shared=False)
    def clean() -> str:
        """Delete what is past its time."""
        return prune()


def _register(app: Celery, name: str, run: RunJob) -> None:
    @app.task(name=name, bind=True, ignore_result=True, shared=False)
    def ring(self: Any, *, job: int, kind: str, thread: str, attempt: int, tenant: str) -> str | None:
        """Do the job that is named, or the best one that waits in its queue; the outcome is shown in Flower."""
        return run(self.request.delivery_info["routing_key"], job)
