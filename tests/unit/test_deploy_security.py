"""deploy/compose.yaml: who can reach what, who knows which secret, and what a container may do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from om_core.config import check_auth_binding
from tests.unit.deploy_files import DEPLOY, VARIABLE, compose, example, interpolated

SECRETS = {
    "OM_OWNER_PASSWORD": "owner1",
    "OM_SERVICE_PASSWORD": "service2",
    "OM_REDIS_PASSWORD": "redis3",
    "OM_FLOWER_BASIC_AUTH": "operator:flower4",
}
KEYS = {"GEMINI_API_KEY": "key5", "OPENAI_API_KEY": "key6", "ANTHROPIC_API_KEY": "key7"}
FILLED = {**example(), **SECRETS, **KEYS}
DOCUMENT: dict[str, Any] = interpolated(compose(), FILLED)
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
WORKERS = {name for name in SERVICES if name.startswith("worker-")}
SECRET_NAME = re.compile(r"PASSWORD|BASIC_AUTH|SECRET|TOKEN$")


def who_knows(secret: str) -> set[str]:
    return {name for name, service in SERVICES.items() if secret in str(service)}


def test_each_secret_has_to_be_given():
    named = [
        match for match in VARIABLE.finditer((DEPLOY / "compose.yaml").read_text()) if SECRET_NAME.search(match[0])
    ]

    assert {match["name"] for match in named} == set(SECRETS)
    assert {match["operator"] for match in named} == {"?"}


@pytest.mark.parametrize("secret", SECRETS)
def test_without_a_secret_nothing_starts(secret: str):
    with pytest.raises(KeyError, match=secret):
        interpolated(compose(), {**FILLED, secret: ""})


def test_the_example_holds_no_secret():
    assert {name: example()[name] for name in [*SECRETS, *KEYS]} == dict.fromkeys([*SECRETS, *KEYS], "")


def test_every_password_in_a_url_is_a_variable():
    text = (DEPLOY / "compose.yaml").read_text()
    passwords = re.findall(r"://\w+:([^@]+)@", text)
    assert len(passwords) == 4
    assert all(password.startswith("${") for password in passwords)


def test_each_secret_is_known_to_those_who_use_it():
    working = {"api", *WORKERS}

    assert who_knows("owner1") == {"postgres", "migrate"}
    assert who_knows("service2") == {"postgres", "migrate", *working}
    assert who_knows("redis3") == {"redis", *working, "beat", "flower"}
    assert who_knows("flower4") == {"flower"}
    for key in KEYS.values():
        assert who_knows(key) == WORKERS


def test_services_work_with_the_login_that_owns_nothing():
    urls = {name: service.get("environment", {}).get("OM_DATABASE_URL", "") for name, service in SERVICES.items()}
    assert all(url.startswith("postgresql://om_service:") for name, url in urls.items() if name in {"api", *WORKERS})
    assert "@" not in urls["beat"] + urls["flower"]


def test_flower_is_reached_on_the_internal_network_only_and_with_a_login():
    flower = SERVICES["flower"]
    host = flower["command"][flower["command"].index("--host") + 1]

    assert "ports" not in flower
    assert flower["networks"] == ["internal"]
    assert flower["expose"] == [flower["environment"]["OM_FLOWER_PORT"]]
    assert flower["environment"]["OM_FLOWER_BASIC_AUTH"] == "operator:flower4"
    assert host == "0.0.0.0"
    assert "--allow-actions" not in flower["command"], "read-only"


def test_only_the_api_is_published_on_loopback_and_asks_for_keys():
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "api": ["127.0.0.1:8080:8080"]
    }
    environment = SERVICES["api"]["environment"]
    assert environment["OM_AUTH"] == "keys"
    check_auth_binding(environment["OM_AUTH"], environment["OM_API_HOST"])


def test_data_stay_on_a_network_without_a_way_out():
    joined = {name: set(service["networks"]) for name, service in SERVICES.items()}

    assert DOCUMENT["networks"]["internal"] == {"internal": True}
    assert {name for name, networks in joined.items() if "egress" in networks} == WORKERS, "models are outside"
    assert {name for name, networks in joined.items() if "edge" in networks} == {"api"}
    assert all("internal" in networks for networks in joined.values())


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_can_do_no_more_than_it_needs(name: str):
    service = SERVICES[name]
    limits = service["deploy"]["resources"]["limits"]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(mount.startswith("/tmp:size=") for mount in service["tmpfs"])
    assert set(limits) == {"cpus", "memory", "pids"}
    assert "build" in service or service["user"] not in {"root", "0"}
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"} & set(service)
    assert "docker.sock" not in str(service)


@pytest.mark.parametrize("name", SERVICES)
def test_each_image_is_pinned(name: str):
    image = SERVICES[name]["image"]
    tag = image.partition(":")[2]
    assert re.match(r"\d", tag), image


def test_our_image_is_built_and_never_looked_for_elsewhere():
    ours = {(service["image"], service["pull_policy"]) for service in SERVICES.values() if "build" in service}
    assert ours == {("om-pipeline:0.1.0", "build")}


def test_the_broker_keeps_what_it_was_given_and_forgets_nothing_silently():
    lines = (DEPLOY / "valkey" / "valkey.conf").read_text().splitlines()
    assert {"appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction"} <= set(lines)
    assert "redis-data:/data" in SERVICES["redis"]["volumes"]
    assert "postgres-data:/var/lib/postgresql" in SERVICES["postgres"]["volumes"]
    assert {"redis-data", "postgres-data"} == set(DOCUMENT["volumes"])
