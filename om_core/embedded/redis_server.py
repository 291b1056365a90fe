"""Redis (the Valkey server): start, adopt, stop."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

from om_core.embedded.pings import REDIS_SOCKET, redis_answers
from om_core.embedded.processes import running_in, runs_in
from om_core.embedded.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from om_core.embedded.binaries import Binaries
    from om_core.embedded.layout import Layout

_PROGRAM = "valkey-server"


class RedisServer(Service):
    """The Redis of one data folder."""

    name = "redis"
    stop_signals = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0))

    def __init__(self, layout: Layout, sockets: Path, binaries: Binaries) -> None:
        """Remember where; nothing starts yet."""
        super().__init__(layout.log / "redis.log")
        self._data = layout.redis
        self._sockets = sockets
        self._binaries = binaries

    def find_pid(self) -> int | None:
        """Return the live server on this data: two of them would write the same append-only file."""
        try:
            pid = int((self._data / "redis.pid").read_text())
        except (OSError, ValueError):
            pid = 0
        if pid and self.is_pid(pid):
            return pid
        return next(iter(running_in(_PROGRAM, self._data)), None)

    def is_pid(self, pid: int) -> bool:
        """Tell whether the process is a Redis on this data."""
        return runs_in(pid, _PROGRAM, self._data)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the server, durable to a second and never dropping keys, as a broker needs."""
        self._data.mkdir(exist_ok=True, mode=0o700)
        options = {
            "port": "0",
            "unixsocket": str(self._sockets / REDIS_SOCKET),
            "unixsocketperm": "700",
            "dir": str(self._data),
            "pidfile": str(self._data / "redis.pid"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        command = [str(self._binaries.redis_server)]
        for key, value in options.items():
            command += [f"--{key}", value]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=self._data, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def prepare(self) -> bool:
        """Ping."""
        return redis_answers(self._sockets)
