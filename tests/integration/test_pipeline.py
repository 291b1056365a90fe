"""The life of messages: stored, observed, activated, reflected, read back. Real Postgres, real jobs, no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.domain.errors import AmbiguousThreadError, ConflictError, LostRaceError, NotFoundError
from om_core.domain.job import JobKind
from om_core.domain.validate_context import check_context
from om_core.services.ingest import StepRequest
from om_core.services.observe import run_observe
from om_core.services.run_jobs import JobRunner
from om_core.turn import parse_messages
from tests.support.fixtures import raw_session
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from om_core.memory import Memory
    from om_core.services.deps import Services

WORDS = "We agreed that the invoice {n} goes to Berlin office on Friday and Maria will call them about the {n} boxes."


def talk(memory: Memory, thread: str, count: int, *, start: int = 0) -> None:
    """Alternating user and assistant messages of about 60 tokens each."""
    for n in range(start, start + count):
        role = "assistant" if n % 2 else "user"
        text = " ".join(WORDS.format(n=n) for _ in range(2))
        memory.append(thread, [{"role": role, "content": f"{n}: {text}"}], resource="r")


def run_all(memory: Memory) -> list[str]:
    """Run every due job of every queue in this thread; the outcomes."""
    runner = JobRunner(memory.services)
    outcomes = []
    try:
        for queue in ("observation", "buffering", "reflection"):
            while (outcome := runner.run(queue)) is not None:
                outcomes.append(outcome)
    finally:
        runner.close()
    return outcomes


def settle(memory: Memory) -> None:
    """Run until nothing is due: a job may make another one due."""
    work_off(memory.services)


@pytest.mark.conforms("10.1")
def test_a_stored_message_has_seq_tokens_and_comes_back_raw(memory: Memory) -> None:
    result = memory.append("t", [{"role": "user", "content": "My favourite colour is blue."}], resource="r")

    assert result.created
    assert [(ref.seq, ref.created) for ref in result.messages] == [(1, True)]
    assert result.messages[0].tokens > 4
    assert memory.context("t", resource="r").to_openai() == [
        {"role": "user", "content": "My favourite colour is blue."}
    ]


@pytest.mark.conforms("3.6")
def test_enough_messages_make_an_observe_job_due_with_the_message_that_made_it(memory: Memory) -> None:
    talk(memory, "t", 10)

    [job] = memory.jobs().items
    assert (job["kind"], job["state"], job["reason"]) == ("observe", "available", "buffer")


def test_one_live_job_at_most_however_many_messages(memory: Memory) -> None:
    talk(memory, "t", 40)

    assert [job["kind"] for job in memory.jobs(state="available").items] == ["observe"]


@pytest.mark.conforms("11.16")
def test_an_observed_range_becomes_a_buffered_chunk_and_messages_stay_raw_until_activation(memory: Memory) -> None:
    talk(memory, "t", 10)
    run_all(memory)

    [chunk] = memory.observations("t", resource="r", state="buffered").items
    assert (chunk["from_seq"], chunk["kind"], chunk["state"]) == (1, "observed", "buffered")
    assert chunk["tokens"] > 0
    assert len(memory.context("t", resource="r").context.messages) == 10


def test_at_the_threshold_chunks_move_into_the_log_and_their_messages_out_of_the_prompt(memory: Memory) -> None:
    for start in range(0, 30, 2):
        talk(memory, "t", 2, start=start)
        settle(memory)
    found = memory.context("t", resource="r")

    assert found.activated is not None
    assert found.activated.reason == "threshold"
    thread = memory.get_thread("t", resource="r")
    assert thread.observed_seq > 0
    assert [seq for seq in found.context.message_seqs if seq] == [
        *(seq for seq in thread.pins),
        *range(thread.observed_seq + 1, thread.head_seq + 1),
    ]
    assert found.context.system[0].kind == "preamble"
    assert check_context(found.context) == []


@pytest.mark.conforms("5.4")
def test_a_long_log_is_reflected_and_the_generation_takes_effect_with_an_activation(memory: Memory) -> None:
    for start in range(0, 120, 2):
        talk(memory, "t", 2, start=start)
        settle(memory)
        memory.context("t", resource="r")

    states = [item["state"] for item in memory.reflections("t", resource="r").items]
    assert "active" in states
    context = memory.context("t", resource="r").context
    assert context.generation >= 1
    assert context.system[1].kind == "reflection"


@pytest.mark.conforms("7")
def test_activation_is_reported_in_the_transaction_that_makes_it(memory: Memory) -> None:
    for start in range(0, 30, 2):
        talk(memory, "t", 2, start=start)
        settle(memory)
    activated = memory.context("t", resource="r").activated
    assert activated is not None

    events = [event for event in memory.events("t", resource="r") if event.type == "data-om-activation"]
    assert [event.payload["cycleId"] for event in events] == list(activated.cycle_ids)
    assert all(event.payload["triggeredBy"] == "threshold" for event in events)


@pytest.mark.conforms("7")
def test_buffering_events_frame_each_run(memory: Memory) -> None:
    talk(memory, "t", 10)
    run_all(memory)

    kinds = [event.type for event in memory.events("t", resource="r")]
    assert kinds == ["data-om-buffering-start", "data-om-buffering-end"]


@pytest.mark.report("C01")
def test_a_repeated_id_stores_nothing_twice(memory: Memory) -> None:
    message = {"role": "user", "id": "m1", "parts": [{"type": "text", "text": "once"}]}
    memory.append("t", [message], resource="r", format="om")

    again = memory.append("t", [message], resource="r", format="om")

    assert again.duplicates == ("m1",)
    assert memory.get_thread("t", resource="r").head_seq == 1


@pytest.mark.report("C02")
def test_a_known_id_with_other_content_is_a_conflict_and_stores_nothing(memory: Memory) -> None:
    memory.append(
        "t", [{"role": "user", "id": "m1", "parts": [{"type": "text", "text": "one"}]}], resource="r", format="om"
    )

    with pytest.raises(ConflictError, match="m1"):
        memory.append(
            "t",
            [
                {"role": "user", "id": "m0", "parts": [{"type": "text", "text": "new"}]},
                {"role": "user", "id": "m1", "parts": [{"type": "text", "text": "two"}]},
            ],
            resource="r",
            format="om",
        )
    assert memory.get_thread("t", resource="r").head_seq == 1


@pytest.mark.report("C09")
def test_a_known_id_with_more_parts_adds_a_continuation_row(memory: Memory) -> None:
    call = {"type": "tool_call", "call_id": "c1", "name": "look", "args": {}}
    first = {"role": "assistant", "id": "m1", "parts": [{"type": "text", "text": "let me see"}]}
    memory.append("t", [first], resource="r", format="om")

    memory.append("t", [{**first, "parts": [*first["parts"], call]}], resource="r", format="om")

    rows = memory.messages("t", resource="r")
    assert [(row.seq, row.continues, row.message.id) for row in rows] == [(1, None, "m1"), (2, 1, None)]
    assert [call.call_id for call in memory.get_thread("t", resource="r").open_calls] == ["c1"]


@pytest.mark.report("C11")
def test_a_resent_history_without_ids_stores_only_what_is_new(memory: Memory) -> None:
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    for message in history:
        memory.append("t", [message], resource="r")

    result = memory.append("t", [*history, {"role": "user", "content": "three"}], resource="r")

    assert [ref.seq for ref in result.messages if ref.created] == [3]
    assert len(result.duplicates) == 2


def test_an_edited_history_is_reported_and_stores_nothing(memory: Memory) -> None:
    for text, role in (("one", "user"), ("two", "assistant"), ("three", "user")):
        memory.append("t", [{"role": role, "content": text}], resource="r")

    result = memory.append(
        "t",
        [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "something else"},
        ],
        resource="r",
    )

    assert result.diverged_at_seq == 3
    assert memory.get_thread("t", resource="r").head_seq == 3


def test_system_messages_and_memorys_own_blocks_are_ignored(memory: Memory) -> None:
    result = memory.append(
        "t", [{"role": "system", "content": "be nice"}, {"role": "user", "content": "hello"}], resource="r"
    )

    assert result.ignored == ("0",)
    assert [row.message.role.value for row in memory.messages("t", resource="r")] == ["user"]


@pytest.mark.report("I03")
def test_equal_thread_ids_of_two_resources_are_two_threads(memory: Memory) -> None:
    memory.append("t", [{"role": "user", "content": "mine"}], resource="r1")
    memory.append("t", [{"role": "user", "content": "yours"}], resource="r2")

    assert memory.context("t", resource="r1").to_openai() == [{"role": "user", "content": "mine"}]
    with pytest.raises(AmbiguousThreadError, match="resource_id"):
        memory.context("t")


def test_a_unique_thread_is_found_without_its_resource(memory: Memory) -> None:
    memory.append("t", [{"role": "user", "content": "mine"}], resource="r1")

    assert memory.append("t", [{"role": "assistant", "content": "yes"}]).messages[0].seq == 2
    with pytest.raises(NotFoundError, match="resource_id"):
        memory.append("nowhere", [{"role": "user", "content": "x"}])


@pytest.mark.report("A08")
def test_an_open_call_holds_the_cut_and_its_pair_is_never_torn(memory: Memory) -> None:
    talk(memory, "t", 6)
    memory.append(
        "t",
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": "boxes"}'}}
                ],
            }
        ],
        resource="r",
    )
    memory.flush("t", resource="r", wait_s=0.01)
    settle(memory)
    thread = memory.get_thread("t", resource="r")

    assert thread.buffered_seq == 6
    assert check_context(memory.context("t", resource="r").context) == []


@pytest.mark.report("J02")
def test_a_late_worker_writes_nothing(memory: Memory) -> None:
    """The fence alone: the range is still free, only the attempt is old."""
    talk(memory, "t", 10)
    system = memory.services.store.system
    first = system.claim(queue="buffering", owner="one", lease_s=0.001)
    assert first is not None
    expire(memory.services, first.job.id)
    second = system.claim(queue="buffering", owner="two", lease_s=60)
    assert second is not None
    assert second.job.attempt == first.job.attempt + 1

    from threading import Event

    with pytest.raises(LostRaceError):
        run_observe(memory.services, "default", first.job, Event())

    assert memory.observations("t", resource="r", state="all").items == ()
    assert memory.job(first.job.id)["lease_owner"] == "two"


def expire(services: Services, job_id: int) -> None:
    """Hand a job whose lease has run out back to the queue, as the sweep does, and make it due at once."""
    from om_core.services.sweep import rescue

    with raw_session(services.store) as session:
        session.hot(
            "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE id = %s RETURNING id",
            (job_id,),
        )
    assert rescue(services, "default", job_id)


@pytest.mark.conforms("4.10", "10.1")
def test_asking_by_hand_observes_below_every_threshold(memory: Memory) -> None:
    talk(memory, "t", 2)
    asked = memory.observe("t", resource="r")
    assert asked["job"] is not None
    settle(memory)

    assert memory.activate("t", resource="r")["activated"]["chunks"] == 1
    assert memory.get_thread("t", resource="r").observed_seq == 2
    assert memory.observe("t", resource="r") == {"job": None, "state": None, "reason": "nothing is pending"}


@pytest.mark.conforms("10.1")
@pytest.mark.report("A15")
def test_status_says_why_nothing_happens(memory: Memory) -> None:
    talk(memory, "t", 1)

    status = memory.status("t", resource="r")
    assert status["why_idle"]["observe"] == "too little is pending for the next chunk"
    assert status["windows"]["active"]["messages"]["threshold"] == 1000
    talk(memory, "t", 10, start=1)
    assert "om worker" in memory.status("t", resource="r")["why_idle"]["workers"]


def test_jobs_are_bound_to_one_kind_per_target(memory: Memory) -> None:
    talk(memory, "t", 10)
    with memory.services.store.reading("default") as tx:
        snapshot = tx.memories.find("r", "t")

    assert snapshot is not None
    assert snapshot.live_jobs == {JobKind.OBSERVE}


def test_a_request_with_a_key_is_recognised_when_it_is_repeated(memory: Memory) -> None:
    request = StepRequest(
        thread="t",
        resource="r",
        messages=parse_messages([{"role": "user", "content": "once"}], "openai"),
        fallback_ids=("key-0",),
    )
    memory.store(request)

    assert memory.store(request).duplicates == ("key-0",)
    assert memory.get_thread("t", resource="r").head_seq == 1


def test_a_whole_history_under_a_new_key_still_stores_only_what_is_new(memory: Memory) -> None:
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    for message in history:
        memory.append("t", [message], resource="r")
    messages = parse_messages([*history, {"role": "user", "content": "three"}], "openai")

    result = memory.store(
        StepRequest(thread="t", resource="r", messages=messages, fallback_ids=("key-0", "key-1", "key-2"))
    )

    assert [(ref.id, ref.seq) for ref in result.messages if ref.created] == [("key-2", 3)]
    assert len(result.duplicates) == 2
    assert all(result.duplicates)
