"""Opaque list cursors: where a page ended, packed so that nobody builds on its form."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_A_CURSOR: Final = "not a cursor of this list: pass `next_cursor` of the page before, unchanged"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def encode_cursor(last_id: int) -> str:
    return base64.urlsafe_b64encode(f"v1:{last_id}".encode()).decode().rstrip("=")


def encode_place(values: Sequence[str | int]) -> str:
    """A cursor for lists that are ordered by several values: those of the last item."""
    return base64.urlsafe_b64encode(f"v2:{json.dumps(list(values))}".encode()).decode().rstrip("=")


def decode_place(cursor: str, types: Sequence[type]) -> list[str | int]:
    """The values in such a cursor.

    Raises:
        InvalidInputError: the text is not a cursor of this list.
    """
    with contextlib.suppress(ValueError, RecursionError):
        version, _, text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().partition(":")
        values = json.loads(text) if version == "v2" else None
        if isinstance(values, list) and [type(value) for value in values] == list(types) and _storable(values):
            return values
    raise InvalidInputError(NOT_A_CURSOR, path="cursor")


def _storable(values: Sequence[str | int]) -> bool:
    """Whether a database can compare with these: nobody's cursor holds what no row holds."""
    return all(
        abs(value) < 2**63 if isinstance(value, int) else "\0" not in value and not _SURROGATE.search(value)
        for value in values
    )


def decode_cursor(cursor: str | None) -> int | None:
    """The id in a cursor.

    Raises:
        InvalidInputError: the text is not a cursor of this service.
    """
    if cursor is None:
        return None
    try:
        version, _, number = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().partition(":")
        if version == "v1":
            return int(number)
    except (binascii.Error, UnicodeDecodeError, ValueError):
        pass
    raise InvalidInputError(NOT_A_CURSOR, path="cursor")
