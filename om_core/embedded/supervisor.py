"""The process that owns both servers: `python -m om_core.embedded.supervisor DIRECTORY`.

It detaches, starts (or adopts) the servers, restarts them when they crash, and stops them when no client is left.

How the stop stays free of races: every client holds a shared lock on `clients.lock`. The supervisor keeps trying to
take that lock exclusively. Once it has it, it keeps it until it has ended, so a client that arrives at that instant
either came first (and the try fails: the servers stay) or waits until they are down (and starts a new supervisor).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from om_core.embedded.binaries import find_binaries
from om_core.embedded.control import ControlServer
from om_core.embedded.errors import EmbeddedUnavailable
from om_core.embedded.layout import Layout, tail
from om_core.embedded.locks import open_lock, try_lock, wait_lock
from om_core.embedded.postgres_server import PostgresServer
from om_core.embedded.redis_server import RedisServer
from om_core.embedded.run_as import choose_run_as, give_to
from om_core.embedded.state import Phase, State, Status

if TYPE_CHECKING:
    from om_core.embedded.service import Service

ALREADY_RUNNING = 3
_LOCK_WAIT_S = 5.0
_BUSY_TICK_S = 0.02
_QUIET_TICK_S = 0.2
_MOST_FAILED_STARTS = 6  # about 3 s, with the growing delays
logger = logging.getLogger("om.embedded")


class Supervisor:
    """Both servers of one folder. The caller holds the supervisor's lock."""

    def __init__(self, layout: Layout, lock: int) -> None:
        """Choose how to run and make the folders.

        Raises:
            EmbeddedUnavailable: the servers cannot run here.
        """
        self._layout = layout
        self._lock = lock
        self._clients = open_lock(layout.clients_lock)
        binaries = find_binaries()
        run_as = choose_run_as(binaries, layout.root)
        if layout.postgres.exists():
            give_to(run_as, layout.postgres)  # before anything is written into the folder of another user
        self._sockets = layout.create_sockets(frozenset({os.geteuid(), run_as.uid}))
        if run_as.kind == "account":
            layout.root.chmod(layout.root.stat().st_mode | 0o111)  # only our own folder, and only to pass through
            os.chown(self._sockets, run_as.uid, run_as.gid)
        self._postgres = PostgresServer(layout, self._sockets, binaries, run_as)
        self._redis = RedisServer(layout, self._sockets, binaries)
        self._services: tuple[Service, ...] = (self._postgres, self._redis)
        self._control = ControlServer(self._sockets)
        self._ready = False
        self._asked_to_stop = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "_asked_to_stop", True))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self) -> None:
        """Supervise until no client is left, a signal asks to stop, or the folder is gone; then stop both servers.

        Raises:
            EmbeddedUnavailable: a server does not come up at all.
        """
        self._publish("starting")
        try:
            while not self._should_stop():
                for service in self._services:
                    service.tick()
                self._check_start()
                quiet = self._ready and all(service.answered or service.paused for service in self._services)
                self._control.serve(_QUIET_TICK_S if quiet else _BUSY_TICK_S, self._handle)
        finally:
            self._stop()

    def _should_stop(self) -> bool:
        return self._asked_to_stop or not self._owns_folder() or try_lock(self._clients, "exclusive")

    def _owns_folder(self) -> bool:
        """Tell a folder that was deleted, or deleted and made anew: then the lock in it is not ours any more."""
        try:
            return os.path.samestat(os.fstat(self._lock), self._layout.supervisor_lock.stat())
        except OSError:
            return False

    def _check_start(self) -> None:
        if self._ready:
            return
        for service in self._services:
            if service.failed_starts >= _MOST_FAILED_STARTS and not service.answered:
                cause = f"{service.name} does not start; the end of {service.log}:\n{tail(service.log)}"
                raise EmbeddedUnavailable(cause)
        if all(service.answered or service.paused for service in self._services):
            self._ready = True
            self._publish("ready")
            logger.info("ready")

    def _publish(self, phase: Phase) -> None:
        paused = tuple(service.name for service in self._services if service.paused)
        State(phase, sockets=str(self._sockets), paused=paused).write(self._layout)

    def _handle(self, command: dict[str, Any]) -> Status:
        if command["command"] != "status":
            service = {found.name: found for found in self._services}[command["service"]]
            {"pause": service.pause, "resume": service.resume, "kill": service.kill}[command["command"]]()
            logger.info("%s %s", command["command"], service.name)
            self._publish("ready" if self._ready else "starting")
        return Status(os.getpid(), self._postgres.status(), self._redis.status())

    def _stop(self) -> None:
        logger.info("stopping")
        owns = self._owns_folder()
        if owns and sys.exc_info()[0] is None:
            self._publish("stopping")
        for service in self._services:
            service.stop()
        self._control.close()
        if owns:
            self._control.path.unlink(missing_ok=True)
            self._layout.remove_sockets(self._sockets)
        logger.info("stopped")


def main(arguments: list[str]) -> int:
    """Take the supervisor's lock, detach, supervise. Returns 0 once the detached process holds the lock."""
    layout = Layout(Path(arguments[0]).resolve())
    os.umask(0o077)
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)sZ %(process)d %(levelname)s %(message)s", stream=sys.stderr
    )
    lock = open_lock(layout.supervisor_lock)
    if not wait_lock(lock, "exclusive", time.monotonic() + _LOCK_WAIT_S):  # waits out a client that only looks
        return ALREADY_RUNNING
    State("starting").write(layout)
    if os.fork():
        return 0  # the lock lives on in the child; the client that started us need not reap anything later
    _supervise(layout, lock)
    os._exit(0)


def _supervise(layout: Layout, lock: int) -> None:
    try:
        Supervisor(layout, lock).run()
    except EmbeddedUnavailable as error:
        logger.exception("cannot run")
        State("failed", error=error.cause).write(layout)
    except Exception as error:  # the last line of defence: whoever waits must learn why
        logger.exception("supervisor failed")
        State("failed", error=f"{type(error).__name__}: {error}; see {layout.supervisor_log}").write(layout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
