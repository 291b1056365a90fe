"""Keeps what a provider's form says beyond the canonical one, so that dumping gives it back without loss.

What is left over of a block stands in its part's `provider_metadata`, of a message in its `metadata`, under one key per
provider: `extra` holds fields that rendering does not produce, `raw` the whole block where fields are not enough. Extra
fields never replace canonical content, and `raw` counts only while it still says the same as the part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from om_core.domain.message import Json, JsonObject, Message, Part

if TYPE_CHECKING:
    from collections.abc import Callable


def hints_of(holder: JsonObject | None, key: str) -> JsonObject:
    """What was left over under a provider's key; empty for a message or part of another origin."""
    hints = (holder or {}).get(key)
    return hints if isinstance(hints, dict) else {}


def with_hints(part: Part, key: str, **hints: Json) -> Part:
    """The part with more left over."""
    known = hints_of(part.provider_metadata, key)
    return replace(part, provider_metadata={**(part.provider_metadata or {}), key: known | hints})


def bare(part: Part) -> Part:
    """The content of a part alone."""
    return replace(part, provider_metadata=None, created_at=None)


def extra_of(rendered: JsonObject, raw: JsonObject) -> JsonObject:
    """The fields of `raw` that `rendered` lacks, also inside objects that both have."""
    extra: JsonObject = {}
    for name, value in raw.items():
        if name not in rendered:
            extra[name] = value
        elif isinstance(value, dict) and isinstance(rendered[name], dict):
            inner = extra_of(rendered[name], value)
            if inner:
                extra[name] = inner
    return extra


def merged(rendered: JsonObject, extra: Json) -> JsonObject:
    """`rendered` with the fields that it lacks."""
    if not isinstance(extra, dict) or not extra:
        return rendered
    result = dict(rendered)
    for name, value in extra.items():
        if name not in result:
            result[name] = value
        elif isinstance(result[name], dict) and isinstance(value, dict):
            result[name] = merged(result[name], value)
    return result


def keep(part: Part, key: str, raw: JsonObject, render: Callable[[Part], Json]) -> Part:
    """The part with as much left over as it takes for `render` to give `raw` back."""
    rendered = render(part)
    if rendered == raw:
        return part
    if isinstance(rendered, dict):
        extended = with_hints(part, key, extra=extra_of(rendered, raw))
        if render(extended) == raw:
            return extended
    return with_hints(part, key, raw=raw)


def keep_message(
    message: Message, key: str, raw: JsonObject, render: Callable[[Message], list[JsonObject]], hints: JsonObject
) -> Message:
    """The same for a message; `hints` tell its form where that is not the usual one."""
    if "response" not in hints and render(message) == [raw]:
        return message
    candidate = replace(message, metadata={key: hints})
    rendered = render(candidate)
    if rendered == [raw]:
        return candidate
    if len(rendered) == 1:
        extended = replace(message, metadata={key: hints | {"extra": extra_of(rendered[0], raw)}})
        if render(extended) == [raw]:
            return extended
    return replace(message, metadata={key: hints | {"raw": raw}})


def says_the_same(left: Message, right: Message) -> bool:
    """Whether two messages have the same role and content."""
    return left.role is right.role and [*map(bare, left.parts)] == [*map(bare, right.parts)]
