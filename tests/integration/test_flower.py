"""Flower as deploy/compose.yaml runs it: on its broker, with its rights, beside a real worker."""

from __future__ import annotations

import ast
import base64
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Exchange, Producer, Queue
from redis.backoff import NoBackoff
from redis.retry import Retry

from om_core.config import Settings
from om_core.embedded.binaries import find_binaries
from om_core.memory import Memory
from tests.support.om_command import OM, run_om
from tests.support.processes import ROOT, WorkerProcess, environment, worker_process
from tests.support.servers import Servers
from tests.support.services import conversation, make_settings, settings_services
from tests.support.waiting import eventually
from workers.app import build_app
from workers.dispatch import CeleryDispatcher

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PASSWORD = "b1Cd"
ADMIN = "a3dmin"
INTRUDER = "test"
"""Name of the connections that try what is refused."""
ONCE = Retry(NoBackoff(), 0)
LOGIN = "operator:f2low"
DEPLOY = ROOT / "deploy"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass(frozen=True)
class Broker:
    """The broker of the deployment. `admin` is a user that only the test adds, to look at what was refused."""

    port: int

    @property
    def url(self) -> str:
        return f"redis://om:{PASSWORD}@127.0.0.1:{self.port}/0"

    def client(self, user: str = "om", password: str = PASSWORD) -> redis.Redis:
        return redis.Redis(port=self.port, username=user, password=password, client_name=INTRUDER, retry=ONCE)


@contextmanager
def ended(command: list[str], variables: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=variables, cwd=log.parent, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deployment")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    running = Broker(free_port())
    programs = find_binaries().redis_server.parent
    variables = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "OM_REDIS_PASSWORD": PASSWORD}
    command = ["sh", str(DEPLOY / "valkey" / "start.sh"), str(DEPLOY / "valkey" / "valkey.conf"), "--dir", str(folder)]
    command += ["--port", str(running.port), "--bind", "127.0.0.1"]
    command += ["--user", "admin", "on", f">{ADMIN}", "~*", "&*", "+@all"]

    def answers() -> bool:
        with running.client() as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    with ended(command, variables, folder / "broker.log"):
        eventually(answers, what="the broker")
        yield running


@pytest.fixture(scope="module")
def settings(servers: Servers, broker: Broker) -> Iterator[Settings]:
    with servers.new_database() as url:
        yield make_settings(url, broker.url)


@dataclass(frozen=True)
class Flower:
    port: int

    def request(self, path: str, *, login: str | None = LOGIN) -> tuple[int, str]:
        """Status and text of an answer; 0 while it does not listen."""
        headers = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()} if login else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except OSError:
            return 0, ""

    def json(self, path: str) -> Any:
        status, text = self.request(path)
        return json.loads(text) if status == 200 else None


@pytest.fixture(scope="module")
def flower(settings: Settings, folder: Path) -> Iterator[Flower]:
    running = Flower(free_port())
    variables = environment(settings, OM_FLOWER_PORT=str(running.port), OM_FLOWER_BASIC_AUTH=LOGIN)
    variables["OM_DATABASE_URL"] = "postgresql://postgres:5432/om"  # as in compose.yaml: named, never opened
    with ended([*OM, "flower", "--host", "0.0.0.0"], variables, folder / "flower.log"):
        eventually(lambda: running.request("/healthcheck")[0] == 200, what="Flower")
        yield running


@pytest.fixture(scope="module")
def worker(settings: Settings, folder: Path) -> Iterator[WorkerProcess]:
    with worker_process(settings, folder) as running:
        running.wait_connected()
        yield running


@pytest.fixture(scope="module")
def task(settings: Settings, broker: Broker, flower: Flower, worker: WorkerProcess) -> dict[str, Any]:
    """What Flower knows of the task of a finished job; `job` is that job's id."""
    dispatcher = CeleryDispatcher(broker.url)
    try:
        with settings_services(settings, dispatcher) as services:
            [job] = Memory(services).append("thread 7", conversation(8), resource="user-1").jobs

        def finished() -> list[dict[str, Any]]:
            tasks = flower.json("/api/tasks") or {}
            return [found for found in tasks.values() if found["state"] == "SUCCESS" and found["name"] == "om.observe"]

        [found] = eventually(finished, what="the task in Flower")
        return {**found, "job": job.id}
    finally:
        dispatcher.close()


def test_a_task_is_shown_with_job_kind_thread_and_attempt(task: dict[str, Any]):
    arguments = ast.literal_eval(task["kwargs"])
    assert {name: arguments[name] for name in ("job", "kind", "thread", "attempt")} == {
        "job": task["job"],
        "kind": "observe",
        "thread": "thread 7",
        "attempt": 0,
    }
    assert "Lisbon" not in json.dumps(task), "events hold no content"


