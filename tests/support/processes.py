"""Real worker processes, as an operator starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from om_core.config import Settings
from om_core.store.engine import PostgresStore
from tests.support.waiting import eventually

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
STOP_S = 40.0


def environment(settings: Settings, **more: str) -> dict[str, str]:
    """The variables that give a process these settings."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("OM_")}
    found["PYTHONPATH"] = str(ROOT)
    for name in ("database_url", "redis_url"):
        secret = getattr(settings, name)
        if secret is not None:
            found[f"OM_{name.upper()}"] = secret.reveal()
    for name in (
        "model",
        "model_api_base",
        "auth",
        "lease_s",
        "sweep_s",
        "worker_concurrency",
        "log_format",
        "pool_size",
    ):
        if (value := getattr(settings, name)) is not None:
            found[f"OM_{name.upper()}"] = str(value)
    for phase, options in settings.options.items():
        for option, value in options.items():
            found[f"OM_OPTIONS__{phase}__{option}".upper()] = str(value)
    return {"OPENAI_API_KEY": "none", **found, **more}


class WorkerProcess:
    """One `python -m workers`; its output is in `log`."""

    def __init__(self, settings: Settings, log: Path, queues: Sequence[str] = (), **more: str) -> None:
        assert settings.database_url is not None
        self.log = log
        self._database_url = settings.database_url.reveal()
        command = [sys.executable, "-m", "workers"]
        if queues:
            command += ["--queues", ",".join(queues)]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, env=environment(settings, **more), cwd=log.parent, stdout=output, stderr=output
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def eventually(self, look: Callable[[], T]) -> T:
        """Look until the answer is true; where it never is, show what the worker wrote."""
        return eventually(look, what=lambda: f"the worker (alive: {self.alive}) wrote\n{self.output[-4000:]}\n")

    def wait_seen(self, count: int = 1) -> None:
        """Wait until this many workers have written their heartbeat."""
        store = PostgresStore(self._database_url, pool_size=1)
        try:
            eventually(lambda: self._dead() or len(store.system.workers(max_age_s=60)) >= count, what="a heartbeat")
            assert self.alive, self.output
        finally:
            store.close()

    def wait_connected(self) -> None:
        """Wait until it consumes from the broker."""
        self.eventually(lambda: self._dead() or "ready." in self.output)
        assert self.alive, self.output

    def _dead(self) -> bool:
        return not self.alive

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, seconds: float = STOP_S) -> int:
        """SIGTERM, and its exit code."""
        if self.alive:
            self.send(signal.SIGTERM)
        return self.process.wait(timeout=seconds)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


@contextmanager
def worker_process(
    settings: Settings, folder: Path, queues: Sequence[str] = (), **more: str
) -> Iterator[WorkerProcess]:
    """A worker that has written its first heartbeat; killed at the end if it still runs."""
    worker = WorkerProcess(settings, folder / f"worker-{len(list(folder.glob('worker-*')))}.log", queues, **more)
    try:
        worker.wait_seen()
        yield worker
    finally:
        if worker.alive:
            worker.kill()
