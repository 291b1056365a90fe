"""What a transcript file holds, and the steps in which a live agent would have posted it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Message, Role, ToolCall, ToolResult
from om_core.formats.fields import MAX_ID, check_id
from om_core.formats.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation in order. Every message has an id that is the same each time the file is read.

    The suggestions are valid ids; `timezone` is an IANA name for rendering, where the file tells or implies one.
    """

    thread_suggestion: str
    resource_suggestion: str
    messages: tuple[Message, ...]
    timezone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A file as read: its format, its conversations, and how many records were skipped for which reason."""

    format: str
    conversations: tuple[Conversation, ...]
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Messages of one POST; `end_of_turn` after a reply that asks for no tool and that a user's message follows."""

    messages: tuple[Message, ...]
    end_of_turn: bool = False


def steps(conversation: Conversation) -> Iterator[Step]:
    """Group messages as a live agent posts them: a user's message; each reply alone; the results that follow it."""
    messages = conversation.messages
    start = 0
    while start < len(messages):
        end = start + 1
        while messages[start].role is Role.TOOL and end < len(messages) and messages[end].role is Role.TOOL:
            end += 1
        following = messages[end] if end < len(messages) else None
        yield Step(messages=messages[start:end], end_of_turn=_ends_turn(messages[start], following))
        start = end


def _ends_turn(message: Message, following: Message | None) -> bool:
    if message.role is not Role.ASSISTANT:
        return False
    answered = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
    if any(isinstance(part, ToolCall) and part.call_id not in answered for part in message.parts):
        return False
    return following is None or following.role is Role.USER


class Tally:
    """Counts what a reader takes and what it skips; the same for every format."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.taken = 0
        self.skipped: Counter[str] = Counter()

    def skip(self, reason: str, count: int = 1) -> None:
        self.skipped[reason] += count

    @property
    def is_full(self) -> bool:
        """Whether the limit of messages is reached."""
        return self.limit is not None and self.taken >= self.limit

    def conversation(
        self, thread: str, resource: str, messages: Sequence[Message], *, timezone: str | None = None
    ) -> Conversation | None:
        """A conversation of the messages that ingest would store, within the limit; None where none is left."""
        kept = self._kept(messages)
        if self.limit is not None:
            kept = kept[: max(0, self.limit - self.taken)]
        self.taken += len(kept)
        if not kept:
            return None
        thread = valid_id(thread)
        named = tuple(_identified(message, thread, index) for index, message in enumerate(kept))
        return Conversation(
            thread_suggestion=thread, resource_suggestion=valid_id(resource), messages=named, timezone=timezone
        )

    def _kept(self, messages: Sequence[Message]) -> list[Message]:
        kept: list[Message] = []
        ids: set[str] = set()
        for message in messages:
            if message.role is Role.SYSTEM:
                self.skip("system message")
            elif not is_storable(message):
                self.skip("empty message")
            else:
                known = message.id is not None and message.id in ids
                kept.append(replace(message, id=None) if known else message)
                ids.add(message.id or "")
        return kept


def is_storable(message: Message) -> bool:
    """Whether ingest would store the message (DESIGN 6.11)."""
    return message.role is not Role.SYSTEM and message.has_content


def valid_id(text: str) -> str:
    """The text as an id that the API accepts."""
    cleaned = "".join(char if char.isprintable() and char != "/" else "-" for char in text)[:MAX_ID]
    try:
        return check_id(cleaned, "id")
    except InvalidInputError:
        return "transcript"


def _identified(message: Message, thread: str, index: int) -> Message:
    """The message with an id from its place and content, unless it has one."""
    if message.id is not None:
        return message
    return replace(message, id=valid_id(f"{thread[:200]}-{index}-{fingerprint(message).hex()[:8]}"))
