"""Transcript files of several kinds become conversations that can be replayed as if live."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime

import pytest

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from om_core.formats.canonical import dump_message, parse_message
from om_core.transcripts import FORMATS, Conversation, detect, read, steps


def write(folder, name, *lines):
    path = folder / name
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return path


def only(transcript):
    assert len(transcript.conversations) == 1
    return transcript.conversations[0]


def roles(conversation):
    return [message.role.value for message in conversation.messages]


CHAT = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "find x", "timestamp": "2026-01-02T03:04:05Z"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {"role": "assistant", "content": "here it is"},
    {"role": "assistant", "content": ""},
    {"role": "robot", "content": "?"},
]
CHAT_SKIPPED = {"system message": 1, "empty message": 1, "invalid message": 1}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("chat.json", [json.dumps(CHAT, indent=2)]),
        ("chat.json", [json.dumps(CHAT)]),
        ("chat.json", [{"messages": CHAT, "model": "gpt-4o"}]),
        ("chat.jsonl", CHAT),
        ("chat.jsonl", [{"messages": CHAT}]),
        ("chat.jsonl.gz", CHAT),
        ("chat.json.gz", [json.dumps(CHAT, indent=1)]),
        ("chat.json", [[{"traj": CHAT}]]),
        ("chat.traj", [{"history": CHAT}]),
    ],
)
def test_openai_chats_are_read_from_every_shape(tmp_path, name, lines):
    transcript = read(write(tmp_path, name, *lines))
    conversation = only(transcript)
    assert transcript.format == "openai"
    assert transcript.skipped == CHAT_SKIPPED
    assert conversation.thread_suggestion.startswith("chat")
    assert roles(conversation) == ["user", "assistant", "tool", "assistant"]
    assert conversation.messages[0].created_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert conversation.messages[2].parts == (ToolResult(call_id="c1", result="found"),)


def test_one_conversation_a_line_makes_several(tmp_path):
    lines = [{"id": "first", "user_id": "ann", "messages": CHAT}, {"messages": CHAT[1:2]}, "broken {", {"x": 1}]
    transcript = read(write(tmp_path, "many.jsonl", *lines))
    assert [(c.thread_suggestion, c.resource_suggestion, len(c.messages)) for c in transcript.conversations] == [
        ("first", "ann", 4),
        ("many-1", "many-1", 1),
    ]
    assert transcript.skipped == {**CHAT_SKIPPED, "not JSON": 1, "no messages": 1}


def test_anthropic_messages_are_told_from_openai_ones(tmp_path):
    messages = [
        {"role": "user", "content": "find x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "search", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]},
    ]
    for path in (write(tmp_path, "a.jsonl", *messages), write(tmp_path, "a.json", {"messages": messages})):
        transcript = read(path)
        assert transcript.format == "anthropic"
        assert roles(only(transcript)) == ["user", "assistant", "tool"]


def test_the_canonical_form_is_read_back_with_its_ids(tmp_path):
    messages = [
        Message(role=Role.USER, parts=(Text(text="a"),), id="m1", created_at=datetime(2026, 1, 1, tzinfo=UTC)),
        Message(role=Role.ASSISTANT, parts=(Reasoning(text="hm"), Text(text="b")), id="m2"),
    ]
    raws = [dump_message(message) for message in messages]
    for path in (write(tmp_path, "o.jsonl", *raws), write(tmp_path, "o.json", {"format": "om", "messages": raws})):
        transcript = read(path)
        assert transcript.format == "om"
        assert only(transcript).messages == tuple(messages)


def record(uuid, kind, content, message_id=None, **extra):
    message = {"role": kind, "content": content} | ({"id": message_id, "type": "message"} if message_id else {})
    base = {"type": kind, "uuid": uuid, "sessionId": "s1", "cwd": "/srv/project", "isSidechain": False}
    return base | {"timestamp": f"2026-01-01T00:00:{int(uuid[1:]):02}Z", "message": message} | extra


def use(call_id):
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}


def result(call_id, **fields):
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"} | fields


SESSION = [
    {"type": "summary", "summary": "old", "leafUuid": "x"},
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
    record("u1", "user", "list files"),
    record("u2", "assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}], "msg_1"),
    record("u3", "assistant", [{"type": "text", "text": "looking"}], "msg_1"),
    record("u4", "assistant", [use("t1")], "msg_1"),
    {"type": "progress", "uuid": "p1", "sessionId": "s1"},
    record("u5", "user", [result("t1")]),
    record("u6", "assistant", [use("t2")], "msg_1"),
    record("u7", "user", [result("t2", is_error=True)]),
    record("u7", "user", [result("t2", is_error=True)]),
    record("u8", "assistant", [{"type": "text", "text": "done"}], "msg_2"),
    record("u9", "user", "summary of all", isCompactSummary=True),
    record("u10", "user", "caveat", isMeta=True),
    record("u11", "user", "inner task", isSidechain=True, agentId="a1"),
    record("u12", "assistant", [{"type": "text", "text": "API Error"}], "msg_3", isApiErrorMessage=True),
    record("u13", "user", [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]),
    record("u14", "user", 7),
    record("u15", "user", [result("t9")]),
    {"type": "user", "uuid": "u16", "sessionId": "s1", "message": "error"},
    {"silly": 1},
    "[1]",
    "not json",
]


def test_a_claude_code_session_has_one_message_per_reply_with_its_results_behind_it(tmp_path):
    transcript = read(write(tmp_path, "s.jsonl", *SESSION))
    conversation = only(transcript)
    assert transcript.format == "claude-code"
    assert (conversation.thread_suggestion, conversation.resource_suggestion) == ("s1", "project")
    assert [(m.id, m.role.value) for m in conversation.messages] == [
        ("u1", "user"),
        ("u2", "assistant"),
        ("u5", "tool"),
        ("u7", "tool"),
        ("u8", "assistant"),
        ("u13", "user"),
        ("u15", "tool"),
    ]
    reply = conversation.messages[1]
    assert [part.type for part in reply.parts] == ["reasoning", "text", "tool_call", "tool_call"]
    assert [part.created_at.second for part in reply.parts if part.created_at] == [2, 3, 4, 6]
    assert reply.metadata == {"claude_code": {"uuids": ["u2", "u3", "u4", "u6"], "message_id": "msg_1"}}
    assert reply.created_at == datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert conversation.messages[3].parts == (ToolResult(call_id="t2", result="ok", status="error"),)
    assert conversation.messages[5].parts == (Image(data="AA==", mime_type="image/png"),)
    assert transcript.skipped == {
        "summary record": 1,
        "file-history-snapshot record": 1,
        "progress record": 1,
        "duplicate record": 1,
        "compact summary": 1,
        "meta": 1,
        "sidechain": 1,
        "API error": 1,
        "invalid message": 2,
        "unknown record": 2,
        "not JSON": 1,
        "empty message": 1,
    }


def test_a_subagents_file_is_a_conversation_of_its_own(tmp_path):
    lines = [
        record("u1", "user", "task", isSidechain=True, agentId="a1"),
        record("u2", "assistant", [{"type": "text", "text": "done"}], "m", isSidechain=True, agentId="a1"),
    ]
    conversation = only(read(write(tmp_path, "agent-a1.jsonl", *lines)))
    assert conversation.thread_suggestion == "s1-a1"
    assert roles(conversation) == ["user", "assistant"]


def test_a_session_file_with_two_sessions_gives_two_conversations(tmp_path):
    lines = [record("u1", "user", "a"), record("u2", "user", "b", sessionId="s2"), record("u3", "user", "c")]
    transcript = read(write(tmp_path, "s.jsonl", *lines))
    assert [[m.id for m in c.messages] for c in transcript.conversations] == [["u1", "u3"], ["u2"]]


LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_2_date_time": "12:30 am on 2 June, 2023",
            "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "Hi", "blip_caption": "a red car"}],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello"},
                {"speaker": "Bob", "dia_id": "D1:2", "text": "Hey"},
                {"speaker": "Ann", "dia_id": "D1:3"},
            ],
            "session_3_date_time": "1:00 pm on 3 June, 2023",
        },
        "qa": [],
    }
]


def test_locomo_speakers_become_user_and_assistant_with_dates(tmp_path):
    transcript = read(write(tmp_path, "l.json", LOCOMO))
    conversation = only(transcript)
    assert transcript.format == "locomo"
    assert conversation.thread_suggestion == conversation.resource_suggestion == "conv-1"
    assert conversation.timezone == "UTC"
    seen = [(m.id, m.role.value, m.author, m.created_at) for m in conversation.messages]
    assert seen == [
        ("D1:1", "user", "Ann", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("D1:2", "assistant", "Bob", datetime(2023, 5, 8, 13, 57, tzinfo=UTC)),
        ("D2:1", "assistant", "Bob", datetime(2023, 6, 2, 0, 30, tzinfo=UTC)),
    ]
    assert conversation.messages[2].parts == (Text(text="Hi"), Text(text="[image: a red car]"))
    assert transcript.skipped == {"date without session": 1, "invalid message": 1}


def turn(content, when):
    return {"role": "user", "content": content, "created_at": when}


def test_longmemeval_sessions_are_put_in_order_of_time(tmp_path):
    item = {
        "question": "?",
        "question_date": "2023/05/30 (Tue) 20:42",
        "answer": "!",
        "sessions": [
            {"session_id": "late", "messages": [turn("b", "2023-02-01T10:00:00"), turn("c", "2023-02-01T10:00:00")]},
            {"session_id": "none", "messages": []},
            {"session_id": "early", "messages": [turn("a", "2023-01-01T10:00:00"), {"role": "user", "content": None}]},
        ],
    }
    transcript = read(write(tmp_path, "q.json", item))
    conversation = only(transcript)
    assert transcript.format == "longmemeval"
    assert [(m.id, m.metadata["longmemeval"]["session_id"]) for m in conversation.messages] == [
        ("early:0", "early"),
        ("late:0", "late"),
        ("late:1", "late"),
    ]
    assert conversation.messages[0].created_at == datetime(2023, 1, 1, 10, tzinfo=UTC)
    assert transcript.skipped == {"empty session": 1, "invalid message": 1}


def test_longmemeval_is_read_in_its_original_shape(tmp_path):
    item = {
        "question_id": "q-1",
        "question": "?",
        "haystack_session_ids": ["x", "y"],
        "haystack_dates": ["2023/05/30 (Tue) 20:42", "2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [[{"role": "user", "content": "b"}], [{"role": "assistant", "content": "a"}]],
    }
    conversation = only(read(write(tmp_path, "q.json", [item])))
    assert conversation.thread_suggestion == "q-1"
    assert [m.id for m in conversation.messages] == ["y:0", "x:0"]
    assert conversation.messages[0].created_at == datetime(2023, 5, 20, 2, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "hello", '{"hello": "world"}', "[]", "[1, 2]", '{"messages": []}', "{}\n{}", '"x"']
)
def test_a_file_of_no_known_format_is_refused_with_the_formats_tried(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidInputError) as caught:
        detect(path)
    assert all(name in str(caught.value) for name in ("x.json", *FORMATS))


def test_a_cut_gzip_file_is_refused_by_name(tmp_path):
    path = write(tmp_path, "c.jsonl.gz", *[f'{{"role": "user", "content": "{n}"}}' for n in range(999)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInputError, match=r"c\.jsonl\.gz"):
        read(path)


def test_a_named_format_must_exist_and_fit(tmp_path):
    path = write(tmp_path, "chat.json", CHAT)
    with pytest.raises(InvalidInputError, match="claude-code"):
        read(path, "yaml")
    with pytest.raises(InvalidInputError, match="locomo"):
        read(path, "locomo")
    assert read(path, "openai").format == "openai"


def test_a_limit_holds_over_all_conversations(tmp_path):
    many = write(tmp_path, "many.jsonl", {"messages": CHAT}, {"messages": CHAT}, {"messages": CHAT})
    assert [len(c.messages) for c in read(many, limit=6).conversations] == [4, 2]
    single = write(tmp_path, "chat.jsonl", *CHAT)
    assert [len(c.messages) for c in read(single, limit=2).conversations] == [2]
    session = write(tmp_path, "s.jsonl", *SESSION)
    assert [len(c.messages) for c in read(session, limit=3).conversations] == [3]


def test_ids_are_the_same_each_time_valid_and_different(tmp_path):
    path = write(tmp_path, "a\tb.json", [{"role": "user", "content": "x", "id": "same"}] * 2 + CHAT[1:2] * 3)
    first, second = only(read(path)), only(read(path))
    assert first == second
    ids = [message.id for message in first.messages]
    assert len(set(ids)) == len(ids) == 5
    assert ids[0] == "same"
    for message in first.messages:
        assert parse_message(dump_message(message)) == message


def conversation_of(*messages):
    return Conversation(thread_suggestion="t", resource_suggestion="r", messages=messages)


USER = Message(role=Role.USER, parts=(Text(text="q"),))
SAY = Message(role=Role.ASSISTANT, parts=(Text(text="a"),))
CALL = Message(role=Role.ASSISTANT, parts=(ToolCall(call_id="c", name="n"), ToolCall(call_id="d", name="n")))
RESULT = Message(role=Role.TOOL, parts=(ToolResult(call_id="c"),))
SERVED = Message(role=Role.ASSISTANT, parts=(ToolCall(call_id="c", name="n"), ToolResult(call_id="c"), Text(text="a")))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, SAY], [(1, False), (1, True)]),
        ([USER, CALL, RESULT, RESULT, SAY], [(1, False), (1, False), (2, False), (1, True)]),
        ([USER, USER, SAY, USER], [(1, False), (1, False), (1, True), (1, False)]),
        ([USER, SAY, CALL, RESULT], [(1, False), (1, False), (1, False), (1, False)]),
        ([RESULT, USER, CALL], [(1, False), (1, False), (1, False)]),
        ([USER, SERVED], [(1, False), (1, True)]),
        ([], []),
    ],
)
def test_steps_are_the_posts_of_a_live_agent(messages, expected):
    found = list(steps(conversation_of(*messages)))
    assert [(len(step.messages), step.end_of_turn) for step in found] == expected
    assert [message for step in found for message in step.messages] == messages
