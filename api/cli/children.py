"""Processes that a command starts and stops: each in a session of its own, its output in a log file.

Ctrl-C in the terminal then reaches the command alone, which ends its children one by one, by the ids it started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GRACE_S: Final = 30.0
"""How long children may take after SIGTERM; a worker finishes its jobs in that time. Then SIGKILL."""
POLL_S: Final = 0.1
TAIL_LINES: Final = 15
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started here."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def why(self) -> str:
        """How it ended, and the end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        code = self.process.returncode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        return "\n".join([f"{self.name} {how}; the end of {self.log}:", *(f"  {line}" for line in lines)])


class Children:
    """The children of one command. Leaving the `with` block stops them all."""

    def __init__(self, logs: Path, *, grace_s: float = GRACE_S) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._grace_s = grace_s
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start `om ARGUMENTS…` with these variables over the ones of this process ("" takes one away)."""
        given = {**_import_path(), **(environment or {})}
        variables = {key: value for key, value in {**os.environ, **given}.items() if value or key not in given}
        log = self._logs / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "api.cli", *arguments],  # -P: a folder `api` of the user is not ours
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_follow_parent(),  # noqa: PLW1509 - two system calls, before any thread was started
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def first_dead(self) -> Child | None:
        """A child that has ended."""
        return next((child for child in self._children if not child.is_alive), None)

    def wait(self, stop: threading.Event) -> Child | None:
        """Wait until `stop` is set (None), or until a child ends (that child)."""
        while not stop.wait(POLL_S):
            if dead := self.first_dead():
                return dead
        return None

    def stop(self, hurry: threading.Event | None = None) -> None:
        """SIGTERM to all; SIGKILL to those that still run after the grace period, or at once when `hurry` is set."""
        for child in reversed(self._children):
            if child.is_alive:
                child.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._grace_s
        pause = hurry or threading.Event()
        while any(child.is_alive for child in self._children):
            if pause.wait(0.02) or time.monotonic() >= deadline:
                break
        for child in self._children:
            if child.is_alive:
                child.process.kill()
            child.process.wait()
        self._children.clear()


def _import_path() -> dict[str, str]:
    """Let the child import this very package; an installed one is found without help."""
    root = Path(__file__).resolve().parents[2]
    if root.name in {"site-packages", "dist-packages"}:
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(root)]))}


def _follow_parent() -> Callable[[], None] | None:
    """On Linux: have the kernel send SIGTERM to the child when this process dies without a chance to do so itself."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def follow() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died in between
            os.kill(os.getpid(), signal.SIGTERM)

    return follow
