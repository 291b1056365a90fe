"""The clients' side: start or join the servers of a folder, and hold them as long as wanted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from om_core.embedded import control
from om_core.embedded.binaries import check_platform, find_binaries
from om_core.embedded.errors import EmbeddedUnavailable
from om_core.embedded.layout import POSTGRES_PORT, Layout, tail
from om_core.embedded.locks import exclusive, is_held_exclusively, open_lock, try_lock, wait_lock
from om_core.embedded.pings import DATABASE, REDIS_SOCKET, postgres_answers, redis_answers
from om_core.embedded.state import SERVICE_NAMES, ServiceName, State, Status, read_state

if TYPE_CHECKING:
    from types import TracebackType

_POLL_S = 0.02
_ATTACH_TIMEOUT_S = 60.0
_COMMAND_TIMEOUT_S = 90.0
_SPAWN_TIMEOUT_S = 60.0
_MOST_SPAWNS = 3
_ANSWERS = {"postgres": postgres_answers, "redis": redis_answers}


class _SupervisorGoneError(Exception):
    """The supervisor ended while someone waited for it."""


class EmbeddedServers:
    """A hold on the running servers of one folder; they run at least until it is closed, or its process has ended.

    Made by `start` and `attach`. A forked child of the process shares the hold, a program it executes does not.
    """

    def __init__(self, layout: Layout, sockets: Path, hold: int) -> None:
        """Take over the descriptor `hold`, which carries the shared lock."""
        self._layout = layout
        self._sockets = sockets
        self._hold: int | None = hold

    @property
    def directory(self) -> Path:
        """The data folder, absolute."""
        return self._layout.root

    @property
    def database_url(self) -> str:
        """SQLAlchemy address of the database."""
        return f"postgresql+psycopg2://postgres@/{DATABASE}?host={self._sockets}&port={POSTGRES_PORT}"

    @property
    def redis_url(self) -> str:
        """Celery's (kombu's) address of Redis."""
        return f"redis+socket://{self._sockets / REDIS_SOCKET}"

    @property
    def redis_py_url(self) -> str:
        """redis-py's address of Redis."""
        return f"unix://{self._sockets / REDIS_SOCKET}"

    def status(self) -> Status:
        """Ask the supervisor about itself and its servers.

        Raises:
            OSError: the supervisor does not answer (it was killed); `start` brings up a new one.
        """
        return control.request(self._sockets, _COMMAND_TIMEOUT_S, command="status")

    def pause(self, service: ServiceName) -> Status:
        """Stop one server cleanly and leave it stopped, for every client, until `resume`; returns when it is down.

        Raises:
            OSError: the supervisor does not answer.
        """
        return control.request(self._sockets, _COMMAND_TIMEOUT_S, command="pause", service=service)

    def resume(self, service: ServiceName, timeout_s: float = 60) -> Status:
        """Start a paused server; returns when it answers.

        Raises:
            OSError: the supervisor does not answer.
            TimeoutError: the server does not answer in time.
            EmbeddedUnavailable: the supervisor gave up.
        """
        control.request(self._sockets, _COMMAND_TIMEOUT_S, command="resume", service=service)
        self.wait_ready(timeout_s)
        return self.status()

    def kill(self, service: ServiceName) -> Status:
        """SIGKILL one server; returns when it is dead. The supervisor starts it again at once: see `wait_ready`.

        Raises:
            OSError: the supervisor does not answer.
        """
        return control.request(self._sockets, _COMMAND_TIMEOUT_S, command="kill", service=service)

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Wait until every server that is not paused answers.

        Raises:
            TimeoutError: not within the time; the message ends with the servers' logs.
            EmbeddedUnavailable: the supervisor gave up, or was killed.
        """
        try:
            _wait_ready(self._layout, time.monotonic() + timeout_s)
        except _SupervisorGoneError as error:
            cause = f"the supervisor of {self.directory} has ended; start the servers again."
            raise EmbeddedUnavailable(cause) from error

    def close(self) -> None:
        """Let go; the servers stop soon after the last client did. May be called twice."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        os.close(hold)  # not an unlock: a forked child that shares the descriptor keeps its hold
        if not is_held_exclusively(self._layout.supervisor_lock):
            self._replace_supervisor()

    def _replace_supervisor(self) -> None:
        """After a kill of the supervisor nobody would stop its servers; a new one adopts them, or ends them."""
        if not any(answers(self._sockets) for answers in _ANSWERS.values()):
            return
        with exclusive(self._layout.start_lock, time.monotonic()) as mine, contextlib.suppress(EmbeddedUnavailable):
            if mine and not is_held_exclusively(self._layout.supervisor_lock):
                _spawn(self._layout)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def start(directory: Path | None = None, timeout_s: float = 60) -> EmbeddedServers:
    """Start the servers of a folder, or join them when they run; the folder defaults to `.om` below the current one.

    Raises:
        EmbeddedUnavailable: they cannot run here; the message says why and what to set instead.
        TimeoutError: they do not answer in time, as after a crash with much to recover; try again with more time.
    """
    check_platform()
    layout = Layout.of(directory)
    layout.create()
    deadline = time.monotonic() + timeout_s
    with exclusive(layout.start_lock, deadline) as mine:
        hold = open_lock(layout.clients_lock)
        try:
            # The lock is exclusive only while a supervisor without clients shuts down.
            sockets = _start_or_join(layout, deadline) if mine and wait_lock(hold, "shared", deadline) else None
        except BaseException:
            os.close(hold)
            raise
    if sockets is None:
        os.close(hold)
        raise _timeout(layout, "another process is starting or stopping them")
    return EmbeddedServers(layout, sockets, hold)


