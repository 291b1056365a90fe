"""One supervised server: started, adopted, restarted with growing delays, paused, stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from om_core.embedded.state import ServiceName, ServiceStatus

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0
_STABLE_S = 5.0
_KILL_WAIT_S = 10.0
logger = logging.getLogger("om.embedded")


class Service(ABC):
    """State of one server, advanced by `tick` from the supervisor's loop."""

    name: ServiceName
    stop_signals: tuple[tuple[int, float], ...]  # signal, seconds to wait before the next one

    def __init__(self, log: Path) -> None:
        """Nothing is started or looked up before the first tick."""
        self.log = log
        self.paused = False
        self.answered = False
        self.starts = 0
        self.failed_starts = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._adopted: int | None = None
        self._delay = _FIRST_DELAY_S
        self._next_try = 0.0
        self._answered_at = 0.0

    @abstractmethod
    def find_pid(self) -> int | None:
        """Return the id of a live server on this data that an earlier supervisor left behind."""

    @abstractmethod
    def is_pid(self, pid: int) -> bool:
        """Tell whether the process is alive and is this server on this data."""

    @abstractmethod
    def launch(self) -> subprocess.Popen[bytes]:
        """Start the server process."""

    @abstractmethod
    def prepare(self) -> bool:
        """Answer to "is it up?", and do what the first contact needs; false while it does not answer."""

    def pid(self) -> int | None:
        """Return the id of the live server process; reaps a dead child, so no zombie is left to confuse anyone."""
        if self._child is not None:
            if self._child.poll() is None:
                return self._child.pid
            logger.warning("%s (pid %d) ended with %d", self.name, self._child.pid, self._child.returncode)
            self._child = None
        if self._adopted is not None and not self.is_pid(self._adopted):
            logger.warning("%s (pid %d, adopted) ended", self.name, self._adopted)
            self._adopted = None
        return self._adopted

    def tick(self) -> None:
        """Bring the server one step nearer to "answers"; never waits long."""
        if self.paused:
            return
        now = time.monotonic()
        if self.pid() is None:
            self.answered = False
            if now >= self._next_try:
                self._start(now)
        elif not self.answered and self.prepare():
            self.answered, self._answered_at, self.failed_starts = True, now, 0
            logger.info("%s answers", self.name)
        elif self.answered and now - self._answered_at > _STABLE_S:
            self._delay = _FIRST_DELAY_S

    def _start(self, now: float) -> None:
        self._next_try = now + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY_S)
        self._adopted = self.find_pid()
        if self._adopted is not None:
            logger.info("%s (pid %d) adopted", self.name, self._adopted)
            return
        self.failed_starts += 1
        self.starts += 1
        self._child = self.launch()
        logger.info("%s (pid %d) started", self.name, self._child.pid)

    def pause(self) -> None:
        """Stop the server and leave it stopped."""
        self.paused = True
        self.stop()

    def resume(self) -> None:
        """Let the next tick start the server again."""
        self.paused, self._next_try, self._delay = False, 0.0, _FIRST_DELAY_S

    def kill(self) -> None:
        """SIGKILL the server, as a crash would; the next tick starts it again."""
        pid = self.pid()
        if pid is not None:
            self._signal_and_wait(pid, signal.SIGKILL, _KILL_WAIT_S)
        self.answered, self._next_try = False, 0.0

    def stop(self) -> None:
        """Stop the server cleanly, with growing force, also one that was left behind and never adopted."""
        pid = self.pid() or self.find_pid()
        for number, seconds in self.stop_signals:
            if pid is None or self._signal_and_wait(pid, number, seconds):
                break
            logger.error("%s (pid %d) did not stop within %.0f s of signal %d", self.name, pid, seconds, number)
        self.answered = False

    def _signal_and_wait(self, pid: int, number: int, seconds: float) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while self._is_running(pid):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def _is_running(self, pid: int) -> bool:
        if self._child is not None and self._child.pid == pid:
            return self._child.poll() is None
        return self.is_pid(pid)

    def status(self) -> ServiceStatus:
        """Describe the server now."""
        self.tick()
        pid = self.pid()
        return ServiceStatus(pid, self.answered and pid is not None, self.paused, self.starts)
