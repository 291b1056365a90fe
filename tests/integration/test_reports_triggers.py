"""When work begins: each test is a way in which systems of this kind did not begin it, or began it at the wrong time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.validate_context import check_context
from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.services.local import LocalDispatcher, LocalWorker
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import Sweeper
from om_core.testing.scripted_replies import traces
from tests.integration.api_server import api_of
from tests.integration.test_backlog import Tracing
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_sweep import shift
from tests.integration.test_waiting import BLOCK_S, TEXT, fill
from tests.support.fixtures import SMALL
from tests.support.jobs import QUEUES, work_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.ports import ModelReply, ModelRequest
    from om_core.services.deps import Services


class Asked(Tracing):
    """Keeps what the model was shown of each range."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Any = None) -> ModelReply:
        if request.phase == "observe":
            self.shown.append(str(request.prompt[-1].content))
        return super().complete(request, timeout_s=timeout_s, cancelled=cancelled)


def call(number: int, **arguments: str) -> dict[str, Any]:
    """A tool call with its result, in OpenAI's form: `**arguments` has the name and the result."""
    function = {"name": arguments["name"], "arguments": '{"page": ' + str(number) + "}"}
    return {
        "call": {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        },
        "result": {"role": "tool", "tool_call_id": f"c{number}", "content": arguments["result"]},
    }


@pytest.mark.report("A01", "B05")
def test_a_first_message_above_every_threshold_is_observed_and_stays_while_it_is_the_question(
    services_with: Callable[..., Services],
) -> None:
    model = Asked()
    memory = Memory(services_with({**SMALL, "model": "openai/instant"}, model=model))
    memory.append(
        "t", [{"role": "user", "content": "TRACE-1 what is this? " + "a long log line " * 1_300}], resource="r"
    )
    assert memory.get_thread("t", resource="r").pending_tokens > 5_000
    settle(memory)
    assert "TRACE-1" in model.shown[0]

    for number in range(2, 12):
        pair = call(number, name="look", result=f"TRACE-{number} " + "found a blue box " * 60)
        memory.append("t", [pair["call"], pair["result"]], resource="r")
        settle(memory)
        context = memory.context("t", resource="r")
        assert "TRACE-1 what is this?" in str(context.to_openai())
        assert check_context(context.context, question_seq=1) == []

    thread = memory.get_thread("t", resource="r")
    assert thread.observed_seq > 1, "the question was observed, and is raw all the same"
    assert thread.pins[0] == 1


@pytest.mark.report("A02")
def test_a_thread_of_calls_and_short_answers_is_observed_and_known_after_a_restart(
    services_with: Callable[..., Services],
) -> None:
    memory = Memory(services_with({**SMALL, "model": "openai/instant"}, model=Tracing()))
    for number in range(12):
        pairs = [call(2 * number + n, name="look", result=f"TRACE-{2 * number + n} " + "box 17 " * 60) for n in (0, 1)]
        asked = {"role": "user", "content": "Go on."}
        answer = {"role": "assistant", "content": "Done, next one please."}
        turn = [asked, *(message for pair in pairs for message in pair.values()), answer]
        memory.append("t", turn, resource="r", end_of_turn=True)
        if number == 5:
            assert {f"TRACE-{n}" for n in range(12)} <= seen(memory), "raw, as long as there are no notes"
    settle(memory)

    again = Memory(services_with({**SMALL, "model": "openai/instant"}, model=Tracing()))
    again.append("t", [{"role": "user", "content": "What was the second result?"}], resource="r")

    context = again.context("t", resource="r").context
    assert context.activated is not None
    assert {f"TRACE-{n}" for n in range(24)} <= seen(again)
    assert check_coverage(again.services, "default", "t", "r").holds


def seen(memory: Memory) -> set[str]:
    """Tokens to follow results by, wherever they stand in the prompt."""
    return set(traces(str(memory.context("t", resource="r").to_openai())))


