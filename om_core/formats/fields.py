"""Checks of single fields of canonical messages; each error names the field's path."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Json, JsonObject

MAX_ID: Final = 256
MAX_NUMBER: Final = 2**31 - 1

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,12})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def check_id(value: Json, path: str) -> str:
    """A caller's own id: 1 to 256 characters, no control characters, no `/`, not `.` or `..` (API 3)."""
    if not isinstance(value, str):
        raise InvalidInputError(f"an id is a string, not {kind_of(value)}", path=path)
    if not 1 <= len(value) <= MAX_ID:
        raise InvalidInputError(f"an id has 1 to {MAX_ID} characters, not {len(value)}", path=path)
    if value in {".", ".."} or "/" in value:
        raise InvalidInputError("an id must not be '.' or '..' or contain '/'", path=path)
    if not (value.isascii() and value.isprintable()) and any(unicodedata.category(c) in {"Cc", "Cs"} for c in value):
        raise InvalidInputError("an id must not contain control characters or lone surrogates", path=path)
    return value


def parse_time(value: Json, path: str) -> datetime:
    """An RFC 3339 time with an offset, as UTC."""
    if not isinstance(value, str):
        raise InvalidInputError(f"a time is an RFC 3339 string, not {kind_of(value)}", path=path)
    if not _RFC3339.fullmatch(value):
        raise InvalidInputError(
            f"{value[:40]!r} is not an RFC 3339 time with an offset, such as 2026-01-31T09:30:00Z", path=path
        )
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{value!r} is not a time: {error}", path=path) from error


def dump_time(when: datetime) -> str:
    """RFC 3339 with `Z`, with a fraction only where there is one."""
    return when.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def check_timezone(value: Json, path: str) -> str:
    """An IANA time zone name that this machine knows."""
    if not isinstance(value, str) or not is_timezone(value):
        shown = f"{value[:64]!r}" if isinstance(value, str) else kind_of(value)
        raise InvalidInputError(f"{shown} is not an IANA time zone name, such as Europe/Berlin", path=path)
    return value


@lru_cache(maxsize=1024)
def is_timezone(name: str) -> bool:
    """Whether a name is a known IANA zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def kind_of(value: Json) -> str:
    """The JSON name of a value's type, for error texts."""
    if value is None:
        return "null"
    names: dict[type, str] = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return "an object" if isinstance(value, dict) else names.get(type(value), type(value).__name__)


def check_object(value: Json, path: str) -> JsonObject:
    if not isinstance(value, dict):
        raise InvalidInputError(f"an object is expected, not {kind_of(value)}", path=path)
    return value


def check_list(value: Json, path: str) -> list[Json]:
    if not isinstance(value, list):
        raise InvalidInputError(f"a list is expected, not {kind_of(value)}", path=path)
    return value


def check_text(value: Json, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(f"a string is expected, not {kind_of(value)}", path=path)
    return value


def check_name(value: Json, path: str) -> str:
    """A string that is not empty."""
    if not check_text(value, path):
        raise InvalidInputError("must not be empty", path=path)
    return str(value)


def check_number(value: Json, path: str, *, least: int) -> int:
    """An integer from `least` to 2**31 - 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_NUMBER:
        raise InvalidInputError(f"a whole number from {least} to {MAX_NUMBER} is expected", path=path)
    return value


def check_fields(data: JsonObject, allowed: frozenset[str], path: str) -> None:
    """Refuse fields that do not exist."""
    for name in data:
        if name not in allowed:
            known = ", ".join(sorted(allowed))
            raise InvalidInputError(f"unknown field; known are {known}", path=f"{path}.{str(name)[:64]}")
