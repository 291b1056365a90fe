"""Message formats: canonical (`om`), OpenAI chat completions, Anthropic Messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from om_core.domain.errors import InvalidInputError
from om_core.formats.anthropic import dump_anthropic, parse_anthropic
from om_core.formats.canonical import dump_message, parse_message
from om_core.formats.openai import dump_openai, parse_openai

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.message import Json, JsonObject, Message

Format: TypeAlias = Literal["om", "openai", "anthropic"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)


def parse_messages(messages: Sequence[Json], format: str = "om", path: str = "messages") -> list[Message]:
    """Canonical messages from any format.

    Raises:
        InvalidInputError: with the path of the first field that is wrong, or for an unknown format.
    """
    if format == "om":
        return [parse_message(message, f"{path}.{index}") for index, message in enumerate(messages)]
    if format == "openai":
        return parse_openai(messages, path)
    if format == "anthropic":
        return parse_anthropic(messages, path)
    raise InvalidInputError(f"{format[:40]!r} is unknown; known are {', '.join(FORMATS)}", path="format")


def dump_messages(messages: Sequence[Message], format: str = "om") -> list[JsonObject]:
    """Messages in any format.

    Raises:
        InvalidInputError: for an unknown format.
    """
    if format == "om":
        return [dump_message(message) for message in messages]
    if format == "openai":
        return dump_openai(messages)
    if format == "anthropic":
        return dump_anthropic(messages)
    raise InvalidInputError(f"{format[:40]!r} is unknown; known are {', '.join(FORMATS)}", path="format")


def guess_format(messages: Sequence[Json]) -> Format:
    """The format of messages that a Python caller handed over without naming it.

    `parts` is canonical; blocks that only Anthropic has are Anthropic; everything else is OpenAI, whose plain messages
    are Anthropic's as well.
    """
    for message in messages:
        if not isinstance(message, dict):
            continue
        if "parts" in message:
            return "om"
        if "tool_calls" in message or "tool_call_id" in message:
            return "openai"
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and (block.get("type") in _ANTHROPIC_BLOCKS or "source" in block):
                return "anthropic"
    return "openai"


_ANTHROPIC_BLOCKS: Final = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})
