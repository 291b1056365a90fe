"""What the dumps to providers' forms share: ids and names they accept, results as text, results inside a reply."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Json, JsonObject, Message, Part, Role, Text, ToolResult
from om_core.formats import fields
from om_core.formats.attachments import split_attachments
from om_core.formats.sanitise import sanitise_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


def compact_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def safe_name(name: str, longest: int) -> str:
    """A tool's name or a call's id in the letters that providers accept."""
    return _UNSAFE.sub("_", name)[:longest] or "_"


def safe_id(call_id: str, longest: int) -> str:
    """A call's id in the letters that providers accept; two ids that differ stay different."""
    safe = safe_name(call_id, longest)
    if safe == call_id:
        return safe
    return f"{safe[: longest - 9]}_{sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:8]}"


def parse_arguments(text: str) -> Json:
    """The object or list that a call's arguments say, or the text itself where it says none."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return sanitise_json(json.loads(text))
    except (ValueError, RecursionError, InvalidInputError):
        return text


def result_text(part: ToolResult) -> str:
    """A result as a model reads it where only text is possible; attachments become marks."""
    value, attachments = split_attachments(part.visible)
    if value is None:
        return "" if part.status == "ok" else f"[{part.status}]"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [item if isinstance(item, str) else text_of_block(item) for item in value]
        blocks = attachments or any(isinstance(item, dict) for item in value)
        if blocks and all(text is not None for text in texts):
            return "\n".join(text for text in texts if text)
    return compact_json(value)


def text_of_block(block: Json) -> str | None:
    """The words of a text block, or None for anything else."""
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    return None


def single_text(blocks: Json) -> str | None:
    """The words of a list that is one text block."""
    return text_of_block(blocks[0]) if isinstance(blocks, list) and len(blocks) == 1 else None


def segments(message: Message) -> Iterator[Message]:
    """A reply that holds results as well, as replies and results in turn; any other message as it is."""
    if message.role is not Role.ASSISTANT or not any(isinstance(part, ToolResult) for part in message.parts):
        yield message
        return
    run: list[Part] = []
    for part in message.parts:
        if run and isinstance(part, ToolResult) != isinstance(run[-1], ToolResult):
            yield _segment(message, run)
            run = []
        run.append(part)
    yield _segment(message, run)


def _segment(message: Message, run: list[Part]) -> Message:
    role = Role.TOOL if isinstance(run[0], ToolResult) else Role.ASSISTANT
    return replace(message, role=role, parts=tuple(run), metadata={})


def is_blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def identity_of(raw: JsonObject) -> dict[str, Any]:
    """Id and time that a client put beside a provider's fields; they are used where they are usable."""
    found: dict[str, Any] = {}
    for name, field, check in (("id", "id", fields.check_id), ("created_at", "created_at", fields.parse_time)):
        if isinstance(raw.get(name), str):
            try:
                found[field] = check(raw[name], name)
            except InvalidInputError:
                continue
    return found
