"""Removal over HTTP and by command (API 2 and 3); what it does is in `test_removal`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core import MemoryClient
from om_core.memory import Memory
from tests.integration.api_server import ApiClient, api_of, say
from tests.support.jobs import work_off
from tests.support.om_command import run_om
from tests.support.processes import environment
from tests.support.services import settings_services

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from om_core.config import Settings
    from om_core.services.deps import Services


@pytest.fixture
def client(services: Services) -> Iterator[ApiClient]:
    with api_of(services) as opened:
        messages = [{"id": f"m{n}", "role": "user", "content": f"The {n} boxes go to Berlin. " * 30} for n in range(20)]
        opened.ok("POST", "/v1/threads/t/messages", json={"resource_id": "r", "format": "openai", "messages": messages})
        yield opened


def test_each_removal_has_its_route(services: Services, client: ApiClient) -> None:
    work_off(services)
    client.ok("POST", "/v1/threads/t/activate")
    assert client.ok("DELETE", "/v1/threads/t/messages/m3")["messages"] == 1
    assert client.get("/v1/threads/t/messages").json()["items"][3]["seq"] == 5
    assert client.ok("POST", "/v1/threads/t/rewind", json={"to_seq": 10})["messages"] == 10
    assert client.ok("DELETE", "/v1/threads/t")["messages"] == 20
    assert client.get("/v1/threads/t").status_code == 404
    say(client, "u", "hello", resource="r")
    found = client.ok("DELETE", "/v1/resources/r")
    assert (found["threads"], found["messages"]) == (1, 1)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("DELETE", "/v1/threads/t/messages/m99", None, 404),
        ("DELETE", "/v1/threads/unknown/messages/m1", None, 404),
        ("DELETE", "/v1/threads/unknown", None, 404),
        ("DELETE", "/v1/resources/unknown", None, 404),
        ("POST", "/v1/threads/t/rewind", {"to_seq": 99}, 422),
        ("POST", "/v1/threads/t/rewind", {"to_seq": -1}, 422),
        ("POST", "/v1/threads/t/rewind", {}, 422),
        ("POST", "/v1/threads/t/reflections/7/restore", None, 404),
        ("POST", "/v1/threads/t/reflections/x/restore", None, 422),
    ],
)
def test_what_cannot_be_removed_is_refused(
    client: ApiClient, method: str, path: str, body: dict[str, int] | None, status: int
) -> None:
    assert client.request(method, path, json=body).status_code == status
    assert client.ok("GET", "/v1/threads/t")["head_seq"] == 20


def test_a_request_may_rewind_what_it_diverges_from(client: ApiClient) -> None:
    messages = [{"role": "user", "content": text} for text in ("one", "two", "three")]
    body = {"resource_id": "r", "format": "openai", "messages": messages}
    client.ok("POST", "/v1/threads/u/messages", json=body)
    edited = {**body, "messages": [*messages[:2], {"role": "user", "content": "other"}], "on_divergence": "rewind"}
    answer = client.ok("POST", "/v1/threads/u/messages", json=edited)
    assert answer["diverged_at_seq"] == 3
    parts = [item["parts"][0]["text"] for item in client.ok("GET", "/v1/threads/u/messages")["items"]]
    assert parts == ["one", "two", "other"]


def test_the_client_removes_as_memory_does(services: Services, client: ApiClient) -> None:
    with MemoryClient(str(client.base_url)) as own:
        assert own.delete_message("t", "m0")["messages"] == 1
        assert own.rewind("t", 5)["messages"] == 15
        assert own.delete_thread("t", resource="r")["messages"] == 20
        say(client, "u", "hello", resource="r")
        assert own.delete_resource("r")["threads"] == 1
    assert Memory(services).threads().items == ()


def test_the_commands_ask_first_and_say_what_is_gone(settings: Settings, tmp_path: Path) -> None:
    with settings_services(settings) as services:
        memory = Memory(services)
        for n in range(6):
            memory.append("t", [{"id": f"m{n}", "role": "user", "content": f"text {n}"}], resource="r")

        def om(*words: str, code: int = 0) -> str:
            ran = run_om(*words, environment=environment(settings), folder=tmp_path)
            assert ran.code == code, ran
            return ran.out + ran.err

        assert "for good?" in om("rewind", "t", "--to", "4", code=130)
        assert memory.get_thread("t").head_seq == 6
        assert "Gone: 2 messages" in om("rewind", "t", "--to", "4", "--yes")
        assert "Gone: 1 messages" in om("forget", "--thread", "t", "--message", "m1", "--yes")
        assert "say what to forget" in om("forget", code=2)
        assert "Gone: 1 threads" in om("forget", "--resource", "r", "--yes")
        assert memory.threads().items == ()
