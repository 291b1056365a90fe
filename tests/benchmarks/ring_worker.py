"""A worker process for measurements: `python -m tests.benchmarks.ring_worker noop|jobs WARM_UP COUNT REPORT`.

The worker is the product's (`workers.main.run_worker`): its settings, pool, events and logs. In mode `noop` its rings
do nothing; in mode `jobs` they do their jobs, with a model that answers at once. The first WARM_UP of them pay for what
a process does once; when COUNT more are done, it writes the seconds that these took to REPORT, and goes on until it is
told to stop.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import om_core.bootstrap
from om_core.config import load_settings
from om_core.llm.registry import ModelRegistry
from om_core.ports import ModelReply, ModelRequest
from tests.benchmarks.model import InstantModel
from workers.bootstrap import WorkerRuntime
from workers.main import run_worker

Run: TypeAlias = Callable[[WorkerRuntime, str, int], str | None]


class InstantRegistry(ModelRegistry):
    """The registry with every model answering at once."""

    def complete(
        self, request: ModelRequest, *, timeout_s: float, cancelled: threading.Event | None = None
    ) -> ModelReply:
        return InstantModel().complete(request, timeout_s=timeout_s, cancelled=cancelled)


class Tally:
    """Counts rings that did something, and reports when they are enough."""

    def __init__(self, warm_up: int, wanted: int, report: Path) -> None:
        self._warm_up = warm_up
        self._wanted = wanted
        self._report = report
        self._lock = threading.Lock()
        self._done = 0
        self._started = 0.0

    def around(self, run: Run) -> Run:
        def counted(runtime: WorkerRuntime, queue: str, job_id: int) -> str | None:
            outcome = run(runtime, queue, job_id)
            if outcome is not None:
                with self._lock:
                    self._count(time.monotonic())
            return outcome

        return counted

    def _count(self, now: float) -> None:
        self._done += 1
        if self._done == self._warm_up:
            self._started = now
        elif self._done == self._warm_up + self._wanted:
            self._write(now - self._started)

    def _write(self, seconds: float) -> None:
        draft = self._report.with_suffix(".tmp")
        draft.write_text(json.dumps({"seconds": seconds}))
        draft.rename(self._report)


def nothing(runtime: WorkerRuntime, queue: str, job_id: int) -> str | None:
    """What a no-op ring does."""
    return "ok"


def serve(mode: str, warm_up: int, wanted: int, report: Path) -> int:
    """Work until SIGTERM; the exit code."""
    run = nothing if mode == "noop" else WorkerRuntime.run
    WorkerRuntime.run = Tally(warm_up, wanted, report).around(run)  # type: ignore[method-assign, assignment]  # only in this process
    om_core.bootstrap.ModelRegistry = InstantRegistry  # type: ignore[attr-defined]  # only in this process
    return run_worker(load_settings())


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
