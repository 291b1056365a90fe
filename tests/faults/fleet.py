"""Worker processes by the handful: started at once, killed, stopped, frozen; each with its log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.processes import ROOT, environment
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from om_core.config import Settings

T = TypeVar("T")
TOLD = "worker started"


class Starter:
    """The process that forks workers (see `starter`). One serves any number of stages, one after another."""

    def __init__(self) -> None:
        found = {name: value for name, value in os.environ.items() if not name.startswith("OM_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.starter"],
            env={**found, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._numbers = count(1)
        self._changed = threading.Condition()
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._ready = False
        self._gone = False
        threading.Thread(target=self._listen, name="starter", daemon=True).start()

    def start(self, log: Path, variables: dict[str, str]) -> int:
        """Fork a worker; its process id."""
        number = next(self._numbers)
        command = {"start": number, "log": str(log), "environment": variables}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._pids or self._gone, 60)
            assert not self._gone, "the starter of workers has ended; its stderr says why"
            return self._pids[number]

    def code(self, pid: int) -> int | None:
        """How a worker ended (negative: by that signal); None while it runs."""
        with self._changed:
            return self._codes.get(pid)

    def ends(self, pid: int, seconds: float) -> bool:
        """Whether a worker ends within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: pid in self._codes, seconds)

    def wait(self, pid: int, seconds: float) -> int:
        """Its exit code, once it has ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: pid in self._codes, seconds), f"worker {pid} still runs"
            return self._codes[pid]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._note(json.loads(line))
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def _note(self, event: dict[str, Any]) -> None:
        with self._changed:
            if "started" in event:
                self._pids[event["started"]] = event["pid"]
            elif "ended" in event:
                self._codes[event["ended"]] = event["code"]
            self._changed.notify_all()


@dataclass(eq=False)
class Worker:
    """One worker. `owner` is how it signs its leases."""

    pid: int
    log: Path
    starter: Starter
    frozen: bool = field(default=False)

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def owner(self) -> str:
        """As in `jobs.lease_owner`: host:pid:…"""
        return f":{self.pid}:"

    @property
    def alive(self) -> bool:
        return self.starter.code(self.pid) is None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        if self.alive:
            self.send(signal.SIGKILL)
        self.wait()

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)
        self.frozen = True

    def wake(self) -> None:
        self.frozen = False
        self.send(signal.SIGCONT)

    def wait(self, seconds: float = 40.0) -> int:
        """Its exit code, once it has ended."""
        return self.starter.wait(self.pid, seconds)

    def ends(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        return self.starter.ends(self.pid, seconds)

    def eventually(self, look: Callable[[], T], *, seconds: float = 45.0) -> T:
        """As `eventually`, and shows what the worker wrote where it never comes true."""
        what = lambda: f"worker {self.pid} (alive: {self.alive}) wrote\n{self.output[-3000:]}\n"  # noqa: E731
        return eventually(look, seconds=seconds, what=what)


class Fleet:
    """The workers of one stage, all with the same settings."""

    def __init__(self, starter: Starter, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.workers: list[Worker] = []
        self._starter = starter
        self._folder = folder
        self._numbers = count(1)

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive]

    def start(self, more: Mapping[str, str]) -> Worker:
        """One more, which has written its first line; `more` are variables of its environment."""
        log = self._folder / f"worker-{next(self._numbers)}.log"
        variables = environment(self.settings, **more)
        worker = Worker(self._starter.start(log, variables), log, self._starter)
        self.workers.append(worker)
        worker.eventually(lambda: TOLD in worker.output or not worker.alive)
        return worker

    def stop(self) -> None:
        """SIGKILL for all."""
        for worker in self.alive:
            worker.kill()
