"""Whatever comes in, what goes to the database is JSON that it can hold."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from om_core.domain.errors import InvalidInputError
from om_core.formats.sanitise import MAX_DEPTH, TOO_DEEP, sanitise_json, sanitise_text

WILD_TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["\x00", "a\ud800b", "\ud83d\ude00", "\udc00\ud800"]
)
WILD_LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | WILD_TEXT
    | st.just(object())
    | st.builds(lambda: 10**5000)
)
WILD_JSON = st.recursive(
    WILD_LEAF,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WILD_TEXT | st.integers(), inner, max_size=4),
    max_leaves=25,
)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.report("M01", "M02")
@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("plain", "plain"),
        ("a\x00b", "a\ufffdb"),
        ("é\x00", "é\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("x\ud83dy", "x\ufffdy"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
def test_a_text_loses_nul_and_lone_surrogates_and_keeps_real_pairs(raw, clean):
    assert sanitise_text(raw) == clean


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (float("nan"), None),
        (float("inf"), None),
        (float("-inf"), None),
        ({"a": [float("nan"), 1.5]}, {"a": [None, 1.5]}),
        ({"k\x00": "v\x00"}, {"k\ufffd": "v\ufffd"}),
        (2**64, 2**64),
        (True, True),
    ],
)
def test_values_without_a_json_form_become_their_nearest_json(raw, clean):
    assert sanitise_json(raw) == clean


def test_an_integer_of_five_thousand_digits_becomes_text():
    clean = sanitise_json({"n": 10**5000})
    assert int(clean["n"], 16) == 10**5000
    assert json.loads(json.dumps(clean)) == clean


def test_containers_below_the_deepest_level_become_a_mark():
    assert sanitise_json(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    cut = json.dumps(sanitise_json(nested(MAX_DEPTH + 1)))
    assert cut == "[" * MAX_DEPTH + f'"{TOO_DEEP}"' + "]" * MAX_DEPTH


def test_a_value_that_contains_itself_many_times_is_refused_in_bounded_time():
    value: list[object] = []
    value.extend([value, value])
    with pytest.raises(InvalidInputError, match="1,000,000"):
        sanitise_json(value)


@pytest.mark.parametrize("bad", [{1: "x"}, {"a": {None: 1}}, [object()], {"a": (1, 2)}, b"bytes"])
def test_what_is_no_json_is_refused_with_its_path(bad):
    with pytest.raises(InvalidInputError) as caught:
        sanitise_json(bad, "messages.0.metadata")
    assert caught.value.path.startswith("messages.0.metadata")


def test_the_path_leads_to_the_value():
    with pytest.raises(InvalidInputError) as caught:
        sanitise_json({"a": [0, {"b": object()}]}, "messages.0")
    assert caught.value.path == "messages.0.a.1.b"


def test_order_of_keys_is_kept_and_a_clean_value_is_not_copied():
    clean = {"z": 1, "a": [{"y": 2, "b": 3}], "m": "text"}
    assert sanitise_json(clean) is clean
    assert list(sanitise_json({"z": "\x00", "a": 1, "m": 2})) == ["z", "a", "m"]


@pytest.mark.report("M01", "M02")
@settings(max_examples=150, deadline=None)
@given(WILD_JSON)
def test_any_value_is_refused_or_becomes_utf8_json_without_nul(value):
    try:
        clean = sanitise_json(value)
    except InvalidInputError:
        return
    encoded = json.dumps(clean, ensure_ascii=False, allow_nan=False).encode("utf-8")
    assert "\\u0000" not in encoded.decode()
    assert sanitise_json(clean) == clean


def test_time_grows_with_length_and_no_faster():
    def seconds(length: int) -> float:
        text = "\ud800\x00é" * length
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            sanitise_text(text)
            best = min(best, time.thread_time() - start)
        return best

    assert seconds(100_000) < 60 * seconds(10_000)
