"""One unit larger than the Observer's window, cut into successive slices (DESIGN 6.1). Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from om_core.domain.message import UNSEEN_PARTS, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from om_core.domain.message import Json, Part, StoredMessage


def slice_messages(
    messages: Sequence[StoredMessage], window_tokens: int, count: Callable[[str], int]
) -> list[tuple[StoredMessage, ...]]:
    """Pack messages into slices of at most `window_tokens`; texts, arguments and results that are larger are split.

    Order is kept and nothing seen by the Observer is left out: joined again, the pieces of a text are the text. A
    piece of a call or result keeps id and name and says "(part i of n)". Images and files are never split, so a slice
    can be larger than the window only because of one of these. Pieces of a message keep its seq.

    Args:
        messages: the unit, by seq.
        window_tokens: room for input, more than 0.
        count: tokens of a text.
    """
    slices: list[tuple[StoredMessage, ...]] = []
    current: list[StoredMessage] = []
    for piece in (piece for message in messages for piece in _pieces(message, window_tokens, count)):
        if current and sum(message.tokens for message in current) + piece.tokens > window_tokens:
            slices.append(tuple(current))
            current = []
        current.append(piece)
    return [*slices, tuple(current)] if current else slices


def _pieces(message: StoredMessage, window_tokens: int, count: Callable[[str], int]) -> Iterator[StoredMessage]:
    if message.tokens <= window_tokens:
        yield message
        return
    for part in message.parts:
        if isinstance(part, UNSEEN_PARTS):
            continue
        for piece in _split_part(part, window_tokens, count):
            tokens = (
                max(1, count(_text_in(piece))) if isinstance(piece, Text | ToolCall | ToolResult) else message.tokens
            )
            yield replace(message, message=replace(message.message, parts=(piece,)), tokens=tokens)


def _split_part(part: Part, window_tokens: int, count: Callable[[str], int]) -> Iterator[Part]:
    if not isinstance(part, Text | ToolCall | ToolResult) or count(_text_in(part)) <= window_tokens:
        yield part
    elif isinstance(part, Text):
        yield from (replace(part, text=text) for text in _split_text(part.text, window_tokens, count))
    else:
        room = max(1, window_tokens - count(f"{part.name} (part 100 of 100)\n"))
        texts = list(_split_text(_text_in(part), room, count))
        marked = (f"(part {index} of {len(texts)})\n{text}" for index, text in enumerate(texts, start=1))
        if isinstance(part, ToolCall):
            yield from (replace(part, args=text) for text in marked)
        else:
            yield from (replace(part, result=text, model_result=None) for text in marked)


def _split_text(text: str, room: int, count: Callable[[str], int]) -> Iterable[str]:
    """Pieces of about equal length, each of at most `room` tokens (or one character), between words where possible."""
    pieces = max(1, ceil(count(text) / room))
    while True:
        length = max(1, ceil(len(text) / pieces))
        texts = list(_between_words(text, length))
        if length == 1 or all(count(piece) <= room for piece in texts):
            return texts
        pieces = ceil(pieces * 1.25) + 1


def _between_words(text: str, length: int) -> Iterator[str]:
    """Pieces of at most `length` characters; one ends after white space if there is any in its last quarter."""
    start = 0
    while start < len(text):
        end = min(len(text), start + length)
        if end < len(text):
            space = max(text.rfind(" ", end - length // 4, end), text.rfind("\n", end - length // 4, end))
            end = space + 1 if space > start else end
        yield text[start:end]
        start = end


def _text_in(part: Text | ToolCall | ToolResult) -> str:
    if isinstance(part, Text):
        return part.text
    return as_text(part.args if isinstance(part, ToolCall) else part.visible)


def as_text(value: Json) -> str:
    """A payload as a model reads it: a text as it is, anything else as JSON with sorted keys."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
