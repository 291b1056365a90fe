"""Messages: stored once, whole and in order. Each test is a way in which systems of this kind lost or doubled them."""

from __future__ import annotations

import threading
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.errors import ConflictError, InvalidInputError
from om_core.domain.message import Message, Role, Text
from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.testing.scripted_replies import traces
from tests.integration.api_server import api_of
from tests.integration.test_backlog import REFUSAL, Failing, Tracing, covered
from tests.integration.test_observed_text import recorded
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_reports_triggers import Asked, call
from tests.support.fixtures import SMALL, raw_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.services.deps import Services

INSTANT: dict[str, Any] = {**SMALL, "model": "openai/instant"}


def history(count: int, *, first: int = 0) -> list[dict[str, Any]]:
    """Messages of a client that keeps the conversation, in OpenAI's form."""
    return [
        {"role": "assistant" if n % 2 else "user", "content": f"TRACE-{n} the box goes to the office. " * 6}
        for n in range(first, first + count)
    ]


@pytest.mark.report("C01")
def test_the_user_s_message_is_one_row_after_a_turn_of_many_steps(services_with: Callable[..., Services]) -> None:
    """Observed in the middle of the turn; the client sends all it has at each step."""
    memory = Memory(services_with(INSTANT, model=Tracing()))
    sent = [{"role": "user", "content": "TRACE-0 read five pages " * 20}]
    with memory.turn("t", "r") as turn:
        turn.start(sent)
        for number in range(1, 6):
            pair = call(number, name="read", result=f"TRACE-{number} " + "blue box " * 90)
            sent += [pair["call"], pair["result"]]
            turn.step(sent)
            settle(memory)

    rows = memory.messages("t", resource="r", limit=100)
    assert [row.message.role.value for row in rows] == ["user", *["assistant", "tool"] * 5]
    assert memory.get_thread("t", resource="r").buffered_seq > 1


@pytest.mark.conforms("11.34")
@pytest.mark.report("C02")
def test_savings_of_one_reply_in_pieces_lose_none_of_them(memory: Memory) -> None:
    parts: list[dict[str, Any]] = [
        {"type": "tool_call", "call_id": "c1", "name": "look", "args": {"q": 1}},
        {"type": "tool_result", "call_id": "c1", "result": "found"},
        {"type": "text", "text": "It is blue."},
    ]

    def save(*saved: dict[str, Any]) -> None:
        memory.append("t", [{"role": "assistant", "id": "a", "parts": list(saved)}], resource="r", format="om")

    save(*parts[:2])
    with pytest.raises(ConflictError, match="'a'"):
        save(parts[2])
    assert [len(row.parts) for row in memory.messages("t", resource="r")] == [2], "nothing was overwritten"
    save(*parts)
    save(*parts[:2])

    stored = [part for row in memory.messages("t", resource="r") for part in row.parts]
    assert [type(part).__name__ for part in stored] == ["ToolCall", "ToolResult", "Text"]


@pytest.mark.report("C03")
def test_messages_are_stored_alike_with_a_good_observer_a_failing_one_and_none(
    services_with: Callable[..., Services],
) -> None:
    tables = []
    for name, model in (("good", Tracing()), ("failing", Failing(REFUSAL)), ("none", None)):
        memory = Memory(services_with(INSTANT, model=model or Tracing()))
        for n in range(12):
            pair = call(n, name="look", result="box " * 50)
            memory.append(name, [*history(2, first=2 * n), pair["call"], pair["result"]], resource="r")
            if model is not None:
                settle(memory)
                memory.context(name, resource="r")
        tables.append(
            [
                (row.seq, row.message.role, row.parts, row.tokens, row.turn)
                for row in memory.messages(name, resource="r", limit=100)
            ]
        )

    assert len(tables[0]) == 48
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.report("C06", "C08")
def test_what_is_shown_for_one_call_leaves_no_trace(services_with: Callable[..., Services]) -> None:
    model = Asked()
    memory = Memory(services_with(INSTANT, model=model))
    page = Message(role=Role.USER, parts=(Text(text="The screen shows a cart with 3 items. " * 9),))
    for n in range(30):
        memory.append("t", history(1, first=n), resource="r")
        context = memory.context("t", resource="r", ephemeral=(page,))
        assert str(context.to_openai()).count("The screen shows a cart with 3 items. " * 9) == 1
        settle(memory)

    with raw_session(memory.services.store) as session:
        [(found,)] = session.hot(
            "SELECT (SELECT count(*) FROM messages WHERE parts::text LIKE '%%screen%%')"
            " + (SELECT count(*) FROM chunks WHERE text LIKE '%%screen%%')",
            (),
        )
    assert found == 0
    assert model.shown
    assert not any("screen" in shown for shown in model.shown)
    rows = memory.messages("t", resource="r", limit=100)
    tail = memory.get_thread("t", resource="r")
    assert tail.pending_tokens == sum(row.tokens for row in rows if row.seq > tail.observed_seq)


