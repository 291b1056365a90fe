"""Anthropic's Messages API, to and from canonical messages.

`dump_anthropic(parse_anthropic(x)) == x` for every list of that form; messages of another origin become valid ones. A
user message that holds nothing but results has role tool, so that a question is always a user's own words; one with
results and words stays a user message. The fields of a whole response (`usage`, `stop_reason` and others) are kept
apart, because a request must not hold them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Json, JsonObject, Message, Part, Role, Text, ToolResult
from om_core.formats import fields
from om_core.formats.anthropic_blocks import KEY, parse_block, reply_block, request_block
from om_core.formats.convert import identity_of, segments
from om_core.formats.leftover import hints_of, keep_message, merged, says_the_same
from om_core.formats.limits import check_size
from om_core.formats.sanitise import sanitise_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_RESPONSE_FIELDS: Final = frozenset(
    {"id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container", "context_management"}
)


def parse_anthropic(messages: Sequence[Json], path: str = "messages") -> list[Message]:
    """Canonical messages, one for each of the list.

    Raises:
        InvalidInputError: with the path, for an unknown role, a call or a result without its id, or a wrong type.
    """
    parsed = [_parse_message(message, f"{path}.{index}") for index, message in enumerate(messages)]
    for index in range(1, len(parsed)):
        if parsed[index].role is Role.TOOL is parsed[index - 1].role:
            parsed[index] = _hinted(parsed[index], separate=True)
    return parsed


def dump_anthropic(messages: Sequence[Message]) -> list[JsonObject]:
    """Messages of a request: no system messages, no empty texts, consecutive results in one user message."""
    dumped: list[JsonObject] = []
    run: list[Json] | None = None
    for message in (piece for whole in messages for piece in _pieces(whole)):
        raws = _dump_piece(message)
        if not raws:
            continue
        content = raws[-1].get("content")
        results: list[Json] | None = None
        if message.role is Role.TOOL and isinstance(content, list) and _only_results(content):
            results = [*content]
        if results is not None and run is not None and not hints_of(message.metadata, KEY).get("separate"):
            run.extend(results)
            continue
        dumped.extend(raws)
        run = results
        if run is not None:
            dumped[-1] = {**raws[-1], "content": run}
    return dumped


def _only_results(content: list[Json]) -> bool:
    return all(block.get("type") == "tool_result" for block in content)


def _hinted(message: Message, **hints: Json) -> Message:
    return replace(message, metadata={**message.metadata, KEY: hints_of(message.metadata, KEY) | hints})


def _parse_message(data: Json, path: str) -> Message:
    raw: JsonObject = sanitise_json(fields.check_object(data, path), path)
    message, hints = _read(raw, path)
    if raw.get("type") == "message":
        hints["response"] = {name: value for name, value in raw.items() if name in _RESPONSE_FIELDS}
        raw = {name: value for name, value in raw.items() if name not in _RESPONSE_FIELDS}
    if message.role is Role.SYSTEM:
        return check_size(replace(message, metadata={KEY: {"raw": raw}}), path)
    return check_size(keep_message(message, KEY, raw, _dump_message, hints), path)


def _read(raw: JsonObject, path: str) -> tuple[Message, JsonObject]:
    """The message as far as it is canonical, and how its form is special."""
    name = raw.get("role")
    role = _ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        raise InvalidInputError("unknown role; known are user and assistant", path=f"{path}.role")
    content = raw.get("content")
    hints: JsonObject = {}
    parts: list[Part] = []
    if isinstance(content, str):
        parts = [Text(text=content)] if content else []
        hints = {} if content.strip() else {"content": "string"}
    else:
        blocks = fields.check_list(content, f"{path}.content")
        parts = [parse_block(block, f"{path}.content.{index}") for index, block in enumerate(blocks)]
        if not parts or (len(parts) == 1 and isinstance(parts[0], Text)):
            hints = {"content": "list"}
    if role is Role.USER and parts and all(isinstance(part, ToolResult) for part in parts):
        role = Role.TOOL
    return Message(role=role, parts=tuple(parts), **identity_of(raw)), hints


def _dump_message(message: Message) -> list[JsonObject]:
    return [raw for piece in _pieces(message) for raw in _dump_piece(piece)]


def _pieces(message: Message) -> Iterable[Message]:
    return segments(message) if _kept_raw(message) is None else [message]


def _kept_raw(message: Message) -> JsonObject | None:
    """The message word for word, where that was kept and still says the same."""
    raw = hints_of(message.metadata, KEY).get("raw")
    return raw if isinstance(raw, dict) and says_the_same(_read(raw, "")[0], message) else None


def _dump_piece(message: Message) -> list[JsonObject]:
    """One message, or none where nothing is left of it."""
    hints = hints_of(message.metadata, KEY)
    raw = _kept_raw(message)
    if raw is not None:
        return [raw]
    if message.role is Role.SYSTEM:
        return []
    role = "assistant" if message.role is Role.ASSISTANT else "user"
    content = _content(message, hints)
    if not content and "content" not in hints:
        return []
    return [merged({"role": role, "content": content}, hints.get("extra"))]


def _content(message: Message, hints: JsonObject) -> Json:
    form, parts = hints.get("content"), message.parts
    if form == "string" and all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    render = reply_block if message.role is Role.ASSISTANT else request_block
    ordered = sorted(parts, key=lambda part: not isinstance(part, ToolResult))
    blocks = [block for block in map(render, ordered) if block is not None]
    if form != "list" and len(blocks) == 1 and set(blocks[0]) == {"type", "text"}:
        return blocks[0]["text"]
    return blocks
