"""Recognises messages by their content (API 3, "Known messages").

Content is what makes two messages the same to a reader: words, calls, results, attachments. Ids and times of messages,
metadata, provider payloads, a result's tool name and cache marks are not content: clients leave them out or move them
when they send a history again. Reasoning and data parts count only where the whole list of parts is compared.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from om_core.domain.message import UNSEEN_PARTS, Data, File, Image, Json, Reasoning, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.message import Message, Part

Sameness: TypeAlias = Literal["equal", "prefix", "extends", "differs"]
"""How incoming parts relate to stored ones; see `same_content`."""

DIGEST_BYTES: Final = 16


def fingerprint(message: Message) -> bytes:
    """16 bytes over role and content; the same in every process and for every input format."""
    digest = blake2b(message.role.value.encode(), digest_size=DIGEST_BYTES, person=b"om-message")
    for key in _seen_keys(message.parts):
        raw = key.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.digest()


def same_content(stored: Sequence[Part], incoming: Sequence[Part]) -> Sameness:
    """Compare the parts of one message: as stored, and as sent again.

    `equal`; `prefix`: the incoming parts are a leading run of the stored ones; `extends`: the stored parts are a
    leading run of the incoming ones, which add more (`added_parts` tells which); `differs`: anything else. Reasoning,
    data and empty texts may be missing on either side.
    """
    exact = _relation([_key(part) for part in stored], [_key(part) for part in incoming])
    return exact if exact != "differs" else _relation(_seen_keys(stored), _seen_keys(incoming))


def added_parts(stored: Sequence[Part], incoming: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that an incoming message adds to its stored form; empty unless `same_content` is `extends`."""
    if same_content(stored, incoming) != "extends":
        return ()
    if _relation([_key(part) for part in stored], [_key(part) for part in incoming]) == "extends":
        return tuple(incoming[len(stored) :])
    known = len(_seen_keys(stored))
    start = 0
    while known:
        known -= _is_seen(incoming[start])
        start += 1
    return tuple(incoming[start:])


def _relation(stored: list[str], incoming: list[str]) -> Sameness:
    shared = min(len(stored), len(incoming))
    if stored[:shared] != incoming[:shared]:
        return "differs"
    if len(stored) == len(incoming):
        return "equal"
    return "prefix" if len(incoming) < len(stored) else "extends"


def _is_seen(part: Part) -> bool:
    return not isinstance(part, UNSEEN_PARTS) and not (isinstance(part, Text) and not part.text)


def _seen_keys(parts: Sequence[Part]) -> list[str]:
    return [_key(part) for part in parts if _is_seen(part)]


def _key(part: Part) -> str:
    """The content of a part as text; parts with equal content have equal keys."""
    if isinstance(part, Text):
        return f"text:{part.text}"
    return f"{part.type}:{json.dumps(_content(part), sort_keys=True, ensure_ascii=False, separators=(',', ':'))}"


def _content(part: Part) -> Json:
    if isinstance(part, ToolCall):
        return [part.call_id, part.name, part.args]
    if isinstance(part, Reasoning):
        return [part.text, part.provider, None if part.text else part.provider_metadata]
    if isinstance(part, Image | File):
        source = [part.url, part.data]
        return [*source, part.provider_metadata if source == [None, None] else None]
    if isinstance(part, Data):
        return [part.data_type, part.data]
    if isinstance(part, Text):
        return part.text
    return [part.call_id, _unmarked(part.result), _unmarked(part.model_result), part.status]


def _unmarked(result: Json) -> Json:
    """A result without the cache marks that clients move from block to block."""
    if not isinstance(result, list):
        return result
    return [
        {key: value for key, value in item.items() if key != "cache_control"} if isinstance(item, dict) else item
        for item in result
    ]
