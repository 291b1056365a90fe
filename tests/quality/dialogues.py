"""Dialogues with questions: LoCoMo (categories 1 to 4) and LongMemEval, as they lie in the folder of test data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from om_core.domain.message import Message, Role, Text
from om_core.transcripts import read
from om_core.transcripts.locomo import is_sample
from om_core.transcripts.longmemeval import is_question
from om_core.transcripts.model import Conversation

_CATEGORIES: Final = frozenset({1, 2, 3, 4})
_TURN: Final = re.compile(r"D\d+:\d+")
_GOLD: Final = "answer_"
"""How LongMemEval names the sessions that hold the answer."""
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Turn:
    """One message: its session, when that began, who speaks, and all that is said, captions included."""

    id: str
    session: str
    began: datetime
    at: datetime
    speaker: str
    text: str


@dataclass(frozen=True)
class Dialogue:
    """A conversation with the answers to look for, and the ids of the turns that are evidence of them."""

    dataset: str
    name: str
    conversation: Conversation
    answers: tuple[Any, ...]
    evidence: frozenset[str]

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """The messages in order."""
        began: dict[str, datetime] = {}
        turns = []
        for message in self.conversation.messages:
            session, at = _session(message), message.created_at or _NO_TIME
            turns.append(
                Turn(
                    id=message.id or "",
                    session=session,
                    began=began.setdefault(session, at),
                    at=at,
                    speaker=message.author or message.role.value.capitalize(),
                    text=" ".join(part.text for part in message.parts if isinstance(part, Text)),
                )
            )
        return tuple(turns)


def _session(message: Message) -> str:
    where: Any = message.metadata.get("locomo") or message.metadata.get("longmemeval") or {}
    return str(where.get("session", where.get("session_id", "")))


def load(folder: Path) -> Iterator[Dialogue]:
    """Every dialogue under `locomo/` and `longmemeval/`, whatever their files are called."""
    for path in sorted(folder.glob("locomo/**/*.json")):
        yield from _locomo(path)
    for path in sorted(folder.glob("longmemeval/**/*.json")):
        yield from _longmemeval(path)


def _items(path: Path) -> list[Any]:
    """What a file holds, a list or one; other files may lie beside the dialogues."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return document if isinstance(document, list) else [document]


def _locomo(path: Path) -> Iterator[Dialogue]:
    samples = [item for item in _items(path) if is_sample(item)]
    if not samples:
        return
    for sample, conversation in zip(samples, read(path, "locomo").conversations, strict=True):
        asked = [item for item in sample["qa"] if item["category"] in _CATEGORIES and "answer" in item]
        yield Dialogue(
            dataset="locomo",
            name=conversation.thread_suggestion,
            conversation=conversation,
            answers=tuple(item["answer"] for item in asked),
            evidence=frozenset(turn for item in asked for turn in _TURN.findall(" ".join(item.get("evidence", ())))),
        )


def _longmemeval(path: Path) -> Iterator[Dialogue]:
    questions = [item for item in _items(path) if is_question(item)]
    if not questions:
        return
    for number, (item, conversation) in enumerate(zip(questions, read(path).conversations, strict=True)):
        gold = frozenset(
            message.id or ""
            for message in conversation.messages
            if message.role is Role.USER and _session(message).startswith(_GOLD)
        )
        yield Dialogue(
            dataset="longmemeval",
            name=f"{path.stem}-{number}" if len(questions) > 1 else path.stem,
            conversation=conversation,
            answers=(item["answer"],),
            evidence=gold,
        )
