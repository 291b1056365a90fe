"""Where everything lies: data, logs and locks below one folder, sockets where their path stays short."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from om_core.embedded.errors import EmbeddedUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_NAME = ".om"
POSTGRES_PORT = 5432
_LONGEST_SOCKET = f".s.PGSQL.{POSTGRES_PORT}"
_SOCKET_PATH_LIMIT = 100  # sun_path holds 104 bytes on macOS and 108 on Linux
_LOG_LIMIT = 5_000_000
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]+")  # anything else needs quoting in a URL, or is a separator to libpq


@dataclass(frozen=True)
class Layout:
    """The paths below one data folder (absolute, symbolic links resolved)."""

    root: Path

    @classmethod
    def of(cls, directory: Path | None) -> Layout:
        """Bind to the folder as it is named now, so that a later change of the working directory does not matter."""
        return cls((directory if directory is not None else Path(DEFAULT_NAME)).absolute().resolve())

    @property
    def postgres(self) -> Path:
        """Postgres data."""
        return self.root / "postgres"

    @property
    def redis(self) -> Path:
        """Redis data."""
        return self.root / "redis"

    @property
    def log(self) -> Path:
        """Log files."""
        return self.root / "log"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor and its start-up wrote."""
        return self.log / "supervisor.log"

    @property
    def clients_lock(self) -> Path:
        """Shared by every client; exclusive for the supervisor that found none and stops."""
        return self.root / "clients.lock"

    @property
    def start_lock(self) -> Path:
        """Held by the one client that may start a supervisor."""
        return self.root / "start.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.root / "supervisor.lock"

    @property
    def state_file(self) -> Path:
        """What the supervisor last said about itself."""
        return self.root / "state.json"

    @property
    def sockets_file(self) -> Path:
        """Record of the socket folder in use."""
        return self.root / "sockets.json"

    def create(self) -> None:
        """Make the private folders.

        Raises:
            EmbeddedUnavailable: the folder cannot be written by this user.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.log.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            cause = f"the folder {self.root} cannot be used ({error.strerror})."
            raise EmbeddedUnavailable(cause) from error

    def rotate_logs(self) -> None:
        """Put large logs aside, one generation; called while no supervisor runs."""
        for log in self.log.glob("*.log"):
            if log.stat().st_size > _LOG_LIMIT:
                log.replace(log.with_suffix(".log.1"))

    def recorded_sockets(self) -> Path | None:
        """Return the socket folder of this very folder; a record that came with a copied folder does not count."""
        try:
            record = json.loads(self.sockets_file.read_text())
            return Path(record["sockets"]) if record["directory"] == str(self.root) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def create_sockets(self, owners: frozenset[int]) -> Path:
        """Choose, make and record the private folder of the sockets; `owners` are the user ids it may belong to.

        Raises:
            EmbeddedUnavailable: no short enough folder that is private to this user.
        """
        folder = self.recorded_sockets() or self._choose_sockets()
        folder.mkdir(exist_ok=True, mode=0o700)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
            cause = f"the socket folder {folder} belongs to someone else; remove it, or set TMPDIR."
            raise EmbeddedUnavailable(cause)
        folder.chmod(0o700)
        write_json(self.sockets_file, {"directory": str(self.root), "sockets": str(folder)})
        return folder

    def remove_sockets(self, folder: Path) -> None:
        """Remove an emptied socket folder, so that no litter stays in the temporary folder."""
        with contextlib.suppress(OSError):
            folder.rmdir()

    def _choose_sockets(self) -> Path:
        for folder in self._socket_candidates():
            path = str(folder / _LONGEST_SOCKET)
            if len(os.fsencode(path)) < _SOCKET_PATH_LIMIT and _PLAIN.fullmatch(path):
                return folder
        cause = f"no short path for sockets; {tempfile.gettempdir()} is too long. Set TMPDIR to a short folder."
        raise EmbeddedUnavailable(cause)

    def _socket_candidates(self) -> Iterator[Path]:
        yield self.root / "run"
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        name = f"om-{os.geteuid()}-{digest}"
        yield Path(tempfile.gettempdir()) / name
        yield Path("/tmp") / name  # noqa: S108 - ownership and mode are checked after mkdir


def write_json(path: Path, value: object) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


def tail(path: Path, size: int = 2000) -> str:
    """Return the end of a log file, for messages."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
