"""The embedded servers for real: shared, stopped with the last client, repaired after crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import redis
from kombu import Connection
from sqlalchemy import create_engine, text

from om_core.embedded import EmbeddedServers, EmbeddedUnavailable, ServiceName, attach, start, wait_stopped
from om_core.embedded.processes import runs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLIENT = """
import json, sys
from pathlib import Path
from om_core.embedded import start
servers = start(Path(sys.argv[1]))
status = servers.status()
print(json.dumps([status.supervisor_pid, status.postgres.pid, status.redis.pid]), flush=True)
sys.stdin.read()
"""
pytestmark = pytest.mark.timeout(120)


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)  # polls the condition


@dataclass
class Client:
    """Another process that holds the servers until its input ends, or it is killed."""

    process: subprocess.Popen[str]
    pids: list[int] = field(default_factory=list)

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        self.pids = json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def clients(folder: Path, count: int) -> Iterator[list[Client]]:
    command = [sys.executable, "-c", CLIENT, str(folder)]
    found = [
        Client(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for _ in range(count)
    ]
    try:
        for client in found:
            client.wait_ready()
        yield found
    finally:
        for client in found:
            client.kill()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OM_EMBEDDED_FAST", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / ".om"
    yield path
    assert_all_stopped(path)


def assert_all_stopped(path: Path) -> None:
    """Leave nothing behind: end what still runs, and say so."""
    stopped = wait_stopped(path, 30)
    leftovers = servers_in(path)
    for pid in leftovers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert stopped
    assert leftovers == []


def servers_in(path: Path) -> list[int]:
    found = []
    for name, program, pid_file in (
        ("postgres", "postgres", "postmaster.pid"),
        ("redis", "valkey-server", "redis.pid"),
    ):
        with suppress(OSError, ValueError, IndexError):
            pid = int((path / name / pid_file).read_text().split()[0])
            if runs_in(pid, program, path.resolve() / name):
                found.append(pid)
    return found


def execute(servers: EmbeddedServers, statement: str) -> list[tuple[object, ...]]:
    engine = create_engine(servers.database_url)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def put_data(servers: EmbeddedServers) -> None:
    execute(servers, "CREATE TABLE kept AS SELECT 42 AS value")
    with redis.Redis.from_url(servers.redis_py_url) as client:
        client.set("kept", "42")


def assert_data(servers: EmbeddedServers) -> None:
    assert execute(servers, "SELECT value FROM kept") == [(42,)]
    with redis.Redis.from_url(servers.redis_py_url) as client:
        assert client.get("kept") == b"42"


def end(pid: int) -> None:
    """SIGKILL, and wait until the kernel is done with it."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_cold_start_serves_every_kind_of_address(folder: Path) -> None:
    with start(folder) as servers:
        assert servers.directory == folder.resolve()
        assert execute(servers, "SELECT current_database()::text, current_setting('TimeZone'), lower('ÄÉ')") == [
            ("om", "UTC", "äé")
        ]
        assert execute(servers, "SELECT current_setting('listen_addresses'), current_setting('max_connections')") == [
            ("", "200")
        ]
        execute(servers, "CREATE EXTENSION vector")
        with redis.Redis.from_url(servers.redis_py_url) as client:
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
            assert client.config_get("appendonly")["appendonly"] == "yes"
        with Connection(servers.redis_url) as connection:
            connection.ensure_connection(max_retries=1)
        with start(folder) as second, attached(folder) as third:
            assert servers.status().supervisor_pid == second.status().supervisor_pid == third.status().supervisor_pid
    servers.close()  # twice is fine
    assert wait_stopped(folder)
    with pytest.raises(OSError, match=r"."):
        servers.status()


@contextmanager
def attached(path: Path) -> Iterator[EmbeddedServers]:
    servers = attach(path)
    assert servers is not None
    with servers:
        yield servers


def test_stops_after_the_last_client_was_killed(folder: Path) -> None:
    with clients(folder, 2) as (first, second):
        assert first.pids == second.pids
        assert len(servers_in(folder)) == 2
        first.kill()
        time.sleep(0.6)  # three looks of the supervisor: it must not stop while one client is left
        assert len(servers_in(folder)) == 2
        with attached(folder) as servers:
            assert servers.status().postgres.answering
        second.kill()
        assert wait_stopped(folder, 30)
        assert servers_in(folder) == []


def test_racing_cold_starts_share_one_server_each(folder: Path) -> None:
    with clients(folder, 4) as found:
        assert len({tuple(client.pids) for client in found}) == 1
        with attached(folder) as servers:
            status = servers.status()
            assert (status.postgres.starts, status.redis.starts) == (1, 1)


