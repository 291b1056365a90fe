"""How large one message may be."""

from __future__ import annotations

from typing import Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import File, Image, Json, Message, Reasoning, Text, ToolCall, ToolResult
from om_core.formats.attachments import split_attachments

MAX_TEXT_BYTES: Final = 4_000_000
"""UTF-8 bytes of one message's words, calls and results."""
MAX_ATTACHMENT_BYTES: Final = 64_000_000
"""Base64 characters of one message's pictures and documents."""


def check_size(message: Message, path: str) -> Message:
    """The message itself, if it is within the limits.

    Raises:
        InvalidInputError: naming the limit.
    """
    text = attached = 0
    for part in message.parts:
        if isinstance(part, Text | Reasoning):
            text += _bytes(part.text)
        elif isinstance(part, Image | File):
            attached += len(part.data or "") + len(part.url or "")
        else:
            values = _payloads(part) if isinstance(part, ToolCall | ToolResult) else [part.data]
            for value in values:
                words, inside = _value_size(value)
                text, attached = text + words, attached + inside
    if text > MAX_TEXT_BYTES:
        raise InvalidInputError(f"{text:,} bytes of text; the limit of one message is {MAX_TEXT_BYTES:,}", path=path)
    if attached > MAX_ATTACHMENT_BYTES:
        raise InvalidInputError(
            f"{attached:,} characters of attachments; the limit of one message is {MAX_ATTACHMENT_BYTES:,}", path=path
        )
    return message


def _payloads(part: ToolCall | ToolResult) -> list[Json]:
    return [part.args] if isinstance(part, ToolCall) else [part.result, part.model_result]


def _value_size(value: Json) -> tuple[int, int]:
    """UTF-8 bytes of the words of a value, and the size of its attachments."""
    cleaned, found = split_attachments(value)
    return _words(cleaned), sum(len(item.data or "") for item in found)


def _words(value: Json) -> int:
    if isinstance(value, str):
        return _bytes(value)
    if isinstance(value, list):
        return sum(map(_words, value))
    if isinstance(value, dict):
        return sum(_bytes(key) + _words(item) for key, item in value.items())
    return 8


def _bytes(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
