"""Anthropic's messages come back exactly; messages of other origin become valid ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Data, File, Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from om_core.formats import dump_messages, parse_messages
from om_core.formats.anthropic import dump_anthropic, parse_anthropic
from om_core.formats.canonical import dump_message, parse_message
from om_core.formats.fingerprint import fingerprint
from tests.unit.test_formats_canonical import MESSAGES


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def text(words, **extra):
    return {"type": "text", "text": words, **extra}


def use(call_id="toolu_1", name="search", input=None, **extra):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"q": "x"} if input is None else input, **extra}


def result(call_id="toolu_1", **fields):
    return {"type": "tool_result", "tool_use_id": call_id, **fields}


CACHE = {"cache_control": {"type": "ephemeral"}}
SAMPLES = {
    "string": {"role": "user", "content": "hello"},
    "unknown fields": {"role": "user", "content": "hello", "x": {"y": 1}},
    "empty string": {"role": "user", "content": ""},
    "blank string": {"role": "user", "content": " \n"},
    "list": user(text("hello")),
    "empty list": user(),
    "cached text": user(text("hello", **CACHE)),
    "blank text": user(text(""), text("a")),
    "one blank text": assistant(text(" ")),
    "citations": assistant(
        text("a", citations=[{"type": "char_location", "cited_text": "z"}]), text("b", citations=None)
    ),
    "image data": user(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}, **CACHE}
    ),
    "image url": user({"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}),
    "image file": user({"type": "image", "source": {"type": "file", "file_id": "f1"}}),
    "document": user(
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            "title": "t",
            "citations": {"enabled": True},
        }
    ),
    "document url": user({"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}),
    "document text": user(
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}, "context": "c"}
    ),
    "document blocks": user({"type": "document", "source": {"type": "content", "content": [text("z")]}}),
    "document file": user({"type": "document", "source": {"type": "file", "file_id": "f1"}}),
    "call": assistant(text("looking"), use(), use("toolu_2", **CACHE)),
    "call of a list": assistant(use(input=[1])),
    "odd call": assistant(use("toolu.1", "my tool")),
    "call without input": assistant({"type": "tool_use", "id": "toolu_1", "name": "n"}),
    "result": user(result(content="found")),
    "cached result": user(result(content="found", **CACHE)),
    "result blocks": user(result(content=[text("a"), text("b")])),
    "result block": user(result(content=[text("a")])),
    "cached result block": user(result(content=[text("a", **CACHE)])),
    "result image": user(
        result(content=[{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}])
    ),
    "result empty": user(result(content="")),
    "result none": user(result()),
    "result null": user(result(content=None)),
    "result no blocks": user(result(content=[])),
    "error": user(result(content="failed", is_error=True)),
    "no error": user(result(content="fine", is_error=False)),
    "results and words": user(result(content="a"), result("toolu_2", content="b"), text("and y")),
    "words before results": user(text("first"), result(content="a")),
    "thinking": assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, text("a")),
    "unsigned thinking": assistant({"type": "thinking", "thinking": ""}, text("a")),
    "redacted": assistant({"type": "redacted_thinking", "data": "xyz"}, use()),
    "server tool": assistant(
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result", "url": "u"}],
        },
        text("found"),
    ),
    "unknown block": assistant({"type": "hologram", "beam": 3}, text("a")),
    "system": {"role": "system", "content": "be kind"},
}

WORDS = st.sampled_from(["", " ", "a", "hello", "é😀", "AAAA"])
EXTRA = st.dictionaries(
    st.sampled_from(["x", "cache_control", "citations", "is_error", "title", "raw", "extra", "signature", "data"]),
    st.none() | st.booleans() | st.integers(0, 1) | WORDS | st.dictionaries(WORDS, WORDS, max_size=2),
    max_size=2,
)


def with_extra(required, **optional):
    return st.builds(lambda base, extra: {**extra, **base}, st.fixed_dictionaries(required, optional=optional), EXTRA)


IDS = st.sampled_from(["toolu_1", "toolu_2", "x.y", "ü"])
SOURCES = with_extra(
    {"type": st.sampled_from(["base64", "url", "text", "file", "content"])}, data=WORDS, url=WORDS, media_type=WORDS
)
TEXTS = with_extra({"type": st.just("text"), "text": WORDS})
ATTACHED = with_extra({"type": st.sampled_from(["image", "document"]), "source": SOURCES})
RESULTS = with_extra(
    {"type": st.just("tool_result"), "tool_use_id": IDS},
    content=st.none() | WORDS | st.lists(TEXTS | ATTACHED, max_size=2),
    is_error=st.booleans(),
)
BLOCKS = st.one_of(
    TEXTS,
    ATTACHED,
    RESULTS,
    with_extra({"type": st.just("tool_use"), "id": IDS, "name": IDS}, input=st.dictionaries(WORDS, WORDS, max_size=2)),
    with_extra({"type": st.just("thinking"), "thinking": WORDS}),
    with_extra({"type": st.just("redacted_thinking"), "data": WORDS}),
    with_extra({"type": WORDS}),
)
RAW_MESSAGES = st.one_of(
    with_extra({"role": st.sampled_from(["user", "assistant"]), "content": WORDS | st.lists(BLOCKS, max_size=3)}),
    with_extra({"role": st.just("user"), "content": st.lists(RESULTS, max_size=2)}),
)


def stored(messages):
    return [parse_message(json.loads(json.dumps(dump_message(message)))) for message in messages]


@pytest.mark.parametrize("raw", SAMPLES.values(), ids=SAMPLES.keys())
def test_a_message_comes_back_exactly(raw):
    parsed = parse_anthropic([raw])
    assert len(parsed) == 1
    assert dump_anthropic(parsed) == [raw]
    assert dump_anthropic(stored(parsed)) == [raw]


@pytest.mark.report("C14")
@settings(max_examples=300, deadline=None)
@given(st.lists(RAW_MESSAGES, max_size=4))
def test_any_list_of_messages_comes_back_exactly_also_from_the_store(raws):
    parsed = parse_anthropic(raws)
    assert len(parsed) == len(raws)
    assert dump_anthropic(parsed) == raws
    assert dump_anthropic(stored(parsed)) == raws


@pytest.mark.parametrize(
    "key",
    [
        key
        for key in SAMPLES
        if key not in {"odd call", "call of a list", "words before results", "system", "call without input"}
    ],
)
def test_content_is_not_kept_twice(key):
    assert '"raw"' not in json.dumps(dump_message(parse_anthropic([SAMPLES[key]])[0]))


@pytest.mark.parametrize(
    ("key", "role", "parts"),
    [
        ("string", Role.USER, (Text(text="hello"),)),
        ("list", Role.USER, (Text(text="hello"),)),
        ("call", Role.ASSISTANT, (Text(text="looking"), ToolCall(call_id="toolu_1", name="search", args={"q": "x"}), ToolCall(call_id="toolu_2", name="search", args={"q": "x"}))),
        ("result", Role.TOOL, (ToolResult(call_id="toolu_1", result="found"),)),
        ("result block", Role.TOOL, (ToolResult(call_id="toolu_1", result="a"),)),
        ("error", Role.TOOL, (ToolResult(call_id="toolu_1", result="failed", status="error"),)),
        ("results and words", Role.USER, (ToolResult(call_id="toolu_1", result="a"), ToolResult(call_id="toolu_2", result="b"), Text(text="and y"))),
        ("thinking", Role.ASSISTANT, (Reasoning(text="hm", provider="anthropic"), Text(text="a"))),
        ("redacted", Role.ASSISTANT, (Reasoning(provider="anthropic"), ToolCall(call_id="toolu_1", name="search", args={"q": "x"}))),
        ("image data", Role.USER, (Image(data="AAAA", mime_type="image/png"),)),
        ("image url", Role.USER, (Image(url="https://x/a.png"),)),
        ("document", Role.USER, (File(data="AAAA", mime_type="application/pdf", filename="t"),)),
        ("document text", Role.USER, (Text(text="words"),)),
        ("unknown block", Role.ASSISTANT, (Data(data_type="anthropic-block", data={"type": "hologram", "beam": 3}), Text(text="a"))),
    ],
)  # fmt: skip
def test_the_canonical_form_says_the_same(key, role, parts):
    message = parse_anthropic([SAMPLES[key]])[0]
    assert message.role is role
    assert tuple(replace(part, provider_metadata=None) for part in message.parts) == parts


def test_a_whole_response_can_be_sent_back_because_its_own_fields_are_left_out():
    response = assistant(text("hi")) | {
        "id": "msg_1",
        "type": "message",
        "model": "claude",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3},
    }
    message = parse_anthropic([response])[0]
    assert message.id == "msg_1"
    assert message.metadata["om_anthropic"]["response"]["usage"] == {"input_tokens": 3}
    assert dump_anthropic([message]) == [assistant(text("hi"))]


def test_moving_a_cache_mark_does_not_change_what_is_recognised():
    for plain, cached in (
        ("string", "cached text"),
        ("result", "cached result"),
        ("result block", "cached result block"),
    ):
        left, right = parse_anthropic([SAMPLES[plain]])[0], parse_anthropic([SAMPLES[cached]])[0]
        assert fingerprint(left) == fingerprint(right)


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        ("text", "messages.0"),
        ({"role": "tool", "content": "x"}, "messages.0.role"),
        ({"role": "user"}, "messages.0.content"),
        ({"role": "user", "content": None}, "messages.0.content"),
        ({"role": "user", "content": ["x"]}, "messages.0.content.0"),
        (assistant({"type": "tool_use", "name": "n"}), "messages.0.content.0.id"),
        (assistant({"type": "tool_use", "id": "c"}), "messages.0.content.0.name"),
        (user({"type": "tool_result"}), "messages.0.content.0.tool_use_id"),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_path(bad, path):
    with pytest.raises(InvalidInputError) as caught:
        parse_anthropic([bad])
    assert caught.value.path == path


def test_messages_from_openai_become_blocks_with_all_results_in_one_user_message():
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}},
        {"id": "fn.look:1", "type": "function", "function": {"name": "look", "arguments": ""}},
        {"id": "call_3", "type": "function", "function": {"name": "look", "arguments": "{broken"}},
    ]
    raws = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "find x"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "a"},
        {"role": "tool", "tool_call_id": "fn.look:1", "content": [{"type": "text", "text": "b"}]},
        {"role": "tool", "tool_call_id": "call_3", "content": None},
        {"role": "user", "content": "and y"},
    ]
    assert dump_anthropic(parse_messages(raws, "openai")) == [
        {"role": "user", "content": "find x"},
        assistant(
            use("call_1"), use("fn_look_1_0b8a2095", "look", {}), use("call_3", "look", {"arguments": "{broken"})
        ),
        user(result("call_1", content="a"), result("fn_look_1_0b8a2095", content="b"), result("call_3", content="")),
        {"role": "user", "content": "and y"},
    ]


def assert_valid(messages):
    """The rules that Anthropic checks, as far as single messages go."""
    for message in messages:
        assert message["role"] in {"user", "assistant"}
        content = message["content"]
        if isinstance(content, str):
            assert content.strip()
            continue
        assert content
        for block in content:
            kinds = (
                {"text", "tool_use", "thinking"}
                if message["role"] == "assistant"
                else {"text", "image", "document", "tool_result"}
            )
            assert block["type"] in kinds
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_use":
                assert re.fullmatch(r"[A-Za-z0-9_-]+", block["id"]) and isinstance(block["input"], dict)
        order = [block["type"] != "tool_result" for block in content]
        assert order == sorted(order), "results come first"


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, max_size=4))
def test_any_canonical_messages_become_valid_ones(messages):
    assert_valid(dump_anthropic(messages))


@settings(max_examples=100, deadline=None)
@given(st.lists(MESSAGES, max_size=4))
def test_any_canonical_messages_become_valid_openai_messages(messages):
    for raw in dump_messages(messages, "openai"):
        assert raw["role"] in {"system", "user", "assistant", "tool"}
        if raw["role"] == "tool":
            assert isinstance(raw["tool_call_id"], str) and isinstance(raw["content"], str)
        elif raw["role"] == "assistant":
            assert raw["content"] or raw["tool_calls"]
        else:
            assert raw["content"]
    parse_messages(dump_messages(messages, "openai"), "openai")


@pytest.mark.data
def test_all_messages_of_a_real_agent_session_come_back_and_convert(data_dir):
    folder = data_dir / "claude_code_spotter"
    for path in sorted(folder.rglob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
        raws = [record["message"] for record in records if record["type"] in {"user", "assistant"}]
        requests = [{"role": raw["role"], "content": raw["content"]} for raw in raws]
        parsed = parse_anthropic(requests)
        assert dump_anthropic(parsed) == requests
        assert len(parse_anthropic(raws)) == len(raws)
        openai = dump_messages(parsed, "openai")
        assert len(parse_messages(openai, "openai")) == len(openai) > 0


def test_calls_whose_ids_differ_only_in_letters_anthropic_refuses_keep_their_own_results():
    ids = ("f:0", "f.0", "x" * 300 + "a", "x" * 300 + "b")
    asked = Message(role=Role.ASSISTANT, parts=tuple(ToolCall(call_id=one, name="f") for one in ids))
    told = Message(role=Role.TOOL, parts=tuple(ToolResult(call_id=one, result=one) for one in ids))
    calls, results = dump_anthropic([asked, told])
    used = [block["id"] for block in calls["content"]]
    assert len(set(used)) == len(ids)
    assert [block["tool_use_id"] for block in results["content"]] == used
