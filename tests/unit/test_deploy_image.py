"""deploy/Dockerfile and the health check that the image carries."""

from __future__ import annotations

import http.server
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import typer

from api.cli.app import app
from om_core.config import Settings
from tests.unit.deploy_files import DEPLOY, ROOT, dockerfile_stages

STAGES = dockerfile_stages()
RUNTIME = STAGES[-1]


def values(name: str, stage: list[tuple[str, str]] = RUNTIME) -> list[str]:
    return [rest for instruction, rest in stage if instruction == name]


def copied(stage: list[tuple[str, str]]) -> list[str]:
    """What a stage copies from the build context."""
    words = [rest.split() for rest in values("COPY", stage) if not rest.startswith("--from=")]
    return [source for *sources, _ in words for source in sources]


def test_building_and_running_are_separate_stages_on_pinned_images():
    names = [values("FROM", stage)[0] for stage in STAGES]
    assert len(names) == 2
    for name in names:
        assert re.fullmatch(r"python:3\.\d+-slim-\w+ AS \w+", name)
    assert "pip" not in " ".join(values("RUN")), "the compiler's stage installs"
    assert [rest for rest in values("COPY") if rest.startswith("--from=build")]


def test_the_image_runs_as_a_user_without_rights():
    names = [name for name, _ in RUNTIME]
    [user] = values("USER")

    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "a number, so that Kubernetes can see it is not root"
    assert not {"RUN", "COPY"} & set(names[names.index("USER") :]), "nothing in it belongs to that user"


def test_everything_copied_exists_and_reaches_the_builder():
    sources = [source for stage in STAGES for source in copied(stage)]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, f"{source} is kept from the builder"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(sources), "more than the image needs is sent"


def test_nothing_is_sent_to_the_builder_unless_it_is_named():
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {"**/.env", "**/om.toml"} <= set(rules), "settings may hold secrets"


def test_no_secret_and_no_whole_folder_goes_into_a_layer():
    everything = [instruction for stage in STAGES for instruction in stage]
    assert [name for name, _ in everything if name in {"ADD", "ARG"}] == []
    assert "." not in {source for stage in STAGES for source in copied(stage)}
    for name, rest in everything:
        assert not re.search(r"PASSWORD|SECRET|TOKEN|_KEY|BASIC_AUTH|https?://", rest), f"{name} {rest}"


def test_versions_are_those_of_the_lock_and_byte_code_is_made_last():
    runs = values("RUN", STAGES[0])
    installs = [number for number, run in enumerate(runs) if "pip install" in run]

    assert "--constraint requirements.lock" in runs[installs[0]]
    assert all("--no-deps" in runs[number] for number in installs[1:]), "a later one would choose versions of its own"
    assert "compileall" in runs[-1] and "unchecked-hash" in runs[-1]


def test_the_image_starts_om_and_serves_the_api_unless_told_otherwise():
    commands = getattr(typer.main.get_command(app), "commands", {})
    [entry], [command] = values("ENTRYPOINT"), values("CMD")

    assert json.loads(entry) == ["om"], "the form that passes signals on"
    assert json.loads(command) == ["api"]
    assert "api" in commands


def test_the_ports_are_those_of_the_settings():
    assert values("EXPOSE") == [f"{Settings().api_port} {Settings().flower_port}"]


def test_the_health_check_is_in_the_image():
    [check] = values("HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    assert f"deploy/healthcheck.py {command[1]}" in values("COPY")
    assert command[2] == "api", "as the default command"


@contextmanager
def answering(status: int) -> Iterator[int]:
    """The port of a server that answers everything so."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path in {"/healthz", "/healthcheck"} else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def check(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEPLOY / "healthcheck.py"), *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(("service", "variable"), [("api", "OM_API_PORT"), ("flower", "OM_FLOWER_PORT")])
@pytest.mark.parametrize(("status", "code"), [(200, 0), (204, 1), (404, 1), (503, 1)])
def test_a_service_is_well_when_it_says_so(service: str, variable: str, status: int, code: int):
    with answering(status) as port:
        done = check(service, **{variable: str(port)})
    assert (done.returncode, "unhealthy" in done.stderr) == (code, code == 1), done.stderr


def test_a_service_that_does_not_answer_is_not_well():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    done = check("api", OM_API_PORT=port)
    assert (done.returncode, "refused" in done.stderr) == (1, True)


@pytest.mark.parametrize("arguments", [(), ("beat",), ("api", "worker")])
def test_an_unknown_check_is_wrong_usage(arguments: tuple[str, ...]):
    done = check(*arguments)
    assert (done.returncode, done.stderr) == (2, "usage: healthcheck.py api|flower|worker\n")