@pytest.mark.conforms("11.23")
@pytest.mark.report("A03")
def test_a_small_chunk_is_not_taken_for_the_whole_tail(services_with: Callable[..., Services]) -> None:
    """A ready chunk covers a tenth of a tail that is far above the limit: the turn asks for the rest, and waits for it."""
    local = LocalDispatcher()
    options = {**SMALL, "observation": {**SMALL["observation"], "block_timeout": BLOCK_S * 1000}}
    services = services_with(options)
    memory = Memory(services)
    fill(memory, 5)
    work_off(services)
    assert memory.get_thread("t", resource="r").buffered_seq > 0
    fill(memory, 40)
    worked = services_with(options, dispatcher=local)
    worker = LocalWorker(worked, local, period_s=0.2)
    worker.start()

    waiting = Memory(worked)
    context = waiting.context("t", resource="r").context
    waiting.close()
    worker.stop()

    assert context.activated is not None
    assert context.activated.chunks >= 2
    assert context.tokens.messages <= 1000
    assert not context.over_budget


@pytest.mark.report("A04")
def test_work_that_was_missed_is_made_up_for_above_the_threshold_without_a_wait(
    services_with: Callable[..., Services],
) -> None:
    options = {**SMALL, "observation": {**SMALL["observation"], "block_timeout": BLOCK_S * 1000}}
    services = services_with(options)
    memory = Memory(services)
    fill(memory, 17)
    before = memory.get_thread("t", resource="r").pending_tokens
    assert 1_000 < before < 1_200
    services.store.system.heartbeat(name="w", queues=["observation", "buffering"], slots=1, running=0, version="")

    for _ in range(3):
        fill(memory, 1)
        assert memory.context("t", resource="r").context.waited_s == 0
        work_off(services)

    assert memory.context("t", resource="r").context.waited_s == 0
    assert memory.get_thread("t", resource="r").pending_tokens < before / 2


@pytest.mark.conforms("11.8")
@pytest.mark.report("A05", "D10", "L04")
def test_a_long_result_that_the_observer_is_shown_in_part_is_due_by_its_full_size_and_once(
    services_with: Callable[..., Services],
) -> None:
    model = Asked()
    options = {"model": "openai/instant", "observation": {"message_tokens": 10_000, "buffer_tokens": 0.2}}
    memory = Memory(services_with(options, model=model))
    pair = call(1, name="read", result="the quick brown fox jumps over the lazy dog. " * 4_000)
    memory.append("t", [{"role": "user", "content": "read it"}, pair["call"], pair["result"]], resource="r")
    assert memory.get_thread("t", resource="r").pending_tokens > 40_000

    for number in range(5):
        settle(memory)
        memory.context("t", resource="r")
        memory.append("t", [{"role": "assistant", "content": f"{number} " + "I read on. " * 90}], resource="r")

    assert ["brown fox" in shown for shown in model.shown].count(True) == 1
    assert model.inputs[0] < 20_000
    thread = memory.get_thread("t", resource="r")
    assert thread.observed_seq == 3
    assert thread.pending_tokens < 10_000


PARTS = {
    "reasoning, then words": [
        {"type": "reasoning", "text": "let me think " * 900},
        {"type": "text", "text": "TRACE-2 the box is blue " * 90},
    ],
    "words and a call, then its result": [
        {"type": "text", "text": "TRACE-2 I look at the box " * 90},
        {"type": "tool_call", "call_id": "c1", "name": "look", "args": {}},
    ],
}


@pytest.mark.conforms("3.6", "11.27")
@pytest.mark.report("A07")
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_reply_that_is_stored_in_two_parts_is_not_observed_between_them(
    services_with: Callable[..., Services], parts: list[dict[str, Any]]
) -> None:
    model = Asked()
    memory = Memory(services_with({**SMALL, "model": "openai/instant"}, model=model))
    memory.append("t", [{"role": "user", "content": "TRACE-1 what colour is the box?"}], resource="r")
    waits = parts[1]["type"] == "tool_call"
    reply: dict[str, Any] = {"role": "assistant", "id": "a", "parts": parts if waits else parts[:1]}
    memory.append("t", [reply], resource="r", format="om")
    settle(memory)
    assert not any("TRACE-2" in shown for shown in model.shown), "half a reply was observed"

    if waits:
        rest: dict[str, Any] = {
            "role": "tool",
            "parts": [{"type": "tool_result", "call_id": "c1", "result": "TRACE-3"}],
        }
    else:
        rest = {**reply, "parts": [*parts, {"type": "text", "text": "TRACE-3 and it is heavy."}]}
    memory.append("t", [rest], resource="r", format="om")
    memory.observe("t", resource="r")
    settle(memory)

    [shown] = [shown for shown in model.shown if "TRACE-2" in shown]
    assert "TRACE-3" in shown
    assert "let me think" not in shown, "a model's thoughts are not for the Observer"


