"""deploy/compose.yaml: its form, what runs, and that env.example and the settings agree with it."""

from __future__ import annotations

import copy
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import typer

from api.cli.app import app
from om_core.config import load_settings, unknown_variables
from om_core.domain.job import Queue
from tests.unit.deploy_files import DEPLOY, VARIABLE, compose, example, interpolated
from workers.bootstrap import ABANDON_S, EXIT_S

SCHEMA = json.loads(files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text())
FILLED = {
    **example(),
    "OM_OWNER_PASSWORD": "owner1",
    "OM_SERVICE_PASSWORD": "service2",
    "OM_REDIS_PASSWORD": "redis3",
    "OM_FLOWER_BASIC_AUTH": "operator:flower4",
    "GEMINI_API_KEY": "key5",
}
SERVICES: dict[str, dict[str, Any]] = interpolated(compose()["services"], FILLED)
OURS = [name for name, service in SERVICES.items() if "build" in service]
WORKERS = [name for name in OURS if name.startswith("worker-")]


def errors(document: Any) -> list[str]:
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


def test_the_file_keeps_the_compose_schema():
    assert errors(compose()) == []
    assert errors(interpolated(compose(), FILLED)) == []


@pytest.mark.parametrize(
    "path",
    ["servces", "services.api.enviroment", "services.api.healthcheck.intervall", "services.api.deploy.limits"],
)
def test_a_misspelt_key_breaks_the_schema(path: str):
    document = copy.deepcopy(compose())
    *parents, key = path.split(".")
    node = document
    for parent in parents:
        node = node[parent]
    node[key] = {}
    assert errors(document)


def test_each_process_of_the_system_is_a_service():
    workers = {f"worker-{queue.value}" for queue in Queue}
    assert set(SERVICES) == {"postgres", "redis", "migrate", "api", *workers, "beat", "flower"}


@pytest.mark.parametrize("queue", list(Queue))
def test_each_queue_has_one_worker_service_of_its_own(queue: Queue):
    assert [name for name in WORKERS if queue.value in SERVICES[name]["command"]] == [f"worker-{queue.value}"]
    assert SERVICES[f"worker-{queue.value}"]["command"] == ["worker", "--queues", queue.value]


@pytest.mark.parametrize("name", OURS)
def test_each_command_is_one_that_om_has(name: str):
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group | typer.core.TyperGroup)
    command, *arguments = SERVICES[name]["command"]
    context = group.make_context("om", [command, *arguments])
    found = group.get_command(context, command)
    assert found is not None
    found.make_context(command, list(arguments), parent=context)  # parses the options, runs nothing


def test_every_variable_is_in_the_example_and_nothing_else_is():
    assert {match["name"] for match in VARIABLE.finditer((DEPLOY / "compose.yaml").read_text())} == set(example())


def test_defaults_are_those_of_the_example():
    given = example()
    for match in VARIABLE.finditer((DEPLOY / "compose.yaml").read_text()):
        assert match["operator"] in {"-", "?"}, f"{match[0]} would be empty without a word"
        assert given[match["name"]] == ("" if match["operator"] == "?" else match["rest"]), match[0]


def test_each_variable_of_the_example_is_explained():
    blocks = re.split(r"\n\n", (DEPLOY / "env.example").read_text())
    unexplained = [block for block in blocks if not block.startswith("#")]
    assert unexplained == []


@pytest.mark.parametrize("name", OURS)
def test_each_process_understands_its_settings(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    environment = SERVICES[name]["environment"]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, str(value))
    monkeypatch.chdir(tmp_path)

    settings = load_settings()

    assert unknown_variables() == []
    assert settings.database_url is not None
    assert settings.redis_url is not None or name == "migrate"
    for variable in environment:
        assert variable.startswith("OM_") or (variable.endswith("_API_KEY") and name in WORKERS)


def test_the_options_are_the_same_for_all_who_decide():
    def options(name: str) -> dict[str, str]:
        return {
            key: value
            for key, value in SERVICES[name]["environment"].items()
            if key.startswith("OM_OPTIONS__") or key in {"OM_MODEL", "OM_LEASE_S", "OM_DATABASE_URL", "OM_REDIS_URL"}
        }

    assert len(options("api")) == 6
    for name in WORKERS:
        assert options(name) == options("api")


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_ends_before_it_is_killed_and_comes_back(name: str):
    service = SERVICES[name]
    grace = float(service["stop_grace_period"].removesuffix("s"))

    assert float(service["environment"]["OM_SHUTDOWN_S"]) + max(EXIT_S, ABANDON_S) < grace
    assert service["restart"] == "always"


def test_work_starts_after_the_migration_and_the_migration_after_the_database():
    ended = {"condition": "service_completed_successfully"}
    for name in ["api", *WORKERS]:
        assert SERVICES[name]["depends_on"]["migrate"] == ended
        assert SERVICES[name]["depends_on"]["redis"] == {"condition": "service_started"}, "work goes on without it"
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["restart"] == "no"


def test_the_connections_of_all_processes_fit_into_the_database():
    pools = sum(int(SERVICES[name]["environment"]["OM_POOL_SIZE"]) for name in ["api", *WORKERS])
    login = re.search(r"CONNECTION LIMIT (\d+)", (DEPLOY / "postgres" / "init.sql").read_text())
    assert login is not None
    [server] = [word for word in SERVICES["postgres"]["command"] if word.startswith("max_connections=")]

    assert pools * 2 <= int(login[1]) < int(server.split("=")[1])


def test_each_mounted_file_and_the_build_context_exist():
    for service in SERVICES.values():
        sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert all((DEPLOY / source).is_file() for source in sources if source.startswith("."))
    for name in OURS:
        context = DEPLOY / SERVICES[name]["build"]["context"]
        assert (context / SERVICES[name]["build"]["dockerfile"]).is_file()


def test_what_answers_is_asked_whether_it_is_well():
    checks = {name: service["healthcheck"].get("test") for name, service in SERVICES.items()}
    script = ["CMD", "python", "/app/healthcheck.py"]

    assert checks.pop("postgres")[1] == "pg_isready"
    assert "valkey-cli" in checks.pop("redis")[1]
    assert (checks.pop("migrate"), checks.pop("beat")) == (None, None)
    assert checks == {name: [*script, "worker" if name in WORKERS else name] for name in ["api", "flower", *WORKERS]}
