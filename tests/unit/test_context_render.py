"""A context in the forms of the providers, and as the answer of the API (API 3)."""

from __future__ import annotations

import json

import pytest

from om_core.domain.chunk import Hints
from om_core.domain.context import Activated
from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Data, Text
from om_core.domain.tags import INJECTED, PLACEHOLDER
from om_core.domain.validate_rendered import check_anthropic, check_openai
from om_core.formats import parse_messages
from om_core.services.render_context import context_to_json, render, to_anthropic, to_om, to_openai
from tests.unit.context_builders import build, calls, chunk, results, row, says, user, without

CACHE = {"type": "ephemeral"}


def example():
    """A log, a parallel call answered in two rows, an open call, and a hint."""
    rows = [user(4), calls(5, "a", "b"), results(6, "b"), results(7, "a"), says(8), calls(9, "c")]
    hints = Hints(seen_seq=9, current_task="Count them.")
    return build(rows, chunks=[chunk(1, 1, 2), chunk(2, 3, 3)], observed_seq=3, hints=hints)


@pytest.mark.conforms("3.7")
def test_openai_gets_one_system_message_and_a_tool_message_per_result():
    messages = to_openai(example())
    assert check_openai(messages) == []
    roles = [message["role"] for message in messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "assistant", "tool", "user"]
    assert messages[0]["content"].count("\n\n<om-log>\n") == 2
    assert [messages[3]["tool_call_id"], messages[4]["tool_call_id"]] == ["b", "a"]
    assert messages[7] == {"role": "tool", "tool_call_id": "c", "content": PLACEHOLDER}


def test_without_notes_openai_gets_no_system_message():
    assert [message["role"] for message in to_openai(build([user(1)]))] == ["user"]