def test_metrics_count_the_events_of_tasks_and_need_no_login(flower: Flower, task: dict[str, Any]):
    status, text = flower.request("/metrics", login=None)
    lines = [line for line in text.splitlines() if line.startswith("flower_events_total{")]

    assert status == 200
    assert any('task="om.observe"' in line and 'type="task-succeeded"' in line for line in lines), text
    assert "flower_worker_online" in text


def test_a_health_check_needs_no_login(flower: Flower):
    assert flower.request("/healthcheck", login=None)[0] == 200


@pytest.mark.parametrize("login", [None, "operator:wrong", "f2low:operator"])
@pytest.mark.parametrize("path", ["/", "/workers", "/tasks", "/broker", "/api/tasks", "/api/workers"])
def test_everything_else_needs_the_login(flower: Flower, path: str, login: str | None):
    assert flower.request(path, login=login)[0] == 401


def test_workers_and_queues_are_seen_through_the_broker(flower: Flower, worker: WorkerProcess):
    """What Flower asks workers and the broker, instead of only listening."""
    seen = eventually(lambda: flower.json("/api/workers?refresh=true"), what="an answer of the worker")
    [name] = seen
    queues = {queue["name"] for queue in seen[name]["active_queues"]}

    assert name.startswith(f"om-{worker.pid}@")
    assert {"observation", "buffering"} <= queues
    lengths = flower.json("/api/queues/length")["active_queues"]
    assert {queue["name"]: queue["messages"] for queue in lengths} == dict.fromkeys(queues, 0)


def test_what_a_crash_left_behind_is_found_on_the_broker(broker: Broker):
    """What consumers do every ten seconds and every minute, at once."""
    with build_app(broker.url).connection_for_write() as connection, broker.client("admin", ADMIN) as admin:
        channel: Any = connection.channel()
        queue = Queue("spare", Exchange("spare", type="direct"), routing_key="spare")(channel)
        queue.declare()
        Producer(channel).publish({"job": 1}, exchange="spare", routing_key="spare")
        assert queue.get() is not None, "taken, and never acknowledged"
        admin.zadd(channel._script_binding_deadlines, {"gone": 0})

        channel.qos.visibility_timeout = -60
        channel.qos.restore_visible(interval=1)
        message = queue.get(no_ack=True)

        assert message is not None
        assert (message.payload, message.delivery_info["redelivered"]) == ({"job": 1}, True)
        assert channel.sweep_bindings() == 1


def test_the_broker_refuses_nothing_that_celery_and_flower_do(broker: Broker, flower: Flower, task: dict[str, Any]):
    eventually(lambda: flower.json("/api/workers?refresh=true"), what="an answer of the worker")
    with broker.client("admin", ADMIN) as admin:
        log = admin.acl_log()
    assert [entry for entry in log if entry["client-info"]["name"] != INTRUDER and entry["reason"] != "auth"] == []


@pytest.mark.parametrize(
    "command",
    [
        ("SET", "other:key", "1"),
        ("FLUSHALL",),
        ("KEYS", "*"),
        ("CONFIG", "GET", "requirepass"),
        ("ACL", "LIST"),
        ("CLIENT", "KILL", "ID", "1"),
        ("SHUTDOWN", "NOSAVE"),
    ],
)
def test_the_broker_refuses_everything_else(broker: Broker, command: tuple[str, ...]):
    with broker.client() as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command)


@pytest.mark.parametrize("user", ["default", "om", "nobody"])
def test_nobody_uses_the_broker_without_the_password(broker: Broker, user: str):
    with broker.client(user, "wrong") as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with (
        redis.Redis(port=broker.port, retry=ONCE, client_name=INTRUDER) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_the_passwords_are_no_arguments_of_the_processes(broker: Broker, flower: Flower, worker: WorkerProcess):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if b"f2low" in arguments or PASSWORD.encode() in arguments:
            found.append(arguments)
    assert found == []


def test_flower_is_not_served_to_others_without_a_login(settings: Settings, tmp_path: Path):
    variables = environment(settings, OM_FLOWER_PORT=str(free_port()))
    done = run_om("flower", "--host", "0.0.0.0", environment=variables, folder=tmp_path)

    assert done.code == 2
    assert "OM_FLOWER_BASIC_AUTH" in done.err
    assert "Traceback" not in done.err


def healthy(service: str, variables: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, str(DEPLOY / "healthcheck.py"), service]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_the_containers_health_check_sees_flower_and_the_worker(
    settings: Settings, flower: Flower, worker: WorkerProcess
):
    variables = environment(settings, OM_FLOWER_PORT=str(flower.port))
    assert healthy("flower", variables) == (0, "")
    assert healthy("worker", variables) == (0, "")


def test_a_worker_that_is_gone_is_not_healthy(servers: Servers, settings: Settings):
    with servers.new_database() as empty:
        code, said = healthy("worker", environment(make_settings(empty, None)))
    assert (code, "no heartbeat" in said) == (1, True), said
