"""The message that Anthropic's stream events make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.domain.message import JsonObject

_DELTAS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""Kinds of delta, and the field of the block that they lengthen."""


def reply_of(stream: bytes) -> JsonObject | None:
    """The whole message; None when the stream did not come to its end."""
    message: JsonObject = {}
    blocks: dict[int, JsonObject] = {}
    arguments: dict[int, str] = {}
    complete = False
    for event in events(stream):
        match event.get("type"):
            case "message_start":
                message = dict(event["message"])
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                _extend(blocks, arguments, event["index"], event["delta"])
            case "message_delta":
                message |= event.get("delta") or {}
            case "message_stop":
                complete = True
    for index, text in arguments.items():
        blocks[index]["input"] = _parsed(text)
    return {**message, "content": [blocks[index] for index in sorted(blocks)]} if complete else None


def _extend(blocks: dict[int, JsonObject], arguments: dict[int, str], index: int, delta: JsonObject) -> None:
    block = blocks.setdefault(index, {"type": "text", "text": ""})
    kind = delta.get("type")
    if kind == "input_json_delta":
        arguments[index] = arguments.get(index, "") + str(delta.get("partial_json", ""))
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
    elif kind in _DELTAS:
        field = _DELTAS[kind]
        block[field] = (block.get(field) or "") + str(delta.get(field, ""))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {"unparsed": text}


def events(stream: bytes) -> Iterator[JsonObject]:
    """The `data` of each event."""
    for block in stream.decode(errors="replace").replace("\r\n", "\n").split("\n\n"):
        data = "\n".join(line[5:].lstrip() for line in block.split("\n") if line.startswith("data:"))
        if not data:
            continue
        found = json.loads(data)
        if isinstance(found, dict):
            yield found
