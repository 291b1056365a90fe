"""Backlog and poison (DESIGN 6.1, 6.5, 6.7): much that waits, what never works, and that neither is tried at every turn."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from om_core.memory import Memory
from om_core.ports import ModelReply
from om_core.services.coverage import check_coverage
from om_core.services.run_jobs import JobRunner
from om_core.testing.scripted_replies import answer_reply, traces
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.integration.api_server import api_of
from tests.integration.test_sweep import shift
from tests.support.fixtures import COUNTER, SMALL
from tests.support.jobs import work_off
from tests.support.om_command import run_om
from tests.support.processes import environment
from tests.support.services import scripted_settings, settings_services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from threading import Event

    from om_core.config import Settings
    from om_core.ports import ModelRequest
    from om_core.services.deps import Services

MILLION = 1_000_000
MESSAGES = 1_000
WINDOW = 128_000
REFUSAL = "I'm sorry, I can't help."


class Tracing:
    """Answers at once, with the tokens of the messages it was given; remembers the size of each input."""

    def __init__(self) -> None:
        self.inputs: list[int] = []

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        prompt = [{"role": message.role, "content": message.content} for message in request.prompt]
        self.inputs.append(sum(COUNTER.count_text(str(message["content"])) for message in prompt))
        text = answer_reply({"messages": prompt})
        return ModelReply(text=text, model=request.model, input_tokens=1, output_tokens=1, finish_reason="stop")

    def window_tokens(self, model: str) -> int | None:
        return WINDOW


def say(memory: Memory, first: int, count: int, *, words: int = 10) -> None:
    """Messages of ten tokens for each of `words`, with a token to follow each by."""
    for start in range(first, first + count, 250):
        batch = [
            {
                "id": f"m{n}",
                "role": "assistant" if n % 2 else "user",
                "content": f"TRACE-{n} " + "the blue box goes to the Berlin office on Friday. " * words,
            }
            for n in range(start, min(start + 250, first + count))
        ]
        memory.append("t", batch, resource="r")


def covered(memory: Memory) -> list[tuple[int, int]]:
    """Ranges of the chunks, in the order in which they were stored."""
    chunks: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = memory.observations("t", resource="r", state="all", cursor=cursor, limit=200)
        chunks += page.items
        if (cursor := page.next_cursor) is None:
            return [(chunk["from_seq"], chunk["to_seq"]) for chunk in sorted(chunks, key=lambda chunk: chunk["id"])]


@pytest.mark.report("E07", "J09")
def test_a_million_waiting_tokens_drain_in_order_while_turns_go_on(services_with: Callable[..., Services]) -> None:
    model = Tracing()
    services = services_with({"model": "openai/instant"}, model=model)
    memory = Memory(services)
    say(memory, 0, MESSAGES, words=100)
    waiting = memory.get_thread("t", resource="r")
    assert waiting.pending_tokens > MILLION
    runner = JobRunner(services)

    outcomes = []
    while (outcome := runner.run("buffering")) is not None:
        outcomes.append(outcome)
        n = MESSAGES + len(outcomes) - 1
        memory.append("t", [{"id": f"m{n}", "role": "user", "content": f"TRACE-{n} And now?"}], resource="r")
        assert f"TRACE-{n} And now?" in str(memory.context("t", resource="r", max_tokens=60_000).to_openai()[-2:])
    runner.close()

    ranges = covered(memory)
    assert set(outcomes) == {"ok"}
    assert len(outcomes) < MILLION / (WINDOW / 2), "a job takes what fits into the window, not one buffer after another"
    assert max(model.inputs) < WINDOW
    assert [start for start, _ in ranges] == [1, *(end + 1 for _, end in ranges[:-1])]
    memory.observe("t", resource="r")
    work_off(services)
    notes = "\n".join(chunk["text"] for chunk in memory.observations("t", resource="r", state="all", limit=200).items)
    assert sorted(traces(notes)) == sorted(f"TRACE-{n}" for n in range(MESSAGES + len(outcomes)))
    assert notes.count("TRACE-") == MESSAGES + len(outcomes)
    assert check_coverage(services, "default", "t", "r").holds


@pytest.mark.report("B15")
@pytest.mark.parametrize("max_tokens", [2_000, 6_000])
def test_a_window_above_the_cap_is_trimmed_and_still_observed(
    services_with: Callable[..., Services], max_tokens: int
) -> None:
    services = services_with({**SMALL, "model": "openai/instant"}, model=Tracing())
    memory = Memory(services)
    say(memory, 0, 100)

    context = memory.context("t", resource="r", max_tokens=max_tokens).context

    assert context.trimmed is not None
    assert context.tokens.total <= max_tokens
    shown = {seq for seq in context.message_seqs if seq is not None}
    assert {99, 100} <= shown
    left_out = [f"TRACE-{seq - 1}" for seq in range(1, 101) if seq not in shown]
    memory.observe("t", resource="r")
    work_off(services)
    notes = "\n".join(chunk["text"] for chunk in memory.observations("t", resource="r", state="all").items)
    assert left_out
    assert [trace for trace in left_out if trace not in traces(notes)] == []
    assert check_coverage(services, "default", "t", "r").holds


@contextmanager
def parked(settings: Settings) -> Iterator[tuple[Memory, Settings, list[bool]]]:
    """A thread whose first message no Observer can read; [False] in the list ends that."""
    poisoned = [True]

    def script(request: dict[str, Any], number: int) -> Reply:
        broken = poisoned[0] and "TRACE-0 " in str(request["messages"][-1]["content"]).split("<history-")[-1]
        return Reply(text=REFUSAL if broken else answer_reply(request))

    options: dict[str, Any] = {**SMALL, "job": {"max_failures": 1, "backoff_base": 1, "backoff_cap": 1}}
    options.pop("model")
    with ScriptedModelServer(script) as server:
        scripted = replace(scripted_settings(settings, server), options=options)
        with settings_services(scripted) as services:
            memory = Memory(services)
            say(memory, 0, 6, words=4)
            for _ in range(12):
                shift(services, "UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'retryable'")
                work_off(services)
            yield memory, scripted, poisoned


@pytest.mark.report("J10")
@pytest.mark.parametrize("by", ["command", "api"])
def test_discarded_work_is_listed_with_its_reason_and_redriven(settings: Settings, tmp_path: Path, by: str) -> None:
    with parked(settings) as (memory, scripted, poisoned):
        first = memory.observations("t", resource="r", state="all").items[0]
        assert (first["kind"], first["from_seq"], first["to_seq"]) == ("parked", 1, 1)

        [job] = listed_and_redriven(memory, scripted, tmp_path, by)

        assert job["reason"] == "parked"
        assert "refus" in job["error"]["message"]
        poisoned[0] = False
        work_off(memory.services)
        first = memory.observations("t", resource="r", state="all").items[0]
        assert (first["kind"], "TRACE-0" in first["text"]) == ("observed", True)
        assert memory.jobs(state="discarded").items == ()


def listed_and_redriven(memory: Memory, settings: Settings, folder: Path, by: str) -> list[dict[str, Any]]:
    """What an operator sees, and the redrive of the first of it."""
    if by == "command":

        def om(*words: str) -> Any:
            return run_om(*words, "--json", environment=environment(settings), folder=folder).json

        found = om("jobs", "--state", "discarded")["items"]
        om("jobs", "retry", str(found[0]["id"]))
        return list(found)
    with api_of(memory.services) as client:
        found = client.ok("GET", "/v1/jobs", params={"state": "discarded"})["items"]
        client.ok("POST", f"/v1/jobs/{found[0]['id']}/retry")
        return list(found)


class Failing(Tracing):
    """Fails every call in one of these ways; counts them."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        self.inputs.append(0)
        return ModelReply(text=self.answer, model=request.model, input_tokens=1, output_tokens=1, finish_reason="stop")


