"""The stable part of a context as bytes: what may only grow until the next prefix change (DESIGN 2.5). Pure."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.context import SystemBlock
    from om_core.domain.message import JsonObject, Message, Part


def stable_bytes(system: Sequence[SystemBlock], messages: Sequence[Message]) -> bytes:
    """One line of JSON per block and per message: a longer stable part begins with the bytes of a shorter one."""
    lines = [_line({"system": block.kind, "text": block.text}) for block in system]
    lines += [_line(_message(message)) for message in messages]
    return "".join(lines).encode("utf-8", "surrogatepass")


def prefix_hash(system: Sequence[SystemBlock], messages: Sequence[Message]) -> str:
    """SHA-256 of the stable part, in hexadecimal."""
    return sha256(stable_bytes(system, messages)).hexdigest()


def _line(value: JsonObject) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str) + "\n"


def _message(message: Message) -> JsonObject:
    data = _given(message)
    data["parts"] = [_part(part) for part in message.parts]
    return data


def _part(part: Part) -> JsonObject:
    return {"type": part.type, **_given(part)}


def _given(value: Message | Part) -> JsonObject:
    """The fields of a value that are there; times as text."""
    pairs = ((field.name, getattr(value, field.name)) for field in fields(value))
    return {name: _plain(found) for name, found in pairs if found is not None and found != {}}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