def attach(directory: Path | None = None) -> EmbeddedServers | None:
    """Join the running servers of a folder; None when none run there, or they are just stopping. Starts nothing.

    Raises:
        EmbeddedUnavailable: the folder belongs to another user, or the servers were just started in vain.
        TimeoutError: servers are being started there, but do not answer within a minute.
    """
    layout = Layout.of(directory)
    try:
        hold = open_lock(layout.clients_lock, create=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        sockets = _running_sockets(layout) if try_lock(hold, "shared") else None
    except BaseException:
        os.close(hold)
        raise
    if sockets is None:
        os.close(hold)
        return None
    return EmbeddedServers(layout, sockets, hold)


def wait_stopped(directory: Path | None = None, timeout_s: float = 60) -> bool:
    """Wait until no supervisor runs on the folder; false when one still does after that time."""
    layout = Layout.of(directory)
    deadline = time.monotonic() + timeout_s
    while is_held_exclusively(layout.supervisor_lock):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _running_sockets(layout: Layout) -> Path | None:
    if is_held_exclusively(layout.supervisor_lock):
        with contextlib.suppress(_SupervisorGoneError):
            return _wait_ready(layout, time.monotonic() + _ATTACH_TIMEOUT_S)
    sockets = layout.recorded_sockets()  # a killed supervisor leaves its servers running
    running = sockets is not None and all(answers(sockets) for answers in _ANSWERS.values())
    return sockets if running else None


def _start_or_join(layout: Layout, deadline: float) -> Path:
    for _ in range(_MOST_SPAWNS):
        if not is_held_exclusively(layout.supervisor_lock):
            _spawn(layout)
        with contextlib.suppress(_SupervisorGoneError):
            return _wait_ready(layout, deadline)
    cause = f"the supervisor ends without a word; the end of {layout.supervisor_log}:\n{tail(layout.supervisor_log)}"
    raise EmbeddedUnavailable(cause)


def _wait_ready(layout: Layout, deadline: float) -> Path:
    """Return the socket folder once every server that is not paused answers."""
    while True:
        alive = is_held_exclusively(layout.supervisor_lock)
        state = read_state(layout)
        if state is not None and state.phase == "failed":
            raise EmbeddedUnavailable(state.error)
        if not alive:
            raise _SupervisorGoneError
        if state is not None and state.phase == "ready" and _all_answer(state):
            return Path(state.sockets)
        if time.monotonic() >= deadline:
            raise _timeout(layout, f"phase: {state.phase if state else 'unknown'}")
        time.sleep(_POLL_S)


def _all_answer(state: State) -> bool:
    return all(_ANSWERS[name](Path(state.sockets)) for name in SERVICE_NAMES if name not in state.paused)


def _timeout(layout: Layout, reason: str) -> TimeoutError:
    logs = "\n".join(f"--- {path.name}\n{tail(path, 800)}" for path in sorted(layout.log.glob("*.log")))
    return TimeoutError(f"The embedded servers in {layout.root} do not answer in time ({reason}).\n{logs}")


def _spawn(layout: Layout) -> None:
    """Start a supervisor; the caller holds the start lock, so an old state can be removed before a new one appears."""
    find_binaries()
    layout.state_file.unlink(missing_ok=True)
    layout.rotate_logs()
    command = [sys.executable, "-P", "-m", "om_core.embedded.supervisor", str(layout.root)]
    with layout.supervisor_log.open("ab") as log:
        try:
            done = subprocess.run(
                command,
                check=False,
                cwd=layout.root,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                timeout=_SPAWN_TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            cause = f"the supervisor cannot be started: {error}"
            raise EmbeddedUnavailable(cause) from error
    if done.returncode:
        cause = f"the supervisor cannot be started; the end of {layout.supervisor_log}:\n{tail(layout.supervisor_log)}"
        raise EmbeddedUnavailable(cause)


def _environment() -> dict[str, str]:
    """Let the supervisor import this very package, wherever it runs; an installed package is found without help."""
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]  # noqa: PTH100
    root = Path(__file__).resolve().parents[2]
    if root.name not in {"site-packages", "dist-packages"}:
        paths.append(str(root))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)} if paths else dict(os.environ)
