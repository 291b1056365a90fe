"""Opaque list cursors: the last id of a page, packed so that nobody builds on its form."""

from __future__ import annotations

import base64
import binascii

from om_core.domain.errors import InvalidInputError


def encode_cursor(last_id: int) -> str:
    return base64.urlsafe_b64encode(f"v1:{last_id}".encode()).decode().rstrip("=")


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
    msg = "not a cursor of this list: pass `next_cursor` of the page before, unchanged"
    raise InvalidInputError(msg, path="cursor")
