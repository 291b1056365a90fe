"""A worker inside this process: rings run jobs in threads. For `Memory.open()` without servers of its own."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from om_core.domain.job import Queue
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import Sweeper
from om_core.telemetry import described, get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from om_core.domain.job import JobRef
    from om_core.services.deps import Services

log = get_logger("om.local")
SLOTS = 8
DRAIN_S = 10.0


class LocalDispatcher:
    """Implements `ports.JobDispatcher` by a thread pool of this process."""

    healthy = True

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=SLOTS, thread_name_prefix="om-local-job")
        self._runner: JobRunner | None = None

    def attach(self, runner: JobRunner) -> None:
        """Who does the jobs; rings before this are dropped (the sweep rings again)."""
        self._runner = runner

    def ring(self, jobs: Iterable[JobRef]) -> None:
        for job in jobs:
            if self._runner is not None:
                try:
                    self._pool.submit(self._run, self._runner, job)
                except RuntimeError:
                    return  # shutting down: the job stays due

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def _run(runner: JobRunner, job: JobRef) -> None:
        try:
            job_id: int | None = job.id
            while runner.run(job.queue.value, job_id) is not None and runner.capped:
                job_id = None  # rings of the same tenant were in vain while it had no slot
        except Exception as error:  # the claim failed: the sweep rings again
            log.warning("claim failed", **described(error))


class LocalWorker:
    """Runner and sweep of this process, over services whose dispatcher is a `LocalDispatcher`."""

    def __init__(self, services: Services, dispatcher: LocalDispatcher, *, period_s: float) -> None:
        self._dispatcher = dispatcher
        self._runner = JobRunner(services)
        dispatcher.attach(self._runner)
        self._sweeper = Sweeper(
            services,
            self._runner,
            name=f"local@{socket.gethostname()}:{os.getpid()}:{services.owner}",
            queues=[queue.value for queue in Queue],
            slots=SLOTS,
            period_s=period_s,
        )

    def start(self) -> None:
        """Begin: the first sweep says that a worker is there."""
        self._sweeper.sweep_once()
        self._sweeper.start()

    def stop(self) -> None:
        """Wait a little for running jobs, then let go; what is left stays due."""
        self._sweeper.stop()
        if not self._runner.drain(DRAIN_S):
            self._runner.abandon()
            self._runner.drain(1.0)
        self._dispatcher.close()
        self._runner.close()
