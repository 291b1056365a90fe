"""Dates as the data sets write them. All are local times without a zone: they are taken as UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Json
from om_core.formats.fields import parse_time

_WEEKDAY: Final = re.compile(r"\s*\([A-Za-z]{3,9}\)")
_FORMS: Final = ("%Y-%m-%dT%H:%M:%S", "%Y/%m/%d %H:%M", "%Y-%m-%d", "%Y/%m/%d", "%I:%M %p on %d %B, %Y")


def loose_time(value: Json) -> datetime | None:
    """A time in RFC 3339, or in one of the data sets' forms; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value, "time")
    except InvalidInputError:
        pass
    text = _WEEKDAY.sub("", value).strip()
    for form in _FORMS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None
