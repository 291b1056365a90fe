"""The canonical form is strict about what it takes and gives everything back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Data, File, Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from om_core.formats.canonical import dump_message, dump_part, parse_message, parse_part
from om_core.formats.fields import check_id, dump_time, is_timezone

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
NAMES = TEXTS.filter(bool)
PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, PAYLOADS, max_size=3)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(lambda when: when.replace(tzinfo=UTC))  # noqa: DTZ001 - hypothesis wants naive bounds
COMMON = {"created_at": st.none() | TIMES, "provider_metadata": st.none() | OBJECTS}
STATUSES = st.sampled_from(["ok", "error", "denied", "cancelled"])
PARTS = st.one_of(
    st.builds(Text, text=TEXTS, **COMMON),
    st.builds(ToolCall, call_id=NAMES, name=NAMES, args=PAYLOADS, **COMMON),
    st.builds(
        ToolResult,
        call_id=NAMES,
        name=st.none() | TEXTS,
        result=PAYLOADS,
        model_result=PAYLOADS,
        status=STATUSES,
        **COMMON,
    ),
    st.builds(Reasoning, text=st.none() | TEXTS, provider=st.none() | TEXTS, **COMMON),
    st.builds(
        Image, data=TEXTS, width=st.none() | st.integers(1, 9999), token_estimate=st.none() | st.just(7), **COMMON
    ),
    st.builds(File, url=TEXTS, filename=st.none() | TEXTS, token_estimate=st.none() | st.integers(0, 99), **COMMON),
    st.builds(Data, data_type=NAMES, data=PAYLOADS, **COMMON),
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(Role),
    parts=st.lists(PARTS, max_size=4).map(tuple),
    id=st.none() | st.sampled_from(["m1", "ein-Ä", "x" * 256]),
    author=st.none() | TEXTS,
    created_at=st.none() | TIMES,
    timezone=st.none() | st.sampled_from(["UTC", "Europe/Berlin"]),
    metadata=OBJECTS,
)


def message(**changes):
    return {"role": "user", "parts": [{"type": "text", "text": "hello"}]} | changes


def part(**fields):
    return message(parts=[fields])


@pytest.mark.report("C14")
@settings(max_examples=120, deadline=None)
@given(MESSAGES)
def test_every_message_comes_back_from_its_json(value):
    assert parse_message(json.loads(json.dumps(dump_message(value)))) == value


@settings(max_examples=60, deadline=None)
@given(PARTS)
def test_every_part_comes_back_from_its_json(value):
    assert parse_part(json.loads(json.dumps(dump_part(value)))) == value


def test_absent_fields_are_not_written():
    assert dump_message(Message(role=Role.USER, parts=(Text(text="hi"),))) == {
        "role": "user",
        "parts": [{"type": "text", "text": "hi"}],
    }
    assert dump_part(ToolResult(call_id="c", result=None)) == {"type": "tool_result", "call_id": "c", "result": None}


def test_provider_metadata_keeps_the_order_of_its_keys():
    raw = {"z": 1, "a": {"y": 2, "b": [3]}, "m": None}
    parsed = parse_message(part(type="text", text="x", provider_metadata=raw))
    assert json.dumps(dump_message(parsed)["parts"][0]["provider_metadata"]) == json.dumps(raw)


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        ("text", ""),
        (message(colour="red"), ".colour"),
        (message(role="robot"), ".role"),
        (message(role=["user"]), ".role"),
        ({"parts": []}, ".role"),
        ({"role": "user"}, ".parts"),
        (message(parts="hello"), ".parts"),
        (message(parts=["hello"]), ".parts.0"),
        (message(parts=[{"text": "x"}]), ".parts.0.type"),
        (part(type="picture"), ".parts.0.type"),
        (part(type="text"), ".parts.0.text"),
        (part(type="text", text=5), ".parts.0.text"),
        (part(type="text", text="x", bold=True), ".parts.0.bold"),
        (part(type="text", text="x", created_at="2026-01-01T00:00:00"), ".parts.0.created_at"),
        (part(type="text", text="x", provider_metadata=[]), ".parts.0.provider_metadata"),
        (part(type="tool_call", name="n", args={}), ".parts.0.call_id"),
        (part(type="tool_call", call_id="", name="n", args={}), ".parts.0.call_id"),
        (part(type="tool_call", call_id="c", args={}), ".parts.0.name"),
        (part(type="tool_result", result="x"), ".parts.0.call_id"),
        (part(type="tool_result", call_id="c", result="x", status="bad"), ".parts.0.status"),
        (part(type="tool_result", call_id="c", result="x", status=["ok"]), ".parts.0.status"),
        (part(type="image"), ".parts.0"),
        (part(type="image", url="u", data="d"), ".parts.0"),
        (part(type="image", url="u", width=0), ".parts.0.width"),
        (part(type="image", url="u", width=True), ".parts.0.width"),
        (part(type="image", url="u", token_estimate=-1), ".parts.0.token_estimate"),
        (part(type="file", url="u", token_estimate=-1), ".parts.0.token_estimate"),
        (part(type="file", url="u", token_estimate=2**31), ".parts.0.token_estimate"),
        (part(type="data-x", data_type="y", data=1), ".parts.0.data_type"),
        (message(author=3), ".author"),
        (message(metadata=[1]), ".metadata"),
        (message(created_at=1700000000), ".created_at"),
        (message(created_at="yesterday"), ".created_at"),
        (message(created_at="2026-01-31T09:30:00"), ".created_at"),
        (message(created_at="2026-02-31T09:30:00Z"), ".created_at"),
        (message(created_at="0001-01-01T00:00:00+14:00"), ".created_at"),
        (message(created_at="２０26-01-31T09:30:00Z"), ".created_at"),
        (message(timezone="Mars/Olympus"), ".timezone"),
        (message(timezone="../etc/passwd"), ".timezone"),
        (message(timezone="America"), ".timezone"),
        (message(timezone=""), ".timezone"),
        (message(id=""), ".id"),
        (message(id=7), ".id"),
        (message(id="a\x00b"), ".id"),
    ],
)
def test_a_wrong_field_is_refused_with_its_path(bad, path):
    with pytest.raises(InvalidInputError) as caught:
        parse_message(bad, "messages.3")
    assert caught.value.path == f"messages.3{path}"
    assert caught.value.reason


@pytest.mark.parametrize("value", ["a", "x" * 256, "user@example.com", "…", "..a", "a b", "日本"])
def test_an_id_is_any_short_readable_string(value):
    assert check_id(value, "id") == value


@pytest.mark.report("I01")
@pytest.mark.parametrize("value", ["", "x" * 257, ".", "..", "a/b", "a\nb", "a\x7f", "a\x85b", "\ud800", None, 3, True])
def test_other_ids_are_refused(value):
    with pytest.raises(InvalidInputError):
        check_id(value, "id")


@pytest.mark.report("N04")
@pytest.mark.parametrize(
    ("given_time", "shown"),
    [
        ("2026-01-31T09:30:00Z", "2026-01-31T09:30:00Z"),
        ("2026-01-31t09:30:00.5z", "2026-01-31T09:30:00.500000Z"),
        ("2026-01-31 09:30:00+02:00", "2026-01-31T07:30:00Z"),
        ("2026-01-31T09:30:00.123456789-01:30", "2026-01-31T11:00:00.123456Z"),
    ],
)
def test_times_with_an_offset_become_utc(given_time, shown):
    assert dump_message(parse_message(message(created_at=given_time)))["created_at"] == shown


def test_times_are_written_in_utc_whatever_their_zone():
    berlin = timezone(timedelta(hours=2))
    value = replace(parse_message(message()), created_at=datetime(2026, 5, 1, 12, tzinfo=berlin))
    assert (
        dump_message(value)["created_at"] == dump_time(datetime(2026, 5, 1, 10, tzinfo=UTC)) == "2026-05-01T10:00:00Z"
    )


@pytest.mark.parametrize(
    ("raw", "data_type"),
    [
        ({"type": "data-om-status", "data": 1}, "data-om-status"),
        ({"type": "data", "data": 1}, "data"),
        ({"type": "data", "data_type": "weather", "data": 1}, "weather"),
    ],
)
def test_a_data_part_may_name_its_type_in_either_way(raw, data_type):
    parsed = parse_part(raw)
    assert parsed == Data(data_type=data_type, data=1)
    assert dump_part(parsed) == raw


def test_one_message_has_at_most_four_megabytes_of_text():
    with pytest.raises(InvalidInputError, match="4,000,000"):
        parse_message(part(type="text", text="ä" * 2_000_001))
    with pytest.raises(InvalidInputError, match="4,000,000"):
        parse_message(part(type="tool_result", call_id="c", result={"out": ["x" * 4_000_001]}))


def test_base64_of_a_picture_is_not_text_and_has_its_own_limit():
    assert parse_message(part(type="image", data="iVBORw0KGgo" + "A" * 5_000_000)).has_content
    in_result = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 5_000_000}}]
    assert parse_message(part(type="tool_result", call_id="c", result=in_result)).has_content
    with pytest.raises(InvalidInputError, match="64,000,000"):
        parse_message(part(type="image", data="A" * 64_000_001))


@pytest.mark.report("M01", "M02")
def test_nul_and_surrogates_inside_payloads_are_repaired():
    parsed = parse_message(
        part(type="tool_call", call_id="c", name="n", args={"a\x00": ["\ud83d\ude00", float("nan")]})
    )
    assert parsed.parts == (ToolCall(call_id="c", name="n", args={"a\ufffd": ["\U0001f600", None]}),)


def test_known_zones_are_known():
    assert is_timezone("Europe/Berlin")
    assert not is_timezone("Europe/Nowhere")