@pytest.mark.report("C09")
def test_what_comes_of_a_message_after_it_was_observed_is_a_row_of_its_own(
    services_with: Callable[..., Services],
) -> None:
    model = Asked()
    memory = Memory(services_with(INSTANT, model=model))
    parts = [{"type": "text", "text": f"TRACE-{n} the box goes to the office. " * 9} for n in range(1, 6)]
    memory.append("t", [{"role": "user", "content": "TRACE-0 go on " * 60}], resource="r")

    def save(count: int) -> list[tuple[str, int]]:
        message = {"role": "assistant", "id": "a", "parts": parts[:count]}
        stored = memory.append("t", [message], resource="r", format="om").messages
        return [(ref.id, ref.seq) for ref in stored]

    assert save(2) == [("a", 2)]
    memory.observe("t", resource="r")
    settle(memory)
    memory.activate("t", resource="r")
    assert save(5) == [("a", 2), ("a", 3)], "both rows are named to the client"

    rows = memory.messages("t", resource="r")
    assert [(row.seq, row.continues, len(row.parts)) for row in rows] == [(1, None, 1), (2, None, 2), (3, 2, 3)]
    memory.observe("t", resource="r")
    settle(memory)
    seen = [trace for shown in model.shown for trace in sorted(traces(shown.split("<history-")[-1]))]
    assert sorted(seen) == [f"TRACE-{n}" for n in range(6)], "each part was observed once"
    assert check_coverage(memory.services, "default", "t", "r").holds


@pytest.mark.report("C11")
@pytest.mark.parametrize("ids", ["none", "new ones at each request"])
@pytest.mark.parametrize("by", ["append", "turn", "http"])
def test_a_history_that_is_sent_again_adds_its_new_message_only(
    services_with: Callable[..., Services], by: str, ids: str
) -> None:
    memory = Memory(services_with(INSTANT, model=Tracing()))
    for n in range(0, 30, 2):
        memory.append("t", history(2, first=n), resource="r")
        settle(memory)
    memory.activate("t", resource="r")
    observed = memory.get_thread("t", resource="r").observed_seq
    assert 10 < observed <= 30
    sent = [{"role": "system", "content": "be nice"}, *history(31)]
    if ids != "none":
        sent = [{**message, "id": f"fresh-{n}"} for n, message in enumerate(sent)]

    if by == "append":
        memory.append("t", sent, resource="r")
    elif by == "turn":
        with memory.turn("t", "r") as turn:
            turn.start(sent)
    else:
        with api_of(memory.services) as client:
            body = {"resource_id": "r", "format": "openai", "messages": sent}
            assert len(client.ok("POST", "/v1/threads/t/messages", json=body)["duplicates"]) == 30

    rows = memory.messages("t", resource="r", limit=100)
    assert [row.seq for row in rows] == list(range(1, 32))
    assert memory.get_thread("t", resource="r").observed_seq == observed


@pytest.mark.report("C11")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("with ids and times of their own", {"created_at": "2026-03-01T12:00:00Z"}),
        ("of a few words again and again", {"text": "next"}),
        ("fewer than four", {"count": 3}),
    ],
)
def test_messages_under_new_ids_are_new_where_they_may_well_be(
    memory: Memory, name: str, change: dict[str, Any]
) -> None:
    count = change.get("count", 8)

    def batch(prefix: str) -> list[dict[str, Any]]:
        return [
            {
                "id": f"{prefix}{n}",
                "role": "assistant" if n % 2 else "user",
                "parts": [{"type": "text", "text": change.get("text", f"number {n}")}],
                **({"created_at": change["created_at"]} if "created_at" in change else {}),
            }
            for n in range(count)
        ]

    memory.append("t", batch("first"), resource="r", format="om")
    memory.append("t", batch("second"), resource="r", format="om")

    assert memory.get_thread("t", resource="r").head_seq == 2 * count, name


@pytest.mark.report("C12")
def test_lists_that_a_caller_passes_and_gets_are_its_own(memory: Memory) -> None:
    ended = call(1, name="end_turn", result="done")
    sent = [{"role": "user", "content": "stop when you are done"}, ended["call"], ended["result"]]
    before = deepcopy(sent)
    ephemeral = [Message(role=Role.USER, parts=(Text(text="look"),))]
    with memory.turn("t", "r") as turn:
        context = turn.start(sent, ephemeral=ephemeral)
        talk(memory, "t", 30)
        settle(memory)
        memory.activate("t", resource="r")
        first = context.to_openai()
        first.clear()

        assert sent == before
        assert len(ephemeral) == 1
        assert sent[-1]["content"] == "done"
        assert context.to_openai()[2]["content"] == "done", "a context is no view of anything that changes"


NUL = {
    "in a text": "a\x00b",
    "as an escape in JSON": '{"a": "\\u0000"}',
    "half a character": "a\ud83db",
    "an emoji at the end": "box \U0001f4e6",
}


