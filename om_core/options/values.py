"""Reading single values: each reader returns the value or raises PolicyError with option, value and allowed range."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from om_core.domain.errors import PolicyError
from om_core.domain.message import JsonObject
from om_core.domain.ttl import parse_duration

MOST_TOKENS: Final = 1_000_000_000
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_NOT_JSON: Final = "plain JSON (texts without NUL, finite numbers, lists, tables with text keys)"


def js_round(value: float) -> int:
    """Round to whole numbers, halves up, as the reference's runtime does."""
    floor = math.floor(value)
    return floor + (value - floor >= 0.5)


def number(value: object, option: str, allowed: str) -> float:
    """A finite number; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyError(option, value, allowed)
    if not (abs(value) <= MOST_TOKENS if isinstance(value, int) else math.isfinite(value)):
        raise PolicyError(option, value, allowed)
    return value


def tokens(value: object, option: str, *, least: int = 1) -> int:
    """A whole number of tokens; fractions are rounded."""
    allowed = f"a number of tokens from {least} to {MOST_TOKENS}"
    given = number(value, option, allowed)
    if not least <= given <= MOST_TOKENS or js_round(given) < least:
        raise PolicyError(option, value, allowed)
    return js_round(given)


def count(value: object, option: str) -> int:
    """A whole number from 1 to 1000."""
    allowed = "a whole number from 1 to 1000"
    given = number(value, option, allowed)
    if not 1 <= given <= 1000 or given != int(given):
        raise PolicyError(option, value, allowed)
    return int(given)


def flag(value: object, option: str) -> bool:
    """True or False, and nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise PolicyError(option, value, "True or False")
    return value


def text(value: object, option: str) -> str:
    """A text that a database can hold."""
    if not isinstance(value, str) or _UNSTORABLE.search(value):
        raise PolicyError(option, value, "a text without NUL and lone surrogates")
    return value


def optional_text(value: object, option: str) -> str | None:
    """A text, or None for none."""
    return None if value is None else text(value, option)


def choice(value: object, option: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise PolicyError(option, value, f"one of {', '.join(map(repr, allowed))}")
    return value


def duration(value: object, option: str, *, least_s: float = 0.001) -> float:
    """Seconds; neither `auto` nor False."""
    least = "0" if least_s == 0 else f"{least_s * 1000:g}ms"
    allowed = f"milliseconds as a number, or a text such as '500ms', '30s', '5m' or '1h'; at least {least}"
    seconds = parse_duration(value, option, allowed=allowed)
    if seconds < least_s:
        raise PolicyError(option, value, allowed)
    return seconds


def json_object(value: object, option: str) -> JsonObject:
    """A deep copy of a table of plain JSON values, so that later changes by the caller do not reach the policy."""
    if not isinstance(value, Mapping):
        raise PolicyError(option, value, "a table")
    return {_json_key(key, option): _json(item, f"{option}.{key}") for key, item in value.items()}


def _json_key(key: object, option: str) -> str:
    if not isinstance(key, str) or _UNSTORABLE.search(key):
        raise PolicyError(option, key, _NOT_JSON)
    return key


def _json(value: object, option: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and not _UNSTORABLE.search(value):
        return value
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [_json(item, f"{option}.{index}") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return json_object(value, option)
    raise PolicyError(option, value, _NOT_JSON)