@pytest.mark.conforms("11.25")
@pytest.mark.report("A09")
def test_the_prompt_of_a_long_tool_loop_stays_below_its_ceiling(services: Services) -> None:
    memory = Memory(services)
    sizes = []
    with memory.turn("t", "r") as turn:
        turn.start([{"role": "user", "content": "Read all twenty pages."}])
        for number in range(20):
            pair = call(number, name="read", result=f"page {number}: " + "the invoice goes to Berlin on Friday. " * 18)
            context = turn.step([pair["call"], pair["result"]])
            sizes.append(context.context.tokens.messages)
            assert "Read all twenty pages." in str(context.to_openai())
            work_off(services)

    assert sum(row.tokens for row in memory.messages("t", resource="r", limit=100)) > 3_000
    assert max(sizes[14:]) < 1_200
    assert memory.get_thread("t", resource="r").turn == 1


@pytest.mark.conforms("3.6")
@pytest.mark.report("A12")
@pytest.mark.parametrize(("on", "calls"), [(False, 0), (True, 1)])
def test_closing_a_turn_is_observed_once_where_that_is_asked_for(
    services_with: Callable[..., Services], *, on: bool, calls: int
) -> None:
    model = Asked()
    observation = {**SMALL["observation"], **({"buffer_on_idle": True} if on else {})}
    services = services_with({**SMALL, "model": "openai/instant", "observation": observation}, model=model)
    memory = Memory(services)
    with memory.turn("t", "r") as turn:
        turn.start([{"role": "user", "content": "TRACE-1 hello"}])
        turn.step([{"role": "assistant", "content": "TRACE-2 hi there"}])
    sweeper = Sweeper(services, JobRunner(services), name="w", queues=QUEUES, slots=4, period_s=60)
    for _ in range(3):
        shift(services, "UPDATE threads SET idle_due_at = clock_timestamp() WHERE idle_due_at IS NOT NULL")
        sweeper.sweep_once()
        work_off(services)

    assert len(model.shown) == calls
    assert len(memory.observations("t", resource="r", state="all").items) == calls


@pytest.mark.report("A15")
def test_messages_of_a_client_that_asks_for_nothing_are_observed(services: Services) -> None:
    with api_of(services) as client:
        for number in range(40):
            said = [{"role": "assistant" if n % 2 else "user", "content": f"{number}: {TEXT}"} for n in range(5)]
            client.ok("POST", "/v1/threads/t/messages", json={"resource_id": "r", "messages": said})
        waiting = client.ok("GET", "/v1/threads/t/status")
        assert "om worker" in waiting["why_idle"]["workers"]

        work_off(services)

        assert len(client.ok("GET", "/v1/threads/t/observations", params={"state": "all"})["items"]) >= 1
        assert client.ok("GET", "/v1/threads/t/status")["buffered_seq"] > 150


@pytest.mark.report("A06")
def test_a_short_session_is_observed_after_a_while_without_another_message(services: Services) -> None:
    memory = Memory(services)
    talk(memory, "t", 3)
    settle(memory)
    assert memory.observations("t", resource="r", state="all").items == ()
    shift(services, "UPDATE threads SET oldest_pending_at = oldest_pending_at - interval '2 h', idle_due_at = now()")

    Sweeper(services, JobRunner(services), name="w", queues=QUEUES, slots=4, period_s=60).sweep_once()
    settle(memory)

    [chunk] = memory.observations("t", resource="r", state="all").items
    assert (chunk["from_seq"], chunk["to_seq"]) == (1, 3)
