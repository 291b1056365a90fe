"""What the actor sees when notes take the place of messages: ways in which such systems lost sight of the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.validate_context import check_context
from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from tests.fuzz.actors import Actor, Stage, gated, run_out, run_to
from tests.integration.test_backlog import Failing
from tests.integration.test_observed_text import recorded
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_races import active_chunk, run_one
from tests.support.fixtures import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers


@pytest.fixture
def stage(servers: Servers, database_url: str) -> Iterator[Stage]:
    """Actors of this test stop at every statement, commit and model call."""
    admin = servers.admin(database_url.split("@/")[1].split("?", maxsplit=1)[0])
    with gated():
        yield Stage(admin)
    admin.close()


@pytest.mark.conforms("11.20")
@pytest.mark.report("B01")
@pytest.mark.parametrize("messages", [22, 40])
def test_whatever_a_chunk_covers_the_floor_stays_raw(memory: Memory, messages: int) -> None:
    """A worker that was late makes one chunk of nearly everything; a fifth of the threshold stays all the same."""
    talk(memory, "t", messages)
    settle(memory)

    context = memory.context("t", resource="r").context

    assert context.activated is not None
    assert 200 <= memory.get_thread("t", resource="r").pending_tokens < 1000
    assert max(seq for seq in context.message_seqs if seq) == messages
    assert check_coverage(memory.services, "default", "t", "r").holds


@pytest.mark.conforms("11.28")
@pytest.mark.report("B04")
def test_a_context_is_smaller_after_an_activation_and_reports_it_once(
    services: Services, services_with: Callable[..., Services]
) -> None:
    memory = Memory(services)
    for start in range(0, 20, 5):
        talk(memory, "t", 5, start=start)
        settle(memory)
    before = memory.context("t", resource="r", read_only=True).context.tokens

    after = memory.context("t", resource="r").context.tokens
    assert after.messages < before.messages / 2
    assert after.total < before.total

    again = Memory(services_with())
    reloaded = again.context("t", resource="r").context
    again.activate("t", resource="r")
    again.activate("t", resource="r")
    reported = [e.payload["cycleId"] for e in again.events("t", resource="r") if e.type == "data-om-activation"]
    assert reloaded.tokens == after
    assert len(reported) == len(set(reported)) == len(again.observations("t", resource="r").items)
    stored = again.messages("t", resource="r", limit=100)
    assert [len(row.parts) for row in stored] == [1] * 20, "nothing is added to messages"
    assert sum(row.tokens for row in stored) == before.messages


@pytest.mark.conforms("11.24")
@pytest.mark.report("B06")
def test_an_activation_that_began_with_an_old_look_moves_each_chunk_once(memory: Memory, stage: Stage) -> None:
    for start in range(0, 20, 5):
        talk(memory, "t", 5, start=start)
        settle(memory)

    def read() -> None:
        memory.context("t", resource="r", wait=False)

    reader = Actor("reader", read, None)
    stage.enter(reader)
    run_to(stage, reader, "commit.after")  # has seen that an activation is due, and has not begun it

    memory.activate("t", resource="r")
    memory.reflect("t", resource="r")
    assert run_one(memory.services, "reflection") == "ok"
    talk(memory, "t", 20, start=20)
    settle(memory)
    memory.activate("t", resource="r")
    run_out(stage, reader)

    positions = [chunk["position"] for chunk in memory.observations("t", resource="r", limit=100).items]
    assert positions == list(range(1, len(positions) + 1))
    assert memory.context("t", resource="r").context.generation == 1
    report = check_coverage(memory.services, "default", "t", "r")
    assert report.holds and report.misfits == ()


@pytest.mark.report("B10", "C07", "G02")
def test_another_agent_gets_the_notes_and_stores_nothing_that_memory_made_up(memory: Memory) -> None:
    talk(memory, "parent", 20)
    settle(memory)
    handed = memory.context("parent", resource="r").to_openai()
    assert "Berlin" in str(handed[0]["content"]), "the notes go with it"

    memory.append("child", handed, resource="r")

    rows = memory.messages("child", resource="r", limit=100)
    said = {row.message.parts for row in memory.messages("parent", resource="r", limit=100)}
    assert 0 < len(rows) < 20
    assert [row for row in rows if row.message.parts not in said] == []


@pytest.mark.conforms("11.14")
@pytest.mark.report("B11")
def test_after_an_activation_in_the_middle_of_a_task_the_next_step_knows_it(services: Services) -> None:
    task = "\n<current-task>\nMigrate the database; step 2 of 3, the indexes, is next.\n</current-task>"
    memory, _ = recorded(services, lambda text: text.split("<current-task>")[0] + task)
    talk(memory, "t", 22)
    settle(memory)
    memory.append("t", [{"role": "user", "content": "And now?"}], resource="r")

    context = memory.context("t", resource="r")

    assert context.activated is not None
    sent = context.to_openai()
    assert "step 2 of 3" in str(sent[-1]["content"])
    assert {"role": "user", "content": "And now?"} in sent
    assert check_context(context.context, question_seq=23) == []


@pytest.mark.report("B15")
def test_a_prompt_that_is_too_long_for_its_model_is_had_shorter_while_the_observer_fails(
    services_with: Callable[..., Services],
) -> None:
    """An agent's loop: the provider refuses the first prompt; the second fits, without a call and without a loss."""
    failing = Failing("I'm sorry, I can't help.")
    memory = Memory(services_with({**SMALL, "model": "openai/failing"}, model=failing))
    talk(memory, "t", 40)
    settle(memory)
    calls = len(failing.inputs)
    refused: list[int] = []

    def answer(max_tokens: int | None) -> dict[str, Any]:
        context = memory.context("t", resource="r", max_tokens=max_tokens)
        if context.context.tokens.total > 1_500:
            refused.append(context.context.tokens.total)
            return answer(1_500)
        return context.to_json("openai")

    sent = answer(None)

    assert len(refused) == 1
    assert sent["trimmed"]["messages"] > 0
    assert "39:" in str(sent["messages"][-1])
    assert len(failing.inputs) == calls
    assert memory.get_thread("t", resource="r").observed_seq == 0, "what was left out is still to be noted"
    assert check_coverage(memory.services, "default", "t", "r").holds


@pytest.mark.conforms("11.19")
@pytest.mark.report("B05")
@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_the_question_is_in_every_prompt_of_its_turn_in_either_form(memory: Memory, form: str) -> None:
    active_chunk(memory)
    with memory.turn("t", "r") as turn:
        turn.start([{"role": "user", "content": "Which of the boxes is blue?"}])
        for number in range(12):
            said = {"role": "assistant", "content": f"{number} I look. " + "The invoice goes to Berlin. " * 20}
            context = turn.step([said])
            sent = context.to_openai() if form == "openai" else context.to_anthropic()["messages"]
            assert "Which of the boxes is blue?" in str(sent)
            settle(memory)
            memory.activate("t", resource="r")

    thread = memory.get_thread("t", resource="r")
    assert thread.observed_seq > thread.question_seq
