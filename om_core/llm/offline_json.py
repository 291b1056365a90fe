"""JSON results as lines of words: what belongs to one object stands on one line and is chosen together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from om_core.domain.message import Json

MAX_CHARS: Final = 200_000
_MAX_DEPTH: Final = 8
_LINE_CHARS: Final = 160
_SCALAR_CHARS: Final = 120


def flat_json(text: str) -> str:
    """The text; or, when it is a JSON object or list of bounded size, lines `path: key value, key value`."""
    if len(text) > MAX_CHARS or text.lstrip()[:1] not in {"{", "["}:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(_lines(value, "", 0)) or text


def _lines(value: Json, path: str, depth: int) -> Iterator[str]:
    """The scalars of each object or list, then what lies below them."""
    pairs = list(value.items()) if isinstance(value, dict) else [("", item) for item in value]
    line = ""
    for key, item in pairs:
        if isinstance(item, dict | list):
            continue
        word = f"{key} {_scalar(item)}".strip()
        if line and len(line) + len(word) > _LINE_CHARS:
            yield _labelled(path, line)
            line = ""
        line = f"{line}, {word}" if line else word
    if line:
        yield _labelled(path, line)
    if depth < _MAX_DEPTH:
        for key, item in pairs:
            if isinstance(item, dict | list) and item:
                yield from _lines(item, str(key)[:40] or path, depth + 1)


def _labelled(path: str, line: str) -> str:
    return f"{path}: {line}" if path else line


def _scalar(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text[:_SCALAR_CHARS].split())
