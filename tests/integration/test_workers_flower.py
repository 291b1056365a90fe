"""Flower for real: what it shows, and to whom."""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from om_core.config import Secret, Settings
from om_core.domain.errors import SetupError
from om_core.memory import Memory
from tests.support.processes import environment, worker_process
from tests.support.services import conversation, settings_services
from tests.support.waiting import eventually
from workers.dispatch import CeleryDispatcher
from workers.main import run_flower

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LOGIN = "operator:a password"
START = "from om_core.config import load_settings; from workers.main import run_flower; run_flower(load_settings())"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Flower:
    """A running Flower."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.process = process

    def request(self, path: str, *, login: str | None = LOGIN, body: bytes | None = None) -> tuple[int, str]:
        """Status and text of an answer; 0 while it does not listen."""
        headers = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()} if login else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except OSError:
            return 0, ""

    def json(self, path: str) -> Any:
        status, text = self.request(path)
        return json.loads(text) if status == 200 else None


@contextmanager
def flower(settings: Settings, folder: Path) -> Iterator[Flower]:
    port = free_port()
    variables = environment(settings, OM_FLOWER_PORT=str(port), OM_FLOWER_BASIC_AUTH=LOGIN)
    process = subprocess.Popen(
        [sys.executable, "-c", START], env=variables, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    running = Flower(port, process)
    try:
        eventually(lambda: running.request("/healthcheck")[0] == 200)
        yield running
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()


def test_flower_shows_jobs_by_their_ids_to_those_who_log_in(settings: Settings, redis_url: str, tmp_path: Path):
    dispatcher = CeleryDispatcher(redis_url)
    with (
        flower(settings, tmp_path) as view,
        worker_process(settings, tmp_path) as worker,
        settings_services(settings, dispatcher) as services,
    ):
        worker.wait_connected()
        [job] = Memory(services).append("thread 7", conversation(8), resource="user-1").jobs

        def finished() -> list[dict[str, Any]]:
            return [task for task in (view.json("/api/tasks") or {}).values() if task["state"] == "SUCCESS"]

        [task] = eventually(finished)
        assert task["name"] == "om.observe"
        assert task["kwargs"] == str(
            {"job": job.id, "kind": "observe", "thread": "thread 7", "attempt": 0, "tenant": "default"}
        )
        assert "ok" in task["result"]
        assert "Lisbon" not in json.dumps(task), "events hold no content"

        for path in ("/", "/tasks", "/api/tasks"):
            assert view.request(path, login=None)[0] == 401
        assert view.request("/workers")[0] == 200
        assert f"om-{worker.pid}@" in view.request("/workers")[1]
        assert view.request(f"/api/worker/shutdown/om-{worker.pid}@{socket.gethostname()}", body=b"")[0] == 403
        assert view.request("/api/task/send-task/om.observe", body=b"{}")[0] == 403
        assert worker.alive
    dispatcher.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "", "10.1.2.3"])
def test_flower_refuses_to_be_open_to_others(settings: Settings, host: str):
    with pytest.raises(SetupError, match="OM_FLOWER_BASIC_AUTH"):
        run_flower(replace(settings, flower_basic_auth=None), host=host)


def test_the_login_is_no_argument_of_the_process(settings: Settings, tmp_path: Path):
    with flower(replace(settings, flower_basic_auth=Secret(LOGIN)), tmp_path) as view:
        arguments = Path(f"/proc/{view.process.pid}/cmdline").read_bytes()

        assert view.request("/workers")[0] == 200
        assert b"a password" not in arguments
