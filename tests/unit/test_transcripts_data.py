"""The real conversations are read completely, with exact counts."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from om_core.domain.message import Role, ToolCall, ToolResult
from om_core.formats import dump_messages, parse_messages
from om_core.formats.canonical import dump_message, parse_message
from om_core.transcripts import read, steps

pytestmark = pytest.mark.data

MAIN = "fa812bfe-b295-4cca-9c2f-fdf01028cb46"
AGENTS = f"{MAIN}/subagents"
FILES = [
    (
        f"claude_code_spotter/{MAIN}.jsonl",
        "claude-code",
        [357],
        {
            "progress record": 1332,
            "file-history-snapshot record": 27,
            "system record": 6,
            "queue-operation record": 1,
            "compact summary": 1,
        },
    ),
    (
        "claude_code_spotter/tool_heavy.jsonl",
        "claude-code",
        [16],
        {
            "progress record": 10,
            "file-history-snapshot record": 3,
            "queue-operation record": 2,
            "system record": 2,
            "meta": 1,
        },
    ),
    (f"claude_code_spotter/{AGENTS}/agent-a93ccab.jsonl", "claude-code", [37], {"progress record": 54}),
    (f"claude_code_spotter/{AGENTS}/agent-aa84377.jsonl", "claude-code", [31], {"progress record": 46}),
    (f"claude_code_spotter/{AGENTS}/agent-acompact-70d8e7.jsonl", "claude-code", [2], {"meta": 13}),
    ("locomo/locomo5.json", "locomo", [419, 369, 663, 629, 680], {"date without session": 16}),
    ("longmemeval/giftcard.json", "longmemeval", [529], {"empty session": 1}),
    ("longmemeval/temporal-reasoning-59149c77.json", "longmemeval", [484], {"empty session": 3}),
]


def parts_of(conversation, kind):
    return [part for message in conversation.messages for part in message.parts if isinstance(part, kind)]


@pytest.mark.parametrize(
    ("name", "format", "sizes", "skipped"), FILES, ids=[row[0].rpartition("/")[2] for row in FILES]
)
def test_a_file_has_these_messages_and_these_are_skipped(data_dir, name, format, sizes, skipped):
    transcript = read(data_dir / name)
    assert transcript.format == format
    assert [len(conversation.messages) for conversation in transcript.conversations] == sizes
    assert transcript.skipped == skipped


@pytest.mark.parametrize("name", [row[0] for row in FILES if row[1] == "claude-code"])
def test_calls_and_results_pair_as_in_the_file_with_results_right_behind_the_call(data_dir, name):
    records = map(json.loads, (data_dir / name).read_text("utf-8").splitlines())
    replies = [record["message"]["content"] for record in records if record["type"] == "assistant"]
    in_file = [block["id"] for blocks in replies for block in blocks if block["type"] == "tool_use"]
    (conversation,) = read(data_dir / name).conversations
    calls = [part.call_id for part in parts_of(conversation, ToolCall)]
    results = [part.call_id for part in parts_of(conversation, ToolResult)]
    assert calls == in_file
    assert sorted(calls) == sorted(results)
    last_calls: set[str] = set()
    for message in conversation.messages:
        if message.role is Role.TOOL:
            assert {part.call_id for part in message.parts if isinstance(part, ToolResult)} <= last_calls
        else:
            last_calls = {part.call_id for part in message.parts if isinstance(part, ToolCall)}


def test_the_main_session_has_197_calls_and_157_replies(data_dir):
    (conversation,) = read(data_dir / f"claude_code_spotter/{MAIN}.jsonl").conversations
    assert len(parts_of(conversation, ToolCall)) == len(parts_of(conversation, ToolResult)) == 197
    assert Counter(message.role for message in conversation.messages) == {
        Role.ASSISTANT: 157,
        Role.TOOL: 197,
        Role.USER: 3,
    }
    uuids = [uuid for m in conversation.messages for uuid in m.metadata.get("claude_code", {}).get("uuids", [m.id])]
    assert len(uuids) == len(set(uuids)) == 514


def test_every_fact_of_the_demo_points_to_a_message(data_dir):
    from om_core.demo import load_facts

    (conversation,) = read(data_dir / f"claude_code_spotter/{MAIN}.jsonl").conversations
    known = {uuid for m in conversation.messages for uuid in m.metadata.get("claude_code", {}).get("uuids", [m.id])}
    assert {uuid for fact in load_facts() for uuid in fact.message_ids} <= known


def test_tau_bench_runs_are_30_conversations(data_dir):
    path = data_dir / "tau_bench" / "gpt-4o-airline.first30.json"
    transcript = read(path)
    runs = json.loads(path.read_text("utf-8"))
    assert transcript.format == "openai"
    assert transcript.skipped == {"system message": 30}
    assert len(transcript.conversations) == len({c.thread_suggestion for c in transcript.conversations}) == 30
    for conversation, run in zip(transcript.conversations, runs, strict=True):
        assert dump_messages(conversation.messages, "openai") == run["traj"][1:]
        calls = [call["id"] for raw in run["traj"] for call in raw.get("tool_calls") or []]
        assert [part.call_id for part in parts_of(conversation, ToolCall)] == calls


def test_locomo_keeps_order_time_and_speakers(data_dir):
    for conversation in read(data_dir / "locomo" / "locomo5.json").conversations:
        times = [message.created_at for message in conversation.messages]
        assert None not in times and times == sorted(times, key=str)
        assert len({message.author for message in conversation.messages}) == 2
        assert len({message.id for message in conversation.messages}) == len(conversation.messages)


@pytest.mark.parametrize("name", ["giftcard.json", "temporal-reasoning-59149c77.json"])
def test_longmemeval_is_ordered_by_time(data_dir, name):
    (conversation,) = read(data_dir / "longmemeval" / name).conversations
    times = [message.created_at for message in conversation.messages if message.created_at]
    assert len(times) == len(conversation.messages) and times == sorted(times)


@pytest.mark.parametrize("name", [row[0] for row in FILES])
def test_ingest_can_take_every_message_and_steps_lose_none(data_dir, name):
    for conversation in read(data_dir / name).conversations:
        ids = [message.id for message in conversation.messages]
        assert len(set(ids)) == len(ids)
        for message in conversation.messages:
            assert parse_message(dump_message(message)) == message
        assert [m for step in steps(conversation) for m in step.messages] == list(conversation.messages)


@pytest.mark.parametrize("format", ["openai", "anthropic"])
def test_a_session_can_be_sent_to_either_provider(data_dir, format):
    (conversation,) = read(data_dir / f"claude_code_spotter/{MAIN}.jsonl").conversations
    raws = dump_messages(conversation.messages, format)
    waiting: set[str] = set()
    for message in parse_messages(raws, format):
        results = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        assert results <= waiting
        waiting -= results
        if message.role is not Role.TOOL:
            assert not waiting
        waiting |= {part.call_id for part in message.parts if isinstance(part, ToolCall)}
    assert not waiting


@pytest.mark.parametrize("folder", ["claude_code_log/test_data", "agentpile_fixtures/claude_code"])
def test_drifting_and_broken_records_never_stop_a_reading(data_dir, folder):
    for path in sorted((data_dir / folder).glob("*.jsonl")):
        assert read(path).conversations, path.name