@pytest.mark.report("Q03")
def test_what_failed_is_not_tried_again_at_every_turn(services_with: Callable[..., Services]) -> None:
    """Neither by the turn nor by a worker that is free all the time: the job waits for its time."""
    model = Failing(REFUSAL)
    services = services_with(
        {**SMALL, "model": "openai/failing", "job": {"backoff_base": "5m", "backoff_cap": "5m"}}, model=model
    )
    memory = Memory(services)
    say(memory, 0, 10, words=6)
    work_off(services)
    assert len(model.inputs) == 1

    for n in range(10, 30):
        say(memory, n, 1, words=6)
        memory.context("t", resource="r")
        work_off(services)

    assert len(model.inputs) == 1
    assert len(memory.jobs(kind="observe").items) == 1


def test_a_reflection_that_was_given_up_is_not_tried_again_at_every_turn(
    services_with: Callable[..., Services],
) -> None:
    options = {**SMALL, "model": "openai/failing", "job": {"max_failures": 1}}
    memory = Memory(services_with(options, model=Tracing()))
    say(memory, 0, 60, words=3)
    failing = Failing(REFUSAL)
    services = services_with(options, model=failing)
    runner = JobRunner(memory.services)
    while runner.run("buffering") is not None:
        pass
    runner.close()
    memory.activate("t", resource="r")
    memory.reflect("t", resource="r")
    work_off(services)
    [given_up] = memory.jobs(kind="reflect").items
    assert given_up["state"] == "discarded"
    calls = len(failing.inputs)

    for n in range(60, 62):
        say(memory, n, 1, words=1)
        memory.context("t", resource="r")
        work_off(services)

    assert len(failing.inputs) == calls
    assert [job["id"] for job in memory.jobs(kind="reflect").items] == [given_up["id"]]
