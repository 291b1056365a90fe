"""Ties a runtime to Celery's signals, so that `om worker` and `celery -A workers.app worker` do the same."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from celery import signals

from om_core.telemetry import configure_logging, get_logger
from workers.bootstrap import build_runtime
from workers.shutdown import COLD, WARM
from workers.tasks import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Celery

    from om_core.bootstrap import Located
    from om_core.config import Settings
    from workers.bootstrap import WorkerRuntime

log = get_logger("om.worker")

SETUP_EXIT: Final = 2
QUIET: Final = ("celery.worker.strategy", "celery.app.trace")
"""Two lines per ring; the end of each job is logged with its outcome anyway."""


class _Installed:
    """The handlers of one application. A runtime that is not given is made once Celery knows its queues and slots."""

    def __init__(self, settings: Settings, located: Located, runtime: WorkerRuntime | None) -> None:
        self._settings = settings
        self._located = located
        self._runtime = runtime

    def run(self, queue: str, job_id: int) -> str | None:
        """For the tasks."""
        return None if self._runtime is None else self._runtime.ring(queue, job_id)

    def audit(self) -> str:
        """For beat's task."""
        return "not running" if self._runtime is None else self._runtime.audit()

    def prune(self) -> str:
        """For beat's task."""
        return "not running" if self._runtime is None else self._runtime.prune()

    def configure_logs(self, **_: Any) -> None:
        """`setup_logging`: connecting to it keeps Celery from installing handlers of its own."""
        configure_logging(self._settings.log_level, self._settings.log_format)
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)

    def start(self, sender: Any, **_: Any) -> None:
        """`worker_init`: before the first attempt to reach the broker, which may be away for long."""
        self.configure_logs()
        if self._runtime is None:
            self._runtime = self._build(sorted(sender.app.amqp.queues.consume_from), sender.concurrency)
        self._runtime.start()

    def _build(self, queues: Sequence[str], slots: int) -> WorkerRuntime:
        try:
            return build_runtime(self._settings, self._located, queues=queues, slots=slots)
        except Exception as error:  # Celery would log it and go on, as a worker that takes rings and does nothing
            log.error("worker cannot start", error=str(error))  # noqa: TRY400 - the text says what to do
            raise SystemExit(SETUP_EXIT) from error

    def begin_stop(self, sender: Any, how: str = WARM, **_: Any) -> None:
        """`worker_shutting_down`: sent by the handler of a signal."""
        if self._runtime is not None:
            self._runtime.begin_stop(hurry=how == COLD)

    def stop(self, sender: Any, **_: Any) -> None:
        """`worker_shutdown`: Celery is done."""
        if self._runtime is not None:
            self._runtime.stop()


def install(app: Celery, settings: Settings, located: Located, runtime: WorkerRuntime | None = None) -> None:
    """Make the application a worker's: tasks, and a runtime that starts and stops with Celery's worker."""
    installed = _Installed(settings, located, runtime)
    register(app, installed.run, installed.audit, installed.prune)
    signals.setup_logging.connect(installed.configure_logs, weak=False)
    signals.worker_init.connect(installed.start, weak=False)
    signals.worker_shutting_down.connect(installed.begin_stop, weak=False)
    signals.worker_shutdown.connect(installed.stop, weak=False)