@pytest.mark.report("M01", "M02")
@pytest.mark.parametrize("text", NUL.values(), ids=NUL)
def test_bytes_that_postgres_refuses_stop_nothing(services: Services, text: str) -> None:
    """In words, arguments, results, names, titles, answers of a model, and what a person asks for."""
    memory, _ = recorded(services, lambda answer: answer.replace("\n", f"\n* 🔴 (10:00) said {text}\n", 1))
    memory.put_thread("t", resource="r", title=f"title {text}", metadata={f"key {text}": [text]})
    arguments = {"q": text, text: {"deep": [text]}}
    parts: list[dict[str, Any]] = [
        {"type": "tool_call", "call_id": "c", "name": "look", "args": arguments},
        {"type": "tool_result", "call_id": "c", "result": {"found": text, text: 1}},
    ]
    memory.append("t", [{"role": "user", "content": f"{text} " + "the box " * 90}], resource="r")
    memory.append("t", [{"role": "assistant", "id": "a", "parts": parts}], resource="r", format="om")
    again = memory.append("t", [{"role": "assistant", "id": "a", "parts": parts}], resource="r", format="om")
    memory.flush("t", resource="r", wait_s=0.01)
    settle(memory)
    memory.activate("t", resource="r")
    memory.reflect("t", resource="r", guidance=f"keep {text}")
    settle(memory)

    assert again.duplicates == ("a",), "hashed after the repair"
    sent = str(memory.context("t", resource="r").to_json("openai"))
    everything = sent + str(memory.observations("t", resource="r").items) + str(memory.jobs().items)
    assert "\x00" not in everything
    everything.encode("utf-8")
    assert "10:00) said" in sent
    assert {job["state"] for job in memory.jobs().items} == {"completed"}


@pytest.mark.report("M01")
@pytest.mark.parametrize("name", ["a\x00b", "a\ud800b"])
def test_an_id_of_such_bytes_is_refused_by_name(services: Services, name: str) -> None:
    memory = Memory(services)
    with pytest.raises(InvalidInputError, match="thread"):
        memory.append(name, [{"role": "user", "content": "hello"}], resource="r")
    for ask in (memory.context, memory.status, memory.messages, memory.observe):
        with pytest.raises(InvalidInputError, match="thread"):
            ask(name, resource="r")


@pytest.mark.conforms("11.5")
@pytest.mark.report("M03", "M05")
@pytest.mark.parametrize("step_s", [0, -3600])
def test_messages_of_one_instant_or_of_earlier_ones_are_each_observed_once(
    services_with: Callable[..., Services], step_s: int
) -> None:
    """An import may bring equal times, and times before what was observed already."""
    model = Asked()
    memory = Memory(services_with(INSTANT, model=model))
    for n in range(50):
        at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=n * step_s)
        parts = [{"type": "text", "text": f"TRACE-{n} the box goes to the office. " * 3}]
        message = {"role": "assistant" if n % 2 else "user", "parts": parts, "created_at": at.isoformat()}
        memory.append("t", [message], resource="r", format="om")
        if n % 10 == 9:
            settle(memory)
            memory.context("t", resource="r")
    memory.observe("t", resource="r")
    settle(memory)

    seen = [trace for shown in model.shown for trace in set(traces(shown.split("<history-")[-1]))]
    assert sorted(seen) == sorted(f"TRACE-{n}" for n in range(50))
    ranges = covered(memory)
    assert [start for start, _ in ranges] == [1, *(end + 1 for _, end in ranges[:-1])]
    listed: list[int] = []
    while page := memory.messages("t", resource="r", after_seq=listed[-1] if listed else 0, limit=20):
        listed += [row.seq for row in page]
    assert listed == list(range(1, 51))


@pytest.mark.conforms("11.5")
@pytest.mark.report("M05")
def test_a_message_that_commits_late_stands_after_those_before_it_and_is_observed(
    services_with: Callable[..., Services],
) -> None:
    """The place of a message is given under the thread's lock: nothing can commit behind what was observed."""
    model = Asked()
    memory = Memory(services_with(INSTANT, model=model))
    memory.append("t", history(4), resource="r")
    entered = threading.Event()

    def late() -> None:
        entered.set()
        memory.append("t", history(1, first=99), resource="r")

    with memory.services.store.transaction("default") as tx:  # the first writer has its place, and has not committed
        locked = tx.threads.lock("r", "t")
        assert locked is not None
        writer = threading.Thread(target=late)
        writer.start()
        assert entered.wait(10)
        writer.join(0.05)
        assert writer.is_alive(), "the second waits for its place"
    writer.join(20)
    memory.observe("t", resource="r")
    settle(memory)

    assert [row.seq for row in memory.messages("t", resource="r")] == [1, 2, 3, 4, 5]
    assert any("TRACE-99" in shown for shown in model.shown)
