"""What failed attempts mean: waiting, counting, halving, parking, redriving. The model is scripted at its wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.services.run_jobs import JobRunner
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support.fixtures import COUNTER, SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

OPTIONS = {**SMALL, "model": "openai/scripted", "job": {"max_failures": 2, "backoff_base": 1, "backoff_cap": 1}}


class Scripted:
    """Memory whose models are a scripted server; `script` may be changed at any time."""

    def __init__(self, server: ScriptedModelServer, memory: Memory) -> None:
        self.server = server
        self.memory = memory
        self.script: Callable[[JsonObject], Reply] = lambda request: Reply(text=answer_reply(request))

    def run(self) -> list[str]:
        """Run what is due until nothing is; the outcomes."""
        runner = JobRunner(self.memory.services)
        outcomes = []
        while any(self.memory.jobs(state=state).items for state in ("available", "retryable")):
            for queue in ("observation", "buffering", "reflection"):
                while (outcome := runner.run(queue)) is not None:
                    outcomes.append(outcome)
                    assert len(outcomes) < 200, "the same work comes again for ever"
        runner.close()
        return outcomes

    def talk(self, count: int, *, start: int = 0) -> None:
        for n in range(start, start + count):
            text = f"TRACE-{n} " + "the blue box goes to the Berlin office on Friday " * 6
            message = {"role": "assistant" if n % 2 else "user", "content": text}
            self.memory.append("t", [message], resource="r")


@pytest.fixture
def options() -> JsonObject:
    """Override to run with other options."""
    return OPTIONS


@pytest.fixture
def scripted(services_with: Callable[..., Services], options: JsonObject) -> Iterator[Scripted]:
    holder: list[Scripted] = []
    with ScriptedModelServer(lambda request, number: holder[0].script(request)) as server:
        model = ModelRegistry(count_tokens=COUNTER.count_text, api_base=server.base_url, api_key="none")
        memory = Memory(services_with(options, model=model))
        holder.append(Scripted(server, memory))
        yield holder[0]
        memory.close()


def poison(trace: str) -> Callable[[JsonObject], Reply]:
    """An Observer that answers nonsense whenever this message is in the range."""

    def script(request: JsonObject) -> Reply:
        history = str(request["messages"][-1]["content"])
        return Reply(text="I'm sorry, I can't help." if f"{trace} " in history else answer_reply(request))

    return script


def test_notes_of_a_real_model_over_http_are_stored_with_their_cost(scripted: Scripted) -> None:
    scripted.talk(6)
    scripted.run()

    [chunk] = scripted.memory.observations("t", resource="r", state="buffered").items
    assert all(f"TRACE-{n}" in chunk["text"] for n in range(chunk["from_seq"] - 1, chunk["to_seq"]))
    [job] = scripted.memory.jobs(kind="observe").items
    assert job["input_tokens"] > 0


@pytest.mark.conforms("11.4")
def test_a_poisoned_message_is_isolated_and_parked_and_all_others_are_observed(scripted: Scripted) -> None:
    scripted.script = poison("TRACE-4")
    scripted.talk(8)
    scripted.run()
    scripted.memory.observe("t", resource="r")
    scripted.run()

    chunks = scripted.memory.observations("t", resource="r", state="all").items
    parked = [(chunk["from_seq"], chunk["to_seq"]) for chunk in chunks if chunk["kind"] == "parked"]
    assert parked == [(5, 5)]
    notes = "\n".join(chunk["text"] for chunk in chunks if chunk["kind"] == "observed")
    assert [n for n in range(8) if f"TRACE-{n}" not in notes] == [4]
    assert check_coverage(scripted.memory.services, "default", "t", "r").holds


def test_a_parked_chunk_says_so_and_its_rebuild_waits_for_a_person(scripted: Scripted) -> None:
    scripted.script = poison("TRACE-0")
    scripted.talk(4)
    scripted.run()

    [job] = scripted.memory.jobs(state="discarded").items
    assert (job["kind"], job["reason"]) == ("rebuild", "parked")
    assert "openai/scripted" in job["error"]["message"]


def test_redriving_a_parked_chunk_replaces_its_text_in_place(scripted: Scripted) -> None:
    scripted.script = poison("TRACE-0")
    scripted.talk(4)
    scripted.run()
    [job] = scripted.memory.jobs(state="discarded").items
    scripted.script = lambda request: Reply(text=answer_reply(request))

    scripted.memory.retry_job(job["id"])
    scripted.run()

    first = scripted.memory.observations("t", resource="r", state="all").items[0]
    assert (first["kind"], first["from_seq"], first["to_seq"]) == ("observed", 1, 1)
    assert "TRACE-0" in first["text"]


@pytest.mark.conforms("11.2")
@pytest.mark.report("J10")
@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_outage_waits_and_counts_as_no_failure(scripted: Scripted, status: int) -> None:
    answers = [Reply(status=status, text="no"), Reply(status=status, text="no")]
    scripted.script = lambda request: answers.pop() if answers else Reply(text=answer_reply(request))
    scripted.talk(6)

    outcomes = scripted.run()

    assert outcomes[:3] == ["retry_later", "retry_later", "ok"]
    [job] = [job for job in scripted.memory.jobs(kind="observe").items if job["attempt"] == 3]
    assert job["failures"] == 0
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["retry_later", "retry_later", "ok"]


def test_a_wrong_key_waits_for_somebody_to_fix_it_and_says_so(scripted: Scripted) -> None:
    scripted.script = lambda _: Reply(status=401, text="bad key")
    scripted.talk(6)
    runner = JobRunner(scripted.memory.services)
    assert runner.run("buffering") == "retry_later"
    runner.close()

    error = scripted.memory.status("t", resource="r")["last_error"]
    assert error["code"] == "setup"


@pytest.mark.conforms("11.1")
@pytest.mark.report("E05", "E06")
def test_empty_notes_cover_their_range_and_add_nothing(scripted: Scripted) -> None:
    scripted.script = lambda _: Reply(text="<observations>\n</observations>")
    scripted.talk(6)
    scripted.run()

    [chunk] = scripted.memory.observations("t", resource="r", state="all").items
    assert (chunk["kind"], chunk["text"], chunk["tokens"]) == ("empty", "", 0)


@pytest.mark.conforms("11.13", "11.21")
@pytest.mark.report("K01")
def test_a_failed_attempt_is_an_event_and_turns_go_on(scripted: Scripted) -> None:
    scripted.script = lambda _: Reply(status=503, text="down")
    scripted.talk(6)
    runner = JobRunner(scripted.memory.services)
    runner.run("buffering")
    runner.close()
    scripted.talk(1, start=6)

    kinds = [event.type for event in scripted.memory.events("t", resource="r")]
    assert kinds == ["data-om-buffering-start", "data-om-buffering-failed"]
    assert len(scripted.memory.context("t", resource="r").context.messages) == 7


@pytest.mark.conforms("11.26")
@pytest.mark.report("E07")
@pytest.mark.parametrize("options", [{**OPTIONS, "observation": {**SMALL["observation"], "window_tokens": 5000}}])
def test_a_message_larger_than_the_window_is_observed_in_slices_of_one_chunk(scripted: Scripted) -> None:
    text = " ".join(f"TRACE-{n} is a fact among many others here." for n in range(1, 600))
    scripted.memory.append("t", [{"role": "user", "content": text}], resource="r")
    scripted.run()

    [chunk] = scripted.memory.observations("t", resource="r", state="all").items
    assert len(scripted.server.calls) > 1
    assert [n for n in range(1, 600) if f"TRACE-{n}" not in chunk["text"]] == []


def test_a_long_run_of_messages_inside_one_call_is_read_to_its_end(scripted: Scripted) -> None:
    """More messages than one read takes stand between a call and its result."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    told = [{"role": "assistant", "content": f"TRACE-{n} still looking"} for n in range(2100)]
    memory = scripted.memory
    memory.append("t", [{"role": "user", "content": "look"}], resource="r")
    memory.append("t", [{"role": "assistant", "content": None, "tool_calls": [call]}], resource="r")
    for start in range(0, 2100, 700):
        memory.append("t", told[start : start + 700], resource="r")
    assert memory.jobs().items == ()
    memory.append("t", [{"role": "tool", "tool_call_id": "c1", "content": "found"}], resource="r")

    scripted.run()

    chunks = memory.observations("t", resource="r", state="all", limit=200).items
    assert chunks[-1]["to_seq"] == memory.get_thread("t", resource="r").head_seq
    assert check_coverage(memory.services, "default", "t", "r").holds
