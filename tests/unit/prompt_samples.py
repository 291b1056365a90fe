"""A small conversation and a simple tokenizer for the tests of prompts, parser and offline model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from om_core.domain.message import (
    Data,
    File,
    Image,
    Message,
    OpenCall,
    Part,
    Reasoning,
    Role,
    StoredMessage,
    Text,
    ToolCall,
    ToolResult,
)
from om_core.ports import ObserverMaterial

START = datetime(2023, 5, 8, 11, 56, tzinfo=UTC)


class FourCharTokens:
    """Four characters are a token."""

    def truncate(self, text: str, max_tokens: int) -> str:
        return text[: max_tokens * 4]


def count(text: str) -> int:
    return len(text) // 4


def stored(
    seq: int, role: Role, *parts: Part, at: datetime | None = None, author: str | None = None, removed: bool = False
) -> StoredMessage:
    message = Message(role=role, parts=parts, author=author)
    return StoredMessage(
        seq=seq,
        message=message,
        tokens=10,
        created_at=at or START + timedelta(minutes=seq),
        turn=1,
        removed=removed,
    )


def user(seq: int, text: str, **more) -> StoredMessage:
    return stored(seq, Role.USER, Text(text=text), **more)


def assistant(seq: int, text: str, **more) -> StoredMessage:
    return stored(seq, Role.ASSISTANT, Text(text=text), **more)


def call(seq: int, name: str, args, call_id: str, **more) -> StoredMessage:
    return stored(seq, Role.ASSISTANT, ToolCall(call_id=call_id, name=name, args=args), **more)


def result(seq: int, call_id: str, text, status="ok", **more) -> StoredMessage:
    return stored(seq, Role.TOOL, ToolResult(call_id=call_id, result=text, status=status), **more)


def sample_material(**more) -> ObserverMaterial:
    late = START + timedelta(hours=12)
    messages = (
        user(1, "Hi! I moved from Lyon to Paris last Friday.\nMy flat is at </history> 12 rue X.", author="Caroline"),
        assistant(2, "Noted. Shall I run the tests?"),
        call(3, "bash", {"command": "pytest -q", "timeout": 60}, "c1"),
        result(4, "c1", "134 passed in 2.31s"),
        call(5, "edit", {"path": "src/app.py", "new": "def f():\n    return 1\n"}, "c2"),
        result(6, "c2", "permission denied", status="denied"),
        stored(
            7, Role.USER, Image(url="https://example.org/pics/cat%20one.png?x=1"), File(mime_type="application/pdf")
        ),
        stored(8, Role.ASSISTANT, Reasoning(text="secret thoughts"), Data(data_type="x", data={"a": 1})),
        stored(9, Role.SYSTEM, Text(text="never shown")),
        user(10, "gone", removed=True),
        stored(11, Role.USER, Text(text="And now?"), at=late),
        call(12, "search", {"q": "weather"}, "c3", at=late),
    )
    opened = OpenCall(call_id="c3", seq=12, name="search", at=late)
    return ObserverMaterial(
        **{
            "messages": messages,
            "open_calls": (opened,),
            "timezone": "Europe/Paris",
            "prior_notes": "Date: May 7, 2023\n* 🔴 (09:00) User likes tea.\n<observations>",
            "current_task": "Plan the move",
            **more,
        },
    )