def test_anthropic_gets_the_results_of_one_message_together():
    payload = to_anthropic(example())
    assert check_anthropic(payload) == []
    roles = [message["role"] for message in payload["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "assistant", "user", "user"]
    assert [block["tool_use_id"] for block in payload["messages"][2]["content"]] == ["b", "a"]


@pytest.mark.conforms("3.7")
def test_anthropic_gets_breakpoints_after_the_log_and_after_the_stable_part():
    payload = to_anthropic(example())
    assert [block.get("cache_control") for block in payload["system"]] == [None, None, CACHE]
    marked = [index for index, message in enumerate(payload["messages"]) if "cache_control" in json.dumps(message)]
    assert marked == [3]
    assert payload["messages"][3]["content"] == [{"type": "text", "text": "answer 8", "cache_control": CACHE}]


def test_breakpoints_of_the_client_are_removed_and_none_stands_on_thinking():
    marked = {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": CACHE}]}
    thinking = [{"type": "text", "text": "so"}, {"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
    parsed = parse_messages([marked, {"role": "assistant", "content": thinking}], "anthropic")
    rows = [row(seq, message.role, *message.parts, metadata=message.metadata) for seq, message in enumerate(parsed, 1)]
    payload = to_anthropic(build(rows))
    assert check_anthropic(payload) == []
    assert "cache_control" not in json.dumps(payload["messages"][0])
    assert ["cache_control" in block for block in payload["messages"][1]["content"]] == [True, False]


def test_an_empty_context_renders_in_every_form():
    empty = build([])
    assert to_om(empty) == to_openai(empty) == []
    assert to_anthropic(empty) == {"system": [], "messages": []}


def test_canonical_messages_can_be_read_back_and_say_what_memory_added():
    context = example()
    parsed = parse_messages(to_om(context), "om")
    assert [message.parts for message in parsed] == [message.parts for message in context.messages]
    added = [message.metadata.get(INJECTED, False) for message in parsed]
    assert added == [False] * 6 + [True, True]


def test_data_parts_are_not_shown_to_a_model():
    context = build([row(1, "user", Text(text="hi"), Data(data_type="ui", data="secret-widget"))])
    for messages in (to_om(context), to_openai(context), to_anthropic(context)):
        assert "secret-widget" not in json.dumps(messages)


def test_reasoning_and_provider_payloads_come_back_as_they_were():
    raw = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln=="}, {"type": "tool_use", "id": "a", "name": "f", "input": {"b": [1], "a": None}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "ok"}]}]},
    ]  # fmt: skip
    parsed = parse_messages(raw, "anthropic")
    rows = [row(seq, message.role, *message.parts, metadata=message.metadata) for seq, message in enumerate(parsed, 1)]
    assert render(build(rows), "anthropic").messages == raw


@pytest.mark.parametrize(("format", "stable", "total"), [("om", 5, 8), ("openai", 5, 8), ("anthropic", 4, 7)])
def test_the_answer_has_the_fields_of_the_interface_and_counts_stable_messages_in_its_form(format, stable, total):
    answer = context_to_json(example(), format)
    assert set(answer) >= {
        "system", "messages", "stable_messages", "volatile", "tokens", "generation", "observed_seq", "head_seq",
        "prefix_hash", "prefix_changed", "activated", "trimmed", "over_budget",
    }  # fmt: skip
    assert (answer["stable_messages"], len(answer["messages"])) == (stable, total)
    assert [set(block) for block in answer["system"]] == [{"text", "kind", "cacheable"}] * 3
    assert answer["volatile"] == [{"kind": "current_task", "text": "Count them."}]
    assert set(answer["tokens"]) == {"log", "messages", "total"}
    assert (answer["observed_seq"], answer["head_seq"], answer["activated"]) == (3, 9, None)
    assert json.loads(json.dumps(answer)) == answer


def test_the_answer_tells_what_was_activated():
    done = Activated(reason="ttl", chunks=1, messages=2, tokens=30, observation_tokens=5, cycle_ids=("7-1",))
    answer = context_to_json(without(example(), activated=done))
    assert answer["activated"] == {
        "reason": "ttl", "chunks": 1, "messages": 2, "tokens": 30, "observation_tokens": 5, "cycle_ids": ["7-1"],
        "generation": None,
    }  # fmt: skip


def test_an_unknown_form_is_refused():
    with pytest.raises(InvalidInputError, match="known are om, openai, anthropic"):
        context_to_json(example(), "gemini")


def plain(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
USE, RESULT = (
    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    {"type": "tool_result", "tool_use_id": "a", "content": "x"},
)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([plain("user", "x"), plain("system", "x")], "role system after the first"),
        ([plain("user", "x"), plain("tool", "x", tool_call_id="a")], "answers no call"),
        ([plain("assistant", None, tool_calls=CALL), plain("user", "x")], "without a tool message: a"),
        ([plain("assistant", None, tool_calls=CALL)], "at the end: a"),
        ([plain("user", None, tool_calls=CALL)], "tool_calls of role user"),
        ([plain("user", " ")], "no content"),
    ],
)
def test_the_check_for_openai_finds_what_it_refuses(messages, problem):
    assert any(problem in found for found in check_openai(messages)), check_openai(messages)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([plain("assistant", "x")], "not the user's"),
        ([plain("system", "x")], "role system"),
        ([plain("user", "x"), plain("assistant", [USE])], "at the end: a"),
        ([plain("user", "x"), plain("assistant", [USE]), plain("user", "x")], "answers [], but"),
        ([plain("user", [RESULT])], "answers ['a']"),
        ([plain("user", "x"), plain("assistant", [USE]), plain("user", [{"type": "text", "text": "x"}, RESULT])], "after other content"),
        ([plain("user", " ")], "a blank text block"),
        ([plain("user", [])], "no content"),
        ([plain("user", "x"), plain("assistant", [{"type": "thinking", "thinking": "x", "cache_control": CACHE}, {"type": "text", "text": "x"}])], "on a thinking block"),
        ([plain("user", [{"type": "text", "text": "x", "cache_control": CACHE}] * 5)], "5 cache breakpoints"),
    ],
)  # fmt: skip
def test_the_check_for_anthropic_finds_what_it_refuses(messages, problem):
    found = check_anthropic({"system": [], "messages": messages})
    assert any(problem in each for each in found), found
