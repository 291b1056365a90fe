"""Which words two texts have in common, when it matters what they are about (DESIGN 3.3)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from om_core.domain.content_words import content_words, message_words, note_words
from om_core.domain.message import Data, File, Message, Part, Reasoning, Role, StoredMessage, Text, ToolCall, ToolResult

DAY = datetime(2026, 3, 9, 12, 0, tzinfo=UTC)


def row(*parts: Part, author: str | None = None, removed: bool = False) -> StoredMessage:
    message = Message(role=Role.USER, parts=parts, author=author)
    return StoredMessage(seq=1, message=message, tokens=1, created_at=DAY, turn=1, removed=removed)


@pytest.mark.parametrize(
    ("said", "noted", "shared"),
    [
        ("I have diabetes", "needs a diabetic diet", True),
        ("it costs 42 euros", "paid 42", True),
        ("the cat", "a dog and the car", False),
        ("what would they say about this", "this is what they would have said about that", False),
        ("the user told me", "User asked the assistant", False),
        ("我喜欢斑马", "用户喜欢斑马", True),
        ("我喜欢斑马", "天气很好", False),
        ("שלום ירושלים", "ירושלים", True),
        ("STRASSE", "straße", True),
        ("안녕하세요", "안녕", True),
        ("", "anything", False),
    ],
)
def test_words_are_compared_by_what_carries_content(said: str, noted: str, shared: bool) -> None:
    assert bool(content_words(said) & content_words(noted)) is shared


def test_the_days_and_times_of_notes_are_no_words_of_theirs() -> None:
    text = "Date: March 9, 2026 (Europe/Paris, UTC+01:00)\n* 🔴 (14:30) Maria likes zebras"
    assert note_words(text) == {"maria", "likes", "zebra"}


def test_everything_that_a_note_could_be_made_from_counts_and_nothing_else() -> None:
    parts: tuple[Part, ...] = (
        Text(text="likes zebras"),
        ToolCall(call_id="hidden", name="search_hotels", args={"place": "Lisbon"}),
        ToolResult(call_id="hidden", name="lookup", result={"secret": "raw"}, model_result="three rooms"),
        File(filename="invoice.pdf", data="AAAA", mime_type="application/pdf"),
        Reasoning(text="unseen thoughts"),
        Data(data_type="chart", data={"series": "unseen"}),
    )
    words = message_words([row(*parts, author="Konstantin")])
    for word in ("zebra", "searc", "lisbo", "looku", "rooms", "invoi", "konst", "2026", "march", "9"):
        assert any(word == found or found.startswith(word) for found in words), word
    for word in ("hidde", "secre", "unsee", "aaaa", "text"):
        assert word not in words


def test_a_tombstone_has_no_words() -> None:
    assert message_words([row(removed=True)]) == frozenset()