def test_client_that_arrives_while_they_stop_gets_servers(folder: Path) -> None:
    with start(folder) as servers:
        put_data(servers)
    for pause in (0.0, 0.1, 0.2, 0.21, 0.25, 0.3):
        time.sleep(pause)  # hits different moments of the stop
        with start(folder) as servers:
            assert_data(servers)


@pytest.mark.parametrize("service", ["postgres", "redis"])
def test_killed_server_is_restarted_with_its_data(
    folder: Path, service: ServiceName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OM_EMBEDDED_FAST")
    with start(folder) as servers:
        put_data(servers)
        before = getattr(servers.status(), service).pid
        end(before)
        servers.wait_ready()
        assert_data(servers)
        status = servers.kill(service)
        servers.wait_ready()
        assert_data(servers)
        status = servers.status()
        assert getattr(status, service).starts == 3
        assert getattr(status, service).pid != before


def test_killed_supervisor_is_replaced_and_servers_adopted(folder: Path) -> None:
    with start(folder) as servers:
        put_data(servers)
        before = servers.status()
        end(before.supervisor_pid)
        assert_data(servers)  # the servers do not notice
        with pytest.raises(EmbeddedUnavailable, match="supervisor"):
            servers.wait_ready()
        with attached(folder) as joined:
            assert_data(joined)
        with start(folder):
            after = servers.status()
            assert after.supervisor_pid != before.supervisor_pid
            assert (after.postgres.pid, after.redis.pid) == (before.postgres.pid, before.redis.pid)
            servers.kill("postgres")
            servers.kill("redis")
            servers.wait_ready()
            assert_data(servers)


def test_last_client_of_a_killed_supervisor_leaves_no_server(folder: Path) -> None:
    with start(folder) as servers:
        end(servers.status().supervisor_pid)
    wait_until(lambda: servers_in(folder) == [])


def test_everything_killed_and_the_pid_reused(folder: Path) -> None:
    with start(folder) as servers:
        put_data(servers)
        sockets = Path(servers.redis_py_url.removeprefix("unix://")).parent
        status = servers.status()
        for pid in (status.supervisor_pid, status.postgres.pid, status.redis.pid):
            assert pid is not None
            end(pid)
    assert attach(folder) is None
    for path in (folder / "postgres/postmaster.pid", folder / "redis/redis.pid", sockets / ".s.PGSQL.5432.lock"):
        stale = path.read_text().splitlines()
        path.write_text("\n".join([str(os.getpid()), *stale[1:]]) + "\n")
    with start(folder) as servers:
        assert_data(servers)


def test_attach_starts_nothing(folder: Path) -> None:
    assert attach(folder) is None
    assert not folder.exists()
    start(folder).close()
    assert wait_stopped(folder)
    assert attach(folder) is None
    assert servers_in(folder) == []


def test_deep_relative_and_awkward_folders_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("deep " * 10) / ("und tief, " * 12) / ".om"
    monkeypatch.chdir(tmp_path)
    with start() as here, start(deep) as there:
        monkeypatch.chdir("/")
        put_data(here)
        put_data(there)
        assert_data(here)
        with attached(deep) as again:
            assert_data(again)
        assert here.directory == tmp_path / ".om"
        assert here.status().supervisor_pid != there.status().supervisor_pid
        sockets = Path(there.redis_py_url.removeprefix("unix://")).parent
        assert sockets.stat().st_mode & 0o777 == 0o700
    assert_all_stopped(tmp_path / ".om")
    assert_all_stopped(deep)
    assert not sockets.exists()


def test_pause_and_resume(folder: Path) -> None:
    with start(folder) as servers:
        put_data(servers)
        for service in ("redis", "postgres"):
            assert getattr(servers.pause(service), service).paused
            time.sleep(0.3)  # the supervisor must leave it alone
            assert getattr(servers.status(), service).pid is None
            with start(folder):  # a newcomer does not wait for what is stopped on purpose
                pass
            assert getattr(servers.resume(service), service).answering
            assert_data(servers)
        with pytest.raises(RuntimeError, match="KeyError"):
            servers.pause(cast("ServiceName", "nothing"))


def test_programs_started_by_a_client_do_not_hold_the_servers(folder: Path) -> None:
    with start(folder):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        assert wait_stopped(folder, 30)
    finally:
        child.kill()
        child.wait()


def test_broken_data_is_reported_with_the_log(folder: Path) -> None:
    start(folder).close()
    assert wait_stopped(folder)
    (folder / "postgres" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(EmbeddedUnavailable, match="no_such_setting"):
        start(folder, timeout_s=60)


def test_deleted_folder_ends_its_supervisor(folder: Path) -> None:
    with start(folder) as servers:
        pids = [servers.status().postgres.pid, servers.status().redis.pid]
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        wait_until(lambda: not any(is_alive(pid) for pid in pids if pid))
