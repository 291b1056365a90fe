"""Makes any JSON value one that Postgres, Python and a model provider can hold (DESIGN 4, step 1).

Repairs what has an obvious meaning (NUL, surrogates, NaN, depth) and refuses what has none (keys that are no strings,
objects that are no JSON, sizes above the limits). A clean value is returned as it is, without a copy. Linear time.
"""

from __future__ import annotations

import math
import re
from operator import is_
from typing import Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Json

MAX_DEPTH: Final = 64
MAX_NODES: Final = 1_000_000
"""Values in one message; also bounds a value that contains itself many times."""
MAX_INT_BITS: Final = 13_000
"""About 3,900 digits; Python refuses to write or read integers of more than 4,300."""
TOO_DEEP: Final = "[too deep]"
REPLACEMENT: Final = "\ufffd"

_BROKEN: Final = re.compile("\x00|[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def sanitise_text(text: str) -> str:
    """The text with NUL and lone surrogates as U+FFFD, and surrogate pairs joined to the character they mean."""
    if text.isascii():
        return text.replace("\x00", REPLACEMENT) if "\x00" in text else text
    return _BROKEN.sub(_repaired, text)


def _repaired(match: re.Match[str]) -> str:
    found = match.group()
    if len(found) == 1:
        return REPLACEMENT
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def sanitise_json(value: Json, path: str = "", *, max_depth: int = MAX_DEPTH) -> Json:
    """The value as storable JSON; order of keys is kept, and a clean value is returned itself.

    NaN and infinities become None, containers deeper than `max_depth` the text `[too deep]`, and integers of some
    thousand digits their hexadecimal text.

    Raises:
        InvalidInputError: with the path, for a key that is no string, an object that is no JSON value, or more than
            1,000,000 values.
    """
    try:
        return _Walk().clean(value, max_depth)
    except _RefusedError as refused:
        where = [path, *reversed(refused.keys)] if path else list(reversed(refused.keys))
        raise InvalidInputError(refused.reason, path=".".join(where)) from None


class _RefusedError(Exception):
    """On its way up it collects the keys it passes, so that clean values need no paths."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.keys: list[str] = []


class _Walk:
    """One pass over one value, counting nodes."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes = 0

    def clean(self, value: Json, depth: int) -> Json:
        """Clean a value that may hold `depth` further levels of containers."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _RefusedError(f"more than {MAX_NODES:,} values; send less in one message")
        if isinstance(value, str):
            return sanitise_text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return self._clean_dict(value, depth) if depth > 0 else TOO_DEEP
        if isinstance(value, list):
            return self._clean_list(value, depth) if depth > 0 else TOO_DEEP
        if isinstance(value, int):
            return value if value.bit_length() <= MAX_INT_BITS else hex(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        raise _RefusedError(f"{type(value).__name__} is not a JSON value")

    def _clean_list(self, items: list[Json], depth: int) -> list[Json]:
        cleaned: list[Json] = []
        for item in items:
            try:
                cleaned.append(self.clean(item, depth - 1))
            except _RefusedError as refused:
                refused.keys.append(str(len(cleaned)))
                raise
        return items if all(map(is_, cleaned, items)) else cleaned

    def _clean_dict(self, items: dict[str, Json], depth: int) -> dict[str, Json]:
        cleaned: dict[str, Json] = {}
        unchanged = True
        for key, item in items.items():
            if not isinstance(key, str):
                raise _RefusedError(f"key {str(key)[:64]!r} is not a string")
            name = sanitise_text(key)
            try:
                cleaned[name] = self.clean(item, depth - 1)
            except _RefusedError as refused:
                refused.keys.append(name[:64])
                raise
            unchanged = unchanged and name is key and cleaned[name] is item
        return items if unchanged else cleaned
