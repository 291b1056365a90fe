"""One worker process: services, the runner of jobs, the sweep; and how they end.

It lives outside Celery's own start and stop, so that jobs get done while there is no broker at all.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import OperationalError

from om_core.bootstrap import build_services, find_dispatcher
from om_core.domain.errors import SetupError
from om_core.scrape import serve_metrics
from om_core.services.audit import audit
from om_core.services.prune import EVENTS_DAYS, JOBS_DAYS, prune
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import Sweeper
from om_core.services.webhook_loop import WebhookLoop
from om_core.telemetry import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.bootstrap import Located
    from om_core.config import Settings
    from om_core.services.deps import Services

log = get_logger("om.worker")

ABANDON_S: Final = 3.0
"""How long cancelled jobs may take to hand themselves back."""
EXIT_S: Final = 5.0
"""After the time for shutdown and this, the process is ended by force, say out of a connection that hangs."""


class WorkerRuntime:
    """Does the jobs of one process until it is told to stop.

    Args:
        services: with the dispatcher that rings the others.
        queues: what this worker works on.
        slots: jobs at a time.
        sweep_s: mean seconds between two sweeps.
        shutdown_s: how long running jobs may take to finish after SIGTERM.
        retention_days: how long finished jobs, and events, are kept.
        webhooks_private: whether webhooks may go to addresses of private networks.
        on_stop: called once the jobs have ended, before connections are closed.
    """

    def __init__(  # noqa: PLR0913 - what one process is told, named by its callers
        self,
        services: Services,
        *,
        name: str,
        queues: Sequence[str],
        slots: int,
        sweep_s: float,
        shutdown_s: float,
        retention_days: tuple[int, int] = (JOBS_DAYS, EVENTS_DAYS),
        webhooks_private: bool = False,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._retention_days = retention_days
        self._on_stop = on_stop
        self._services = services
        self._shutdown_s = shutdown_s
        self._slots = slots
        self._runner = JobRunner(services)
        self._sweeper = Sweeper(
            services, self._runner, name=name, queues=queues, slots=slots, period_s=sweep_s, version=_version()
        )
        self._webhooks = WebhookLoop(services, period_s=sweep_s, allow_private=webhooks_private)
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._stopped = threading.Event()
        self._started = False

    def start(self) -> None:
        """Begin to sweep, and be ready to run jobs."""
        self._started = True
        threading.Thread(target=self._end_when_told, name="om-drain", daemon=True).start()
        self._sweeper.start()
        self._webhooks.start()
        log.info("worker started", worker=self.name, owner=self._services.owner)

    def ring(self, queue: str, job_id: int) -> str | None:
        """What a task does: the rung job, or the best due one of its queue; the outcome of the first.

        Celery, once every slot was taken, looks for rings again only up to a second later. So while all others are
        busy a slot that is free goes on with what waits in its queue; the rings for that find nothing to do. It also
        goes on after a job that took its tenant's last slot: rings for others of that tenant were in vain meanwhile.
        """
        first = outcome = self.run(queue, job_id)
        while outcome is not None and self._busy() and not self._stopping.is_set():
            outcome = self.run(queue, None)
        return first

    def _busy(self) -> bool:
        return self._runner.capped or self._runner.running >= self._slots - 1

    def run(self, queue: str, job_id: int | None) -> str | None:
        """One job: the rung one if it is due, or the best due one of the queue."""
        return self._runner.run(queue, job_id)

    def audit(self) -> str:
        """Derive again what should be due; what came of it, for Flower. Ends early when the worker stops."""
        result = audit(self._services, stopped=self._stopping.is_set)
        log.info("audit ended", looked_at=result.looked_at, repaired=result.repaired, broken=result.violations)
        return f"{result.repaired} of {result.looked_at} threads repaired"

    def prune(self) -> str:
        """Delete finished jobs and events past their time; how many, for Flower. Ends early when the worker stops."""
        jobs_days, events_days = self._retention_days
        result = prune(self._services, jobs_days=jobs_days, events_days=events_days, stopped=self._stopping.is_set)
        log.info("prune ended", jobs=result.jobs, events=result.events)
        return f"{result.jobs} jobs and {result.events} events deleted"

    def begin_stop(self, *, hurry: bool = False) -> None:
        """Claim nothing more; end when the running jobs have (`hurry`: cancel them). Returns at once, signal-safe."""
        if hurry:
            self._hurry.set()
        self._stopping.set()

    def stop(self) -> None:
        """As `begin_stop`, and wait for the end."""
        self.begin_stop()
        if self._started:
            self._stopped.wait(self._shutdown_s + EXIT_S)

    def _end_when_told(self) -> None:
        self._stopping.wait()
        deadline = time.monotonic() + self._shutdown_s + EXIT_S
        try:
            self._end()
        except Exception as error:  # the process has to end all the same; leases expire
            log.warning("shutdown failed", error=str(error)[:300])
        self._stopped.set()
        threading.Event().wait(max(0.0, deadline - time.monotonic()))
        log.warning("exit forced", worker=self.name)
        os._exit(0)

    def _end(self) -> None:
        """Stop claiming, wait for running jobs, cancel the rest (their jobs go back to the queue), let go."""
        self._runner.drain(0.0)
        log.info("worker stopping", worker=self.name, running=self._runner.running)
        self._sweeper.stop()
        self._webhooks.stop()
        if not self._finished():
            log.warning("jobs handed back", worker=self.name, running=self._runner.running)
            self._runner.abandon()
            self._runner.drain(ABANDON_S)
        self._runner.close()
        if self._on_stop is not None:
            self._on_stop()
        self._services.dispatcher.close()
        self._services.store.close()
        log.info("worker stopped", worker=self.name, running=self._runner.running)

    def _finished(self) -> bool:
        """Wait for the running jobs, unless there is no time; whether all have ended."""
        deadline = time.monotonic() + self._shutdown_s
        while not self._runner.drain(0.1):
            if self._hurry.is_set() or time.monotonic() >= deadline:
                return False
        return True


def build_runtime(settings: Settings, located: Located, *, queues: Sequence[str], slots: int) -> WorkerRuntime:
    """A runtime over these servers.

    Raises:
        SetupError: the database does not answer or is not migrated, the key of a model is missing, or the port for
            metrics is taken.
    """
    dispatcher = find_dispatcher(located.redis_url)
    try:
        services = build_services(settings, located, dispatcher=dispatcher, model_required=True)
    except OperationalError as error:
        msg = f"the database does not answer: {str(error.orig).strip()}. Check OM_DATABASE_URL"
        raise SetupError(msg) from error
    name = f"{socket.gethostname()}:{os.getpid()}"
    services = replace(services, owner=f"{name}:{services.owner}")
    close_metrics = None
    if settings.metrics_port is not None:
        close_metrics = serve_metrics(services.store.system, host=settings.metrics_host, port=settings.metrics_port)
    return WorkerRuntime(
        services,
        name=services.owner,
        queues=queues,
        slots=slots,
        sweep_s=settings.sweep_s,
        shutdown_s=settings.shutdown_s,
        retention_days=(settings.retention_days, settings.event_retention_days),
        webhooks_private=settings.webhooks_private,
        on_stop=close_metrics,
    )


def _version() -> str:
    try:
        return version("om-pipeline")
    except PackageNotFoundError:
        return ""
