"""Messages are recognised by what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from om_core.domain.message import Data, File, Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from om_core.formats.fingerprint import added_parts, fingerprint, same_content

A, B, C = Text(text="a"), Text(text="b"), Text(text="c")
CALL = ToolCall(call_id="c1", name="search", args={"q": "x", "n": 1})
THOUGHT = Reasoning(text="hm", provider="anthropic")
STATUS = Data(data_type="data-status", data=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def user(*parts, **fields):
    return Message(role=Role.USER, parts=parts, **fields)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (user(A), user(A, id="m1", created_at=NOON, timezone="UTC", metadata={"k": 1}, author="Ann")),
        (user(A), user(Text(text="a", created_at=NOON, provider_metadata={"x": 1}))),
        (user(CALL), user(ToolCall(call_id="c1", name="search", args={"n": 1, "q": "x"}))),
        (user(A), user(THOUGHT, A, STATUS)),
        (user(A), user(Text(text=""), A)),
        (user(ToolResult(call_id="c", result="r")), user(ToolResult(call_id="c", name="tool", result="r"))),
        (
            user(ToolResult(call_id="c", result=[{"type": "text", "text": "r"}])),
            user(ToolResult(call_id="c", result=[{"type": "text", "text": "r", "cache_control": {"type": "e"}}])),
        ),
    ],
)
def test_what_is_not_content_does_not_change_a_fingerprint(left, right):
    assert fingerprint(left) == fingerprint(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (user(A), user(B)),
        (user(A), Message(role=Role.ASSISTANT, parts=(A,))),
        (user(A, B), user(B, A)),
        (user(Text(text="ab")), user(A, B)),
        (user(CALL), user(ToolCall(call_id="c2", name="search", args={"q": "x", "n": 1}))),
        (user(CALL), user(ToolCall(call_id="c1", name="search", args={"q": "y", "n": 1}))),
        (user(ToolResult(call_id="c", result="1")), user(ToolResult(call_id="c", result=1))),
        (user(ToolResult(call_id="c", result="r")), user(ToolResult(call_id="c", result="r", status="error"))),
        (user(Image(url="u")), user(Image(url="v"))),
        (user(Image(url="u")), user(File(url="u"))),
        (user(File(provider_metadata={"id": 1})), user(File(provider_metadata={"id": 2}))),
    ],
)
def test_other_content_has_another_fingerprint(left, right):
    assert fingerprint(left) != fingerprint(right)


def test_a_fingerprint_is_16_bytes_and_the_same_in_another_process():
    code = (
        "from om_core.domain.message import *; from om_core.formats.fingerprint import fingerprint;"
        "print(fingerprint(Message(role=Role.USER, parts=(Text(text='é'), ToolCall(call_id='c', name='n', args={'b': 1, 'a': 2})))).hex())"
    )
    here = fingerprint(user(Text(text="é"), ToolCall(call_id="c", name="n", args={"a": 2, "b": 1})))
    env = os.environ | {"PYTHONHASHSEED": "12345"}
    there = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout
    assert there.strip() == here.hex()
    assert len(here) == 16


@pytest.mark.parametrize(
    ("stored", "incoming", "relation", "added"),
    [
        ([A, B], [A, B], "equal", []),
        ([A, B], [A], "prefix", []),
        ([A, B], [], "prefix", []),
        ([A], [A, CALL], "extends", [CALL]),
        ([], [A], "extends", [A]),
        ([A, B], [A, C], "differs", []),
        ([A, B], [B], "differs", []),
        ([THOUGHT, A], [A], "equal", []),
        ([A], [THOUGHT, A], "equal", []),
        ([A], [A, STATUS], "extends", [STATUS]),
        ([THOUGHT, A], [A, CALL], "extends", [CALL]),
        ([A], [THOUGHT, A, STATUS, B], "extends", [STATUS, B]),
        ([THOUGHT, A, B], [A], "prefix", []),
    ],
)
def test_a_message_sent_again_is_compared_part_by_part(stored, incoming, relation, added):
    assert same_content(stored, incoming) == relation
    assert added_parts(stored, incoming) == tuple(added)
