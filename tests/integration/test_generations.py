"""Every generation is kept: its text, its changes, and the messages behind it, kept by code (DESIGN 6.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from om_core.client import MemoryClient
from om_core.domain.errors import NotFoundError
from om_core.memory import Memory
from om_core.services.deps import Services
from tests.integration.api_server import api_of
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPTIONS: dict[str, Any] = {
    "model": "offline/extractive",
    "observation": {"message_tokens": 600, "buffer_tokens": 0.25, "block_timeout": 0},
    "reflection": {"observation_tokens": 100_000},
}


@pytest.fixture
def memory(services_with: Callable[..., Services]) -> Iterator[Memory]:
    opened = Memory(services_with(OPTIONS))
    yield opened
    opened.close()


def talk(memory: Memory, thread: str, first: int, count: int) -> None:
    """Facts, each of which is noted and enters the log."""
    for number in range(first, first + count):
        done = "The migration is finished: 42 tables moved. " if number % 3 == 0 else ""
        text = f"{done}My friend number {number} is called Paula-{number} and lives in Lyon. "
        memory.append(thread, [{"role": "user", "content": text + "Trains were late again today. " * 20}], resource="r")
    memory.flush(thread, resource="r", wait_s=0.001)
    work_off(memory.services)
    memory.activate(thread, resource="r")


def reflect(memory: Memory, thread: str) -> None:
    memory.reflect(thread, resource="r")
    work_off(memory.services)
    memory.activate(thread, resource="r")


def ranges(found: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(one["thread"], one["from_seq"], one["to_seq"]) for one in found]


@pytest.mark.report("F07", "F09")
@pytest.mark.conforms("5.2")
def test_each_generation_says_what_it_changed_and_which_messages_stand_behind_it(memory: Memory):
    talk(memory, "t", 0, 6)
    reflect(memory, "t")
    talk(memory, "t", 6, 6)
    reflect(memory, "t")
    first, second = (memory.reflection("t", number, resource="r") for number in (1, 2))
    observed = memory.get_thread("t", resource="r").observed_seq

    assert [one["generation"] for one in memory.reflections("t", resource="r").items] == [2, 1]
    assert (first["state"], second["state"]) == ("superseded", "active")
    assert ranges(first["sources"]) == ranges(first["new_sources"]) == [("t", 1, 6)]
    assert ranges(second["sources"]) == [("t", 1, observed)]
    assert ranges(second["new_sources"]) == [("t", 7, observed)]
    assert (first["against"], second["against"]) == (0, 1)
    assert {line["op"] for line in first["diff"]} == {"gap", "added"}
    added = " ".join(line["text"] for line in second["diff"] if line["op"] == "added")
    assert any(f"Paula-{number}" in added for number in range(6, 12))
    assert memory.reflection("t", 2, resource="r", against=2)["diff"] == []
    assert memory.reflection("t", 2, resource="r", against=0)["diff"] != second["diff"]


@pytest.mark.conforms("5.2")
def test_in_resource_scope_the_messages_of_each_thread_stand_behind_it(services_with: Callable[..., Services]):
    memory = Memory(services_with({**OPTIONS, "scope": "resource"}))
    talk(memory, "a", 0, 4)
    talk(memory, "b", 4, 4)
    reflect(memory, "a")
    assert [name for name, first, _ in ranges(memory.reflection("b", 1, resource="r")["sources"]) if first == 1] == [
        "a",
        "b",
    ]


@pytest.mark.report("E15")
def test_what_is_finished_and_facts_of_the_user_survive_reflections(memory: Memory):
    text = "The migration is finished: 42 tables moved"
    talk(memory, "t", 0, 4)
    reflect(memory, "t")
    talk(memory, "t", 4, 4)
    reflect(memory, "t")
    found = memory.reflection("t", 2, resource="r")
    assert "42 tables" in found["text"], text
    assert "Paula-" in found["text"]
    assert found["tokens"] < found["input_tokens"]


def test_a_generation_that_does_not_exist_is_named(memory: Memory):
    talk(memory, "t", 0, 4)
    reflect(memory, "t")
    for arguments in ({"generation": 7}, {"generation": 1, "against": 7}):
        with pytest.raises(NotFoundError, match="no generation 7; there are 1 to 1"):
            memory.reflection("t", resource="r", **arguments)


def test_api_and_client_show_a_generation(memory: Memory):
    talk(memory, "t", 0, 4)
    reflect(memory, "t")
    expected = memory.reflection("t", 1, resource="r")
    with api_of(memory.services) as api, MemoryClient(str(api.base_url)) as client:
        answered = client.reflection("t", 1, resource="r", against=0)
        assert api.get("/v1/threads/t/reflections/0").status_code == 422
        assert api.get("/v1/threads/t/reflections/9").json()["code"] == "not_found"
    assert answered == expected
    assert answered["sources"][0]["from_seq"] == 1
