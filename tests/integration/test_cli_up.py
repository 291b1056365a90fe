"""`om up` as a process: what it starts, and that it stops all of it, however it ends."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from om_core.config import Settings
from om_core.embedded import attach, wait_stopped
from tests.support.om_command import OM, run_om
from tests.support.processes import environment
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
START_S = 90.0


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Up:
    """One `om up` in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        self.folder = folder
        self.port, self.flower_port = free_port(), free_port()
        self.environment = environment(Settings(auth="keys"), OM_EMBEDDED_FAST="1", **variables)
        del self.environment["OM_AUTH"]
        ports = ["--port", str(self.port)]
        if "--no-flower" not in arguments:
            ports += ["--flower-port", str(self.flower_port)]
        self.log = folder / "up.txt"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*OM, "up", *ports, *arguments], env=self.environment, cwd=folder, stdout=output, stderr=output
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def children(self) -> list[int]:
        """The process ids that it printed."""
        return [int(number) for number in re.findall(r"process (\d+)", self.output)]

    def wait_running(self) -> None:
        eventually(lambda: self.process.poll() is not None or "Ctrl-C stops everything" in self.output, seconds=START_S)
        assert self.process.poll() is None, self.output

    def get(self, port: int, path: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="om-up-", ignore_cleanup_errors=True) as name:
        yield Path(name)
        assert wait_stopped(Path(name) / ".om"), "the embedded servers still run"


def gone(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return state.exists() and state.read_text().split()[2] == "Z"
    return True


def test_up_serves_everything_and_ctrl_c_stops_everything(folder: Path) -> None:
    up = Up(folder)
    try:
        up.wait_running()
        assert up.get(up.port, "/readyz")[0] == 200
        assert up.get(up.port, "/v1/threads")[0] == 200, "without OM_AUTH, loopback needs no key"
        assert up.get(up.flower_port, "/")[0] == 200
        assert "OM_AUTH is not set" in up.output
        assert len(up.children) == 3
        doctor = run_om("doctor", "--json", environment=up.environment, folder=folder)
        assert doctor.code == 0, doctor.out
        assert next(item for item in doctor.json["items"] if item["check"] == "workers")["state"] == "ok"

        up.process.send_signal(signal.SIGINT)

        assert up.process.wait(timeout=60) == 0, up.output
        assert [pid for pid in up.children if not gone(pid)] == []
        assert "Traceback" not in up.output
    finally:
        up.process.kill()
        up.process.wait()
    assert wait_stopped(folder / ".om")
    assert attach(folder / ".om") is None


def test_a_child_that_dies_stops_the_rest_with_1_and_its_last_words(folder: Path) -> None:
    up = Up(folder, "--no-flower")
    try:
        up.wait_running()
        worker = up.children[0]

        os.kill(worker, signal.SIGKILL)

        assert up.process.wait(timeout=60) == 1
        assert "worker was ended by signal 9" in up.output
        assert "worker started" in up.output, "the end of its log"
        assert [pid for pid in up.children if not gone(pid)] == []
    finally:
        up.process.kill()
        up.process.wait()


def test_children_end_when_up_is_killed(folder: Path) -> None:
    up = Up(folder, "--no-flower")
    try:
        up.wait_running()
    finally:
        up.process.kill()
        up.process.wait()

    eventually(lambda: all(gone(pid) for pid in up.children), seconds=60, what="the end of all children")


@pytest.mark.parametrize("option", ["--port", "--flower-port"])
def test_a_taken_port_is_said_before_anything_starts(folder: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        others = {"--port": str(free_port()), "--flower-port": str(free_port()), option: str(port)}
        arguments = [word for pair in others.items() for word in pair]
        ran = run_om("up", *arguments, environment=environment(Settings()), folder=folder)

    assert ran.code == 2
    assert f"port {port} on 127.0.0.1 is not free" in ran.err
    assert option in ran.err
    assert not (folder / ".om").exists()


def test_external_servers_without_a_broker_are_refused(folder: Path) -> None:
    settings = environment(Settings(), OM_DATABASE_URL="postgresql://127.0.0.1:1/none")
    ran = run_om("up", "--port", str(free_port()), "--no-flower", environment=settings, folder=folder)

    assert ran.code == 2
    assert "OM_REDIS_URL" in ran.err


def test_no_authentication_is_refused_where_others_can_reach_it(folder: Path) -> None:
    settings = environment(Settings(), OM_API_HOST="0.0.0.0", OM_AUTH="off")  # the address that is refused
    ran = run_om("up", "--port", str(free_port()), "--no-flower", environment=settings, folder=folder)

    assert ran.code == 2
    assert "OM_AUTH=off is allowed on loopback addresses only" in ran.err


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(("command", "ready"), [("worker", "ready."), ("beat", "beat"), ("api", ""), ("flower", "")])
def test_each_process_ends_with_0_after_sigterm(settings: Settings, tmp_path: Path, command: str, ready: str) -> None:
    port = free_port()
    ports = [] if ready else ["--port", str(port)]
    log = tmp_path / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*OM, command, *ports], env=environment(settings), cwd=tmp_path, stdout=output, stderr=output
        )
    try:
        eventually(
            lambda: process.poll() is not None or (ready in log.read_text() if ready else listens(port)), what=command
        )
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=60) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("command", ["worker", "beat", "flower"])
def test_a_process_of_the_queue_without_a_broker_ends_with_2(settings: Settings, tmp_path: Path, command: str) -> None:
    ran = run_om(command, environment=environment(settings, OM_REDIS_URL=""), folder=tmp_path)

    assert ran.code == 2
    assert "OM_REDIS_URL" in ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("error: ")]) == 1


def test_a_worker_of_an_unknown_queue_ends_with_2(settings: Settings, tmp_path: Path) -> None:
    ran = run_om("worker", "--queues", "buffering,bufering", environment=environment(settings), folder=tmp_path)

    assert ran.code == 2
    assert "bufering" in ran.err
