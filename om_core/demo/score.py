"""What the demo measures of contexts: facts that can be read in them, and how much of a prompt stays cacheable."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from om_core.demo import fact_found, load_facts
from om_core.domain.message import Text, ToolCall, ToolResult
from om_core.domain.slices import as_text
from om_core.services.render_context import to_openai

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from om_core.domain.context import Context
    from om_core.domain.message import Message, StoredMessage

CACHED_COUNTS = 20_000


def message_text(message: Message) -> str:
    """The words of a message as a model reads them: texts, calls with their arguments, results."""
    found: list[str] = []
    for part in message.parts:
        if isinstance(part, Text):
            found.append(part.text)
        elif isinstance(part, ToolCall):
            found.append(f"{part.name} {as_text(part.args)}")
        elif isinstance(part, ToolResult):
            found.append(as_text(part.visible))
    return "\n".join(found)


def context_text(context: Context) -> str:
    """Everything a model reads of a context: system blocks, then messages."""
    return joined([block.text for block in context.system], context.messages)


def joined(texts: Iterable[str], messages: Iterable[Message]) -> str:
    """Texts and messages, apart by a blank line."""
    return "\n\n".join([*texts, *(message_text(message) for message in messages)])


def share_of_facts(text: str) -> float:
    """Share of the session's facts that the text states, from 0 to 1."""
    facts = load_facts()
    return sum(fact_found(fact, text) for fact in facts) / len(facts)


def last_messages(rows: Sequence[StoredMessage], tokens: int) -> list[StoredMessage]:
    """The newest rows that fit into this many tokens, oldest first: memory that only forgets."""
    kept: list[StoredMessage] = []
    for row in reversed(rows):
        tokens -= row.tokens
        if tokens < 0:
            break
        kept.append(row)
    return kept[::-1]


class CacheMeter:
    """Share of prompt tokens, over successive contexts, that stand in the byte-identical prefix of the one before.

    Args:
        count: tokens of a text.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = lru_cache(CACHED_COUNTS)(count)
        self._before: list[str] = []
        self.total_tokens = 0
        self.cacheable_tokens = 0

    def add(self, context: Context) -> None:
        """The next context, as a chat completion request would carry it."""
        self.add_pieces([json.dumps(message, ensure_ascii=False, sort_keys=True) for message in to_openai(context)])

    def add_pieces(self, pieces: list[str]) -> None:
        """The next prompt as texts that are sent one after the other."""
        sizes = [self._count(piece) for piece in pieces]
        same = 0
        while same < min(len(pieces), len(self._before)) and pieces[same] == self._before[same]:
            same += 1
        cacheable = sum(sizes[:same])
        if same < min(len(pieces), len(self._before)):
            cacheable += self._count(_common(pieces[same], self._before[same]))
        self.total_tokens += sum(sizes)
        self.cacheable_tokens += cacheable
        self._before = pieces

    @property
    def share(self) -> float:
        """From 0 to 1; 0 before the first context."""
        return self.cacheable_tokens / self.total_tokens if self.total_tokens else 0.0


def _common(first: str, second: str) -> str:
    """The prefix that both texts share."""
    length = next((index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    return min(first, second, key=len) if length is None else first[:length]
