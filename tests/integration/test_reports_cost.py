"""What memory costs: each test is a way in which systems of this kind spent ever more, or lost a prompt cache."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.stable import stable_bytes
from om_core.memory import Memory
from om_core.services.run_jobs import JobRunner
from tests.integration.test_backlog import REFUSAL, Failing, Tracing
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_reports_triggers import Asked
from tests.integration.test_sweep import shift
from tests.support.fixtures import COUNTER, SMALL
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from om_core.domain.message import Message
    from om_core.ports import ModelReply, ModelRequest
    from om_core.services.deps import Services

INSTANT: dict[str, Any] = {**SMALL, "model": "openai/instant"}


@pytest.mark.report("Q01")
def test_a_prompt_is_extended_byte_for_byte_and_keeps_its_log_over_an_activation(
    services_with: Callable[..., Services],
) -> None:
    """Ten turns; where an activation changes the prefix, all blocks of the log before it stay as they were."""
    memory = Memory(services_with({**INSTANT, "reflection": {"observation_tokens": 50_000}}, model=Tracing()))
    before, log, changes = b"", [""], 0
    for n in range(60):
        said = {"role": "assistant" if n % 2 else "user", "content": f"TRACE-{n} the box goes to Berlin. " * 8}
        memory.append("t", [said], resource="r")
        settle(memory)
        context = memory.context("t", resource="r").context
        blocks = [block.text for block in context.system]
        stable = stable_bytes(context.system, context.messages[: context.stable_messages])
        if context.prefix_changed is None:
            assert stable.startswith(before), n
        else:
            changes += 1
            assert blocks[: len(log)] == log or log == [""]
        before, log = stable, blocks or [""]

    assert 3 <= changes < 20


class Babbling(Failing):
    """Fails at 5,000 tokens a call."""

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        reply = super().complete(request, timeout_s=timeout_s, cancelled=cancelled)
        return replace(reply, input_tokens=4_000, output_tokens=1_000)


@pytest.mark.report("Q03")
def test_a_model_that_only_ever_talks_nonsense_is_paid_within_its_budget(
    services_with: Callable[..., Services],
) -> None:
    failing = Babbling(REFUSAL)
    limits = {"tokens_per_day": {"tenant": 40_000}}
    memory = Memory(services_with({**INSTANT, "model": "openai/failing", "limits": limits}, model=failing))
    for n in range(40):
        talk(memory, "t", 4, start=4 * n)
        shift(memory.services, "UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'retryable'")
        work_off(memory.services)

    assert 3 < len(failing.inputs) <= 8
    assert memory.status("t", resource="r")["budget"]["spent"] is True
    assert memory.get_thread("t", resource="r").head_seq == 160
    assert len(memory.context("t", resource="r", wait=False).context.messages) > 0


@pytest.mark.conforms("11.42")
@pytest.mark.report("E08", "E18", "Q05")
def test_what_the_observer_is_given_stays_the_same_size_over_sixty_cycles(
    services_with: Callable[..., Services],
) -> None:
    model = Asked()
    options = {**INSTANT, "reflection": {"observation_tokens": 50_000}}
    options["observation"] = {**SMALL["observation"], "previous_observer_tokens": 400}
    memory = Memory(services_with(options, model=model))
    for n in range(60):
        said = [{"role": "user", "content": f"TRACE-{n}-{k} the box goes to the office. " * 14} for k in range(3)]
        memory.append("t", said, resource="r")
        settle(memory)
        memory.context("t", resource="r")

    sizes = [COUNTER.count_text(shown) for shown in model.shown]
    assert len(sizes) >= 60
    assert max(sizes[-20:]) < max(sizes[20:40]) * 1.1
    assert "TRACE-58" in model.shown[-1], "the newest notes are shown"
    assert "TRACE-2-" not in model.shown[-1], "the oldest are not"


@pytest.mark.conforms("9.5", "11.38")
@pytest.mark.report("Q06")
def test_a_step_counts_what_is_new_and_nothing_twice(services_with: Callable[..., Services]) -> None:
    counter = Counting()
    memory = Memory(services_with(INSTANT, model=Tracing(), counter=counter))
    talk(memory, "t", 20)
    settle(memory)
    memory.context("t", resource="r")
    with memory.turn("t", "r") as turn:
        turn.start([{"role": "user", "content": "go on"}])
        for n in range(20):
            counter.messages = counter.characters = 0
            turn.step([{"role": "assistant", "content": f"step {n} " + "the box goes to Berlin. " * 10}])
            assert counter.messages == 1
            assert counter.characters < 6_000, "memory's own words, and no message"


class Counting:
    """Counts how much is counted."""

    def __init__(self) -> None:
        self.messages = self.characters = 0

    def count_message(self, message: Message, *, model: str | None = None) -> int:
        self.messages += 1
        return COUNTER.count_message(message, model=model)

    def count_text(self, text: str) -> int:
        self.characters += len(text)
        return COUNTER.count_text(text)


@pytest.mark.conforms("11.31")
@pytest.mark.report("Q07")
def test_a_process_remembers_nothing_of_the_threads_it_has_served(services_with: Callable[..., Services]) -> None:
    """Objects that live on after 40 threads are those that lived on after 20."""
    memory = Memory(services_with(INSTANT, model=Tracing()))
    runner = JobRunner(memory.services)

    def serve(first: int) -> int:
        for n in range(first, first + 20):
            talk(memory, f"t{n}", 5)
            assert runner.run("buffering") == "ok"
            memory.context(f"t{n}", resource="r")
            memory.status(f"t{n}", resource="r")
        gc.collect()
        return len(gc.get_objects())

    serve(0)
    before = serve(20)
    after = serve(40)
    runner.close()

    assert after - before < 20 * 15, "at most a small entry per thread, in a table of bounded size"


@pytest.mark.report("Q08")
def test_a_hundred_short_messages_are_a_handful_of_calls(services_with: Callable[..., Services]) -> None:
    """With the default thresholds, and with a worker that is free after every message."""
    model = Tracing()
    memory = Memory(services_with({"model": "openai/instant"}, model=model))
    for n in range(100):
        said = {"role": "assistant" if n % 2 else "user", "content": f"TRACE-{n} " + "yes, the blue box. " * 20}
        memory.append("t", [said], resource="r")
        work_off(memory.services)
    assert 1 <= len(model.inputs) <= 5

    memory.observe("t", resource="r")
    work_off(memory.services)

    assert len(model.inputs) <= 6
    assert memory.get_thread("t", resource="r").buffered_seq == 100
