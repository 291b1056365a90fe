"""OpenAI's messages come back exactly; messages of other origin become valid ones."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Data, File, Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from om_core.formats import dump_messages, guess_format, parse_messages
from om_core.formats.canonical import dump_message, parse_message
from om_core.formats.fingerprint import fingerprint
from om_core.formats.openai import dump_openai, parse_openai

PNG = "data:image/png;base64,iVBORw0KGgo="


def call(call_id="c1", name="search", arguments='{"q":"x"}', **extra):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **extra}


SAMPLES = {
    "text": {"role": "user", "content": "hello"},
    "unknown fields": {"role": "user", "content": "hello", "x_custom": {"a": [1]}, "id": "m1"},
    "name": {"role": "user", "content": "hello", "name": "Ann"},
    "name with a space": {"role": "user", "content": "hello", "name": "Ann Lee"},
    "system": {"role": "system", "content": "be kind"},
    "developer": {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
    "empty": {"role": "user", "content": ""},
    "blank": {"role": "user", "content": "  \n"},
    "list": {"role": "user", "content": [{"type": "text", "text": "hello"}]},
    "empty list": {"role": "user", "content": []},
    "blank in a list": {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a"}]},
    "strings in a list": {"role": "user", "content": ["a", "b"]},
    "two texts": {"role": "user", "content": [{"type": "text", "text": "a", "x": 1}, {"type": "text", "text": "b"}]},
    "image": {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}}],
    },
    "image data": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
    "image string": {"role": "user", "content": [{"type": "image_url", "image_url": PNG}]},
    "odd data URI": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:;base64,AAAA"}}]},
    "audio": {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}]},
    "file": {
        "role": "user",
        "content": [{"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}}],
    },
    "file id": {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]},
    "bare file": {"role": "user", "content": [{"type": "file", "file": {"file_data": "AAAA"}}]},
    "unknown block": {"role": "user", "content": [{"type": "hologram", "beam": 3}, {"type": "text", "text": "a"}]},
    "missing content": {"role": "assistant", "tool_calls": [call()]},
    "null content": {"role": "assistant", "content": None, "tool_calls": [call()]},
    "empty content and call": {"role": "assistant", "content": "", "tool_calls": [call()]},
    "text and calls": {"role": "assistant", "content": "wait", "tool_calls": [call(), call("c2", "look", "{}")]},
    "nothing": {"role": "assistant"},
    "null only": {"role": "assistant", "content": None},
    "spaced arguments": {"role": "assistant", "content": None, "tool_calls": [call(arguments='{"q": "x", "n": 1.0}')]},
    "broken arguments": {"role": "assistant", "content": None, "tool_calls": [call(arguments='{"q": "x')]},
    "no arguments": {"role": "assistant", "content": None, "tool_calls": [call(arguments="")]},
    "string arguments": {"role": "assistant", "content": None, "tool_calls": [call(arguments='"x"')]},
    "list arguments": {"role": "assistant", "content": None, "tool_calls": [call(arguments="[1]")]},
    "NaN arguments": {"role": "assistant", "content": None, "tool_calls": [call(arguments='{"n": NaN}')]},
    "repeated key": {"role": "assistant", "content": None, "tool_calls": [call(arguments='{"a":1,"a":2}')]},
    "object arguments": {"role": "assistant", "content": None, "tool_calls": [call(arguments={"q": "x"})]},
    "object text arguments": {"role": "assistant", "content": None, "tool_calls": [call(arguments=None)]},
    "call extras": {
        "role": "assistant",
        "content": None,
        "tool_calls": [call(index=0, extra_content={"google": {"s": "y"}})],
    },
    "odd tool name": {"role": "assistant", "content": None, "tool_calls": [call(name="a.b c")]},
    "custom call": {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}],
    },
    "unknown call": {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "future", "future": 1}]},
    "calls null": {"role": "assistant", "content": "a", "tool_calls": None, "function_call": None, "refusal": None},
    "calls empty": {"role": "assistant", "content": "a", "tool_calls": [], "annotations": []},
    "refusal": {"role": "assistant", "content": None, "refusal": "I can't."},
    "refusal block": {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    "function call": {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}},
    "function": {"role": "function", "name": "f", "content": "1"},
    "reasoning": {"role": "assistant", "content": "a", "reasoning_content": "hm", "reasoning_details": [{"x": 1}]},
    "audio reply": {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
    "tool": {"role": "tool", "tool_call_id": "c1", "content": "found"},
    "tool name": {"role": "tool", "tool_call_id": "functions.search:0", "name": "search", "content": "found"},
    "tool list": {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "found"}]},
    "tool list extras": {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x", "cache": 1}]},
    "tool texts": {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    },
    "tool empty": {"role": "tool", "tool_call_id": "c1", "content": ""},
    "tool empty list": {"role": "tool", "tool_call_id": "c1", "content": []},
    "tool null": {"role": "tool", "tool_call_id": "c1", "content": None},
    "tool missing": {"role": "tool", "tool_call_id": "c1"},
}

WORDS = st.sampled_from(["", " ", "a", "hello there", '{"a": 1}', "{", "[1]", "é😀", "data:image/png;base64,AAAA"])
EXTRA = st.dictionaries(
    st.sampled_from(["x", "cache_control", "id", "annotations", "audio_x", "raw", "extra"]),
    st.none() | st.booleans() | st.integers(0, 1) | WORDS | st.dictionaries(WORDS, WORDS, max_size=2),
    max_size=2,
)


def with_extra(required, **optional):
    return st.builds(lambda base, extra: {**extra, **base}, st.fixed_dictionaries(required, optional=optional), EXTRA)


BLOCKS = st.one_of(
    with_extra({"type": st.just("text"), "text": WORDS}),
    with_extra({"type": st.just("image_url"), "image_url": with_extra({"url": WORDS}, detail=WORDS)}),
    with_extra({"type": st.just("file"), "file": with_extra({}, file_data=WORDS, filename=WORDS, file_id=WORDS)}),
    with_extra({"type": st.just("input_audio"), "input_audio": with_extra({"data": WORDS, "format": WORDS})}),
    with_extra({"type": st.just("refusal"), "refusal": WORDS}),
    with_extra({"type": WORDS}),
    WORDS,
)
NAMES = st.sampled_from(["a", "call_1", "x.y", "ü"])
CALLS = with_extra(
    {"id": NAMES, "function": with_extra({"name": NAMES}, arguments=WORDS)}, type=st.just("function")
) | with_extra({"id": NAMES, "type": st.just("custom"), "custom": with_extra({"name": NAMES}, input=WORDS)})
CONTENT = st.none() | WORDS | st.lists(BLOCKS, max_size=3)
RAW_MESSAGES = st.one_of(
    with_extra({"role": st.sampled_from(["user", "system", "developer"])}, content=CONTENT, name=NAMES),
    with_extra(
        {"role": st.just("assistant")},
        content=CONTENT,
        tool_calls=st.none() | st.lists(CALLS, max_size=2),
        refusal=st.none() | WORDS,
        reasoning_content=st.none() | WORDS,
        function_call=st.none() | with_extra({"name": NAMES}, arguments=WORDS),
    ),
    with_extra({"role": st.just("tool"), "tool_call_id": NAMES}, content=CONTENT, name=NAMES),
    with_extra({"role": st.just("function"), "name": NAMES}, content=CONTENT),
)


@pytest.mark.parametrize("raw", SAMPLES.values(), ids=SAMPLES.keys())
def test_a_message_comes_back_exactly(raw):
    before = copy.deepcopy(raw)
    parsed = parse_openai([raw])
    assert len(parsed) == 1
    assert dump_openai(parsed) == [raw]
    stored = [parse_message(json.loads(json.dumps(dump_message(message)))) for message in parsed]
    assert dump_openai(stored) == [raw] == [before]


@pytest.mark.report("C14")
@settings(max_examples=300, deadline=None)
@given(st.lists(RAW_MESSAGES, max_size=4))
def test_any_list_of_messages_comes_back_exactly_also_from_the_store(raws):
    parsed = parse_openai(raws)
    assert dump_openai(parsed) == raws
    assert dump_openai([parse_message(json.loads(json.dumps(dump_message(message)))) for message in parsed]) == raws


@pytest.mark.parametrize("key", ["text", "tool", "text and calls", "image", "name", "system", "null content"])
def test_the_usual_messages_leave_nothing_over(key):
    text = dump_message(parse_openai([SAMPLES[key]])[0])
    assert "raw" not in json.dumps(text)
    assert "om_openai" not in json.dumps(text)


@pytest.mark.parametrize("key", [key for key in SAMPLES if key not in {"odd data URI", "odd tool name"}])
def test_content_is_not_kept_twice(key):
    assert '"raw"' not in json.dumps(dump_message(parse_openai([SAMPLES[key]])[0]))


@pytest.mark.parametrize(
    ("key", "role", "parts"),
    [
        ("text", Role.USER, (Text(text="hello"),)),
        ("developer", Role.SYSTEM, (Text(text="be kind"),)),
        ("null content", Role.ASSISTANT, (ToolCall(call_id="c1", name="search", args={"q": "x"}),)),
        ("broken arguments", Role.ASSISTANT, (ToolCall(call_id="c1", name="search", args='{"q": "x'),)),
        ("custom call", Role.ASSISTANT, (ToolCall(call_id="c1", name="sql", args="SELECT 1"),)),
        ("function call", Role.ASSISTANT, (ToolCall(call_id="function_f", name="f", args={"a": 1}),)),
        ("function", Role.TOOL, (ToolResult(call_id="function_f", name="f", result="1"),)),
        ("tool", Role.TOOL, (ToolResult(call_id="c1", result="found"),)),
        ("tool list", Role.TOOL, (ToolResult(call_id="c1", result="found"),)),
        ("refusal", Role.ASSISTANT, (Text(text="I can't."),)),
        ("image", Role.USER, (Image(url="https://x/a.png", detail="low"),)),
        ("image data", Role.USER, (Image(data="iVBORw0KGgo=", mime_type="image/png"),)),
        ("file", Role.USER, (File(data="AAAA", mime_type="application/pdf", filename="a.pdf"),)),
        ("audio", Role.USER, (File(data="AAAA", mime_type="audio/mp3"),)),
        (
            "unknown block",
            Role.USER,
            (Data(data_type="openai-block", data={"type": "hologram", "beam": 3}), Text(text="a")),
        ),
        ("reasoning", Role.ASSISTANT, (Reasoning(text="hm", provider="openai"), Text(text="a"))),
    ],
)
def test_the_canonical_form_says_the_same(key, role, parts):
    message = parse_openai([SAMPLES[key]])[0]
    assert message.role is role
    assert tuple(replace(part, provider_metadata=None) for part in message.parts) == parts


def test_id_and_name_become_id_and_author():
    message = parse_openai(
        [{"role": "user", "content": "x", "id": "m1", "name": "Ann", "created_at": "2026-01-01T00:00:00Z"}]
    )[0]
    assert (message.id, message.author) == ("m1", "Ann")
    assert message.created_at is not None and message.created_at.year == 2026


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        ("text", "messages.0"),
        ({"content": "x"}, "messages.0.role"),
        ({"role": "robot", "content": "x"}, "messages.0.role"),
        ({"role": "user", "content": 5}, "messages.0.content"),
        ({"role": "user", "parts": [{"type": "text", "text": "x"}]}, "messages.0.parts"),
        ({"role": "user", "content": "", "parts": [{"type": "text", "text": "x"}]}, "messages.0.parts"),
        ({"role": "user", "content": [5]}, "messages.0.content.0"),
        ({"role": "tool", "content": "x"}, "messages.0.tool_call_id"),
        ({"role": "assistant", "tool_calls": {}, "content": None} | {"tool_calls": {"a": 1}}, "messages.0.tool_calls"),
        ({"role": "assistant", "tool_calls": [{"type": "function"}]}, "messages.0.tool_calls.0.function"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, "messages.0.tool_calls.0.id"),
        ({"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}, "messages.0.tool_calls.0.function.name"),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_path(bad, path):
    with pytest.raises(InvalidInputError) as caught:
        parse_openai([bad])
    assert caught.value.path == path


def test_a_changed_message_is_dumped_as_it_is_now_and_not_as_it_was():
    message = parse_openai([SAMPLES["odd tool name"]])[0]
    call_part = message.parts[0]
    assert isinstance(call_part, ToolCall)
    changed = replace(message, parts=(replace(call_part, args={"q": "other"}),))
    assert json.loads(dump_openai([changed])[0]["tool_calls"][0]["function"]["arguments"]) == {"q": "other"}
    result = parse_openai([SAMPLES["tool texts"]])[0]
    result_part = result.parts[0]
    assert isinstance(result_part, ToolResult)
    shortened = replace(result, parts=(replace(result_part, model_result="short"),))
    assert dump_openai([shortened])[0]["content"] == "short"


ANTHROPIC_TURN = [
    {"role": "user", "content": "find x"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "looking"},
            {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "x"}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "failed", "is_error": True},
            {"type": "text", "text": "and also y"},
        ],
    },
]


def test_messages_from_anthropic_become_calls_and_tool_messages():
    assert dump_openai(parse_messages(ANTHROPIC_TURN, "anthropic")) == [
        {"role": "user", "content": "find x"},
        {
            "role": "assistant",
            "content": "looking",
            "tool_calls": [call("toolu_1"), call("toolu_2", "look", "{}")],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "a\nb"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "failed"},
        {"role": "user", "content": "and also y"},
    ]


@pytest.mark.parametrize(
    ("message", "dumped"),
    [
        (Message(role=Role.ASSISTANT, parts=(Reasoning(text="hm"),)), []),
        (Message(role=Role.USER, parts=(Data(data_type="data-x", data=1),)), []),
        (
            Message(role=Role.USER, parts=(Data(data_type="data-x"), Text(text="a"))),
            [{"role": "user", "content": "a"}],
        ),
        (
            Message(role=Role.ASSISTANT, parts=(Text(text="a"), Image(url="u"))),
            [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "[image]"}]}],
        ),
        (
            Message(
                role=Role.TOOL,
                parts=(ToolResult(call_id="c", result={"n": 1}), ToolResult(call_id="d", status="denied")),
            ),
            [
                {"role": "tool", "tool_call_id": "c", "content": '{"n":1}'},
                {"role": "tool", "tool_call_id": "d", "content": "[denied]"},
            ],
        ),
        (
            Message(
                role=Role.ASSISTANT,
                parts=(
                    ToolCall(call_id="c", name="my tool", args=None),
                    ToolResult(call_id="c", result="r"),
                    Text(text="done"),
                ),
            ),
            [
                {"role": "assistant", "content": None, "tool_calls": [call("c", "my_tool", "{}")]},
                {"role": "tool", "tool_call_id": "c", "content": "r"},
                {"role": "assistant", "content": "done"},
            ],
        ),
        (
            Message(role=Role.USER, parts=(File(url="https://x/a.pdf"), Text(text="read"))),
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "[file: https://x/a.pdf]"}, {"type": "text", "text": "read"}],
                }
            ],
        ),
    ],
)
def test_canonical_messages_become_valid_messages(message, dumped):
    assert dump_openai([message]) == dumped


@pytest.mark.data
def test_all_tau_bench_messages_come_back_and_pair(data_dir):
    runs = json.loads((data_dir / "tau_bench" / "gpt-4o-airline.first30.json").read_text("utf-8"))
    for run in runs:
        parsed = parse_openai(run["traj"])
        assert dump_openai(parsed) == run["traj"]
        calls = [part.call_id for message in parsed for part in message.parts if isinstance(part, ToolCall)]
        results = [part.call_id for message in parsed for part in message.parts if isinstance(part, ToolResult)]
        assert set(results) <= set(calls)
        converted = dump_messages(parsed, "anthropic")
        assert [fingerprint(m) for m in parse_messages(converted, "anthropic")] == [
            fingerprint(m) for m in parsed if m.role is not Role.SYSTEM
        ]


@pytest.mark.parametrize(
    ("messages", "format"),
    [
        ([{"role": "user", "content": "x"}], "openai"),
        ([{"role": "user", "parts": []}], "om"),
        ([{"role": "user", "content": "x"}, *ANTHROPIC_TURN], "anthropic"),
        ([SAMPLES["text and calls"]], "openai"),
        (["nonsense"], "openai"),
    ],
)
def test_a_python_caller_need_not_name_the_format(messages, format):
    assert guess_format(messages) == format


def test_an_unknown_format_is_refused_by_name():
    for function in (parse_messages, dump_messages):
        with pytest.raises(InvalidInputError, match=r"'yaml' is unknown; known are om, openai, anthropic"):
            function([], "yaml")
