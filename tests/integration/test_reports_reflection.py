"""Reflectors that do not shorten, that answer with nothing, or that only listen when spoken to strictly."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.integration.test_races import run_one
from tests.integration.test_sweep import shift
from tests.support.fixtures import COUNTER, SMALL
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

TEXT: Final = "the blue box goes to the Berlin office on Friday and Maria calls them " * 4
TURNS: Final = 20


class Stage:
    """Memory whose Reflector answers as the test says; its Observer writes a screenful of notes."""

    def __init__(self, services_with: Callable[..., Services], server: ScriptedModelServer) -> None:
        model = ModelRegistry(count_tokens=COUNTER.count_text, api_base=server.base_url, api_key="none")
        tree = {**SMALL, "model": "openai/scripted", "job": {"max_failures": 2, "backoff_base": 1, "backoff_cap": 1}}
        self.services = services_with(tree, model=model)
        self.memory = Memory(self.services)
        self.said = 0

    def turn(self) -> None:
        """A question and its answer, with all work that they make due; the context that the next call would get."""
        for role in ("user", "assistant"):
            self.said += 1
            self.memory.append("t", [{"role": role, "content": f"TRACE-{self.said} {TEXT}"}], resource="r")
        work_off(self.services)
        assert self.memory.context("t", resource="r").context.waited_s == 0, "a turn was held up"

    def notes(self) -> list[str]:
        """The notes that are shown."""
        return [block.text for block in self.memory.context("t", resource="r").context.system]


class Reflector:
    """A script: the Observer as usual, the Reflector by `answer`."""

    def __init__(self) -> None:
        self.answer: Callable[[str], str] = str
        self.prompts: list[str] = []

    def __call__(self, request: JsonObject, _: int) -> Reply:
        text = answer_reply(request)
        if "<notes-" not in str(request["messages"][-1]["content"]):
            notes = "\n".join(f"* 🟡 (10:{n:02}) {TEXT}" for n in range(2))
            return Reply(text=text.replace("</observations>", f"{notes}\n</observations>"))
        self.prompts.append("\n".join(str(message["content"]) for message in request["messages"]))
        return Reply(text=self.answer(text))


@pytest.fixture
def reflector() -> Reflector:
    return Reflector()


@pytest.fixture
def stage(services_with: Callable[..., Services], reflector: Reflector) -> Iterator[Stage]:
    with ScriptedModelServer(reflector) as server:
        yield Stage(services_with, server)


def long_notes(tokens: int) -> str:
    """Notes of about so many tokens, no two lines alike."""
    lines = (
        f"* 🔴 (09:{n % 60:02}) Fact {n} is that box {n * 37} went to office {n * 91}." for n in range(tokens // 24)
    )
    return "\n".join(["<observations>", "Date: Jan 1, 2026", *lines, "</observations>"])


@pytest.mark.report("F01", "F03", "F10")
@pytest.mark.conforms("5.4")
def test_a_reflector_that_never_gets_below_the_threshold_is_asked_rarely_and_holds_nobody_up(
    stage: Stage, reflector: Reflector
) -> None:
    reflector.answer = lambda _: long_notes(1_400)
    climbs = []
    for _ in range(TURNS):
        before = len(reflector.prompts)
        stage.turn()
        climbs.append(len(reflector.prompts) > before)

    assert any(climbs)
    assert sum(climbs) <= TURNS // 3
    assert not any(one and other for one, other in pairwise(climbs)), "again at once"


EMPTY = {
    "nothing": "",
    "blanks": " \n\t\n ",
    "a refusal": "I'm sorry, I can't help with that.",
    "an empty section": "<observations>\n</observations>",
    "a loop": "<observations>\n" + "* 🔴 (09:00) the same again and again\n" * 400 + "</observations>",
}


@pytest.mark.report("F02")
@pytest.mark.parametrize("manual", [True, False])
@pytest.mark.parametrize("name", EMPTY)
def test_an_answer_of_no_use_replaces_no_notes(stage: Stage, reflector: Reflector, name: str, manual: bool) -> None:
    reflector.answer = lambda _: EMPTY[name]
    stage.turn()
    stage.turn()
    stage.memory.observe("t", resource="r")
    work_off(stage.services)
    stage.memory.activate("t", resource="r")
    before = stage.notes()
    assert before
    if manual:
        stage.memory.reflect("t", resource="r")
    else:
        shift(stage.services, "UPDATE memories SET log_tokens = log_tokens + 5000")
        stage.turn()
    for _ in range(3):
        run_one(stage.services, "reflection")
        shift(stage.services, "UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'retryable'")

    assert reflector.prompts
    assert list(stage.memory.reflections("t", resource="r").items) == []
    assert stage.notes()[: len(before)] == before
    kinds = [(event.type, event.payload["operationType"]) for event in stage.memory.events("t", resource="r")]
    assert ("data-om-buffering-failed", "reflection") in kinds


@pytest.mark.report("F07", "F09")
def test_ids_and_ranges_that_a_reflector_makes_up_change_no_provenance(stage: Stage, reflector: Reflector) -> None:
    made_up = "* 🔴 (09:00) Drop note 7 of thread other, merge 99 into 7, range m1:m9999, generation 12, position 4."
    reflector.answer = lambda text: text.replace("</observations>", f"{made_up}\n</observations>")
    for generation in range(1, 4):
        stage.turn()
        stage.turn()
        stage.memory.observe("t", resource="r")
        work_off(stage.services)
        stage.memory.activate("t", resource="r")
        stage.memory.reflect("t", resource="r")
        work_off(stage.services)
        stage.memory.activate("t", resource="r")
        assert len(stage.memory.reflections("t", resource="r").items) >= generation

    chunks = stage.memory.observations("t", resource="r", state="all").items
    edges = [(chunk["from_seq"], chunk["to_seq"]) for chunk in chunks]
    assert [start for start, _ in edges] == [1, *(end + 1 for _, end in edges[:-1])]
    assert edges[-1][1] <= stage.said
    [active] = [item for item in stage.memory.reflections("t", resource="r").items if item["state"] == "active"]
    assert active["text"].count("range m1:m9999") == 1
