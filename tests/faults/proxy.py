"""A proxy in front of Postgres that cuts connections around COMMIT: before the server sees it, or after it was done."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

Cut: TypeAlias = Literal["before", "after"]
COMMIT: Final = b"COMMIT\x00"
NAME: Final = ".s.PGSQL."
PIECE: Final = 1 << 16


class CommitProxy:
    """Listens on a Unix socket in `folder` under the name that libpq looks for.

    `arm` cuts the next commits of transactions that contained `marker`; `cuts` counts those done.
    """

    def __init__(self, folder: Path, upstream: Path, port: str) -> None:
        self.cuts = 0
        self._upstream = str(upstream / f"{NAME}{port}")
        self._path = folder / f"{NAME}{port}"
        self._lock = threading.Lock()
        self._wanted: list[tuple[Cut, bytes]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(100)
        self._closed = False
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def arm(self, cut: Cut, marker: bytes) -> None:
        """Cut one commit of a transaction in which this text was sent."""
        with self._lock:
            self._wanted.append((cut, marker))

    def disarm(self) -> None:
        """Forget cuts that did not come about."""
        with self._lock:
            self._wanted.clear()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._upstream)
            except OSError:  # Postgres is away: the client sees a closed connection
                client.close()
                continue
            threading.Thread(target=self._pump, args=(client, server), name="proxy-line", daemon=True).start()

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        said = b""
        with client, server, contextlib.suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(PIECE)
                    if not data:
                        return
                    if ready is server:
                        client.sendall(data)
                        continue
                    said += data
                    if COMMIT in data:
                        cut, said = self._cut(said), b""
                        if cut is not None:
                            self._end(cut, data, server)
                            return
                    server.sendall(data)

    def _cut(self, said: bytes) -> Cut | None:
        with self._lock:
            for wanted in self._wanted:
                if wanted[1] in said:
                    self._wanted.remove(wanted)
                    self.cuts += 1
                    return wanted[0]
        return None

    @staticmethod
    def _end(cut: Cut, data: bytes, server: socket.socket) -> None:
        """Close both ends; after a commit only once the server has answered it, so that it is done for sure."""
        if cut == "after":
            server.sendall(data)
            server.recv(PIECE)


@contextlib.contextmanager
def through_proxy(url: str, folder: Path) -> Iterator[tuple[CommitProxy, str]]:
    """A proxy before the server of this URL, and the URL that leads through it."""
    query = dict(part.split("=", 1) for part in url.split("?", 1)[1].split("&"))
    folder.mkdir(exist_ok=True)
    os.chmod(folder, 0o700)  # noqa: PTH101 - a socket folder of our own
    proxy = CommitProxy(folder, Path(query["host"]), query["port"])
    try:
        yield proxy, url.replace(f"host={query['host']}", f"host={folder}")
    finally:
        proxy.close()
