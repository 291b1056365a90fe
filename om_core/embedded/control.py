"""The control socket: one JSON line each way. Used by fault tests and by `status`."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from om_core.embedded.state import ServiceStatus, Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOCKET_NAME = "control.sock"
_REQUEST_TIMEOUT_S = 2.0
_LINE_LIMIT = 65536


class ControlServer:
    """The supervisor's end; one request at a time."""

    def __init__(self, sockets: Path) -> None:
        """Listen, replacing the socket of a supervisor that was killed (the caller holds the supervisor's lock)."""
        self.path = sockets / SOCKET_NAME
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(32)
        self._listener.settimeout(0)

    def serve(self, seconds: float, handle: Callable[[dict[str, Any]], Status]) -> None:
        """Wait at most `seconds` for a request, and answer it."""
        if not select.select([self._listener], [], [], seconds)[0]:
            return
        with contextlib.suppress(OSError):  # a client that went away is no concern of the others
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(_REQUEST_TIMEOUT_S)
                connection.sendall(_answer(_read_line(connection), handle))

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


def _answer(line: bytes, handle: Callable[[dict[str, Any]], Status]) -> bytes:
    try:
        answer: dict[str, Any] = {"status": asdict(handle(json.loads(line)))}
    except (ValueError, KeyError, TypeError) as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    return json.dumps(answer).encode() + b"\n"


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _LINE_LIMIT:
        part = connection.recv(4096)
        if not part:
            break
        line += part
    return line


def request(sockets: Path, timeout_s: float, **command: str) -> Status:
    """Send one command to the supervisor and return the status after it.

    Raises:
        OSError: no supervisor answers (ConnectionError, TimeoutError).
        RuntimeError: the supervisor did not understand.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(sockets / SOCKET_NAME))
        connection.sendall(json.dumps(command).encode() + b"\n")
        line = _read_line(connection)
    if not line:
        message = "the supervisor of the embedded servers ended"
        raise ConnectionResetError(message)
    answer = json.loads(line)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    found = answer["status"]
    return Status(found["supervisor_pid"], ServiceStatus(**found["postgres"]), ServiceStatus(**found["redis"]))
