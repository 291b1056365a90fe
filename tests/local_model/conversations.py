"""Three hundred real messages of three kinds: two people chatting, chats in French and Chinese, an agent with tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from om_core.domain.message import Message, Role, Text
from om_core.transcripts import read
from om_core.transcripts.model import Conversation
from tests.quality.dialogues import load

STARTED: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
APART: Final = timedelta(minutes=2)
"""Between messages of data that tell no times."""


@dataclass(frozen=True)
class Part:
    """So many messages for one thread."""

    thread: str
    messages: tuple[Message, ...]

    @property
    def conversation(self) -> Conversation:
        return Conversation(thread_suggestion=self.thread, resource_suggestion=self.thread, messages=self.messages)


def parts(folder: Path) -> tuple[Part, ...]:
    """The same three hundred messages each time.

    Args:
        folder: of the real conversations.
    """
    friends = next(load(folder)).conversation.messages
    agents = read(folder / "tau_bench" / "gpt-4o-airline.first30.json").conversations
    agent = (message for conversation in agents for message in conversation.messages)
    return (
        Part("friends", friends[:40]),
        Part("french", _persona(folder, "Fr", 110)),
        Part("chinese", _persona(folder, "Zh", 110)),
        Part("agent", tuple(_dated(agent, 40))),
    )


def _persona(folder: Path, language: str, number: int) -> tuple[Message, ...]:
    path = folder / "xpersona_multilingual" / f"{language}_persona_split_test_human_annotated.json"
    lines = (
        line for talk in json.loads(path.read_text(encoding="utf-8")) for pair in talk["dialogue"] for line in pair
    )
    said = (
        Message(id=None, role=(Role.USER, Role.ASSISTANT)[index % 2], parts=(Text(text=line),))
        for index, line in enumerate(lines)
    )
    return tuple(_dated(said, number))


def _dated(messages: Iterator[Message], number: int) -> Iterator[Message]:
    for index, message in enumerate(islice(messages, number)):
        yield replace(message, id=f"m{index + 1}", created_at=STARTED + index * APART)
