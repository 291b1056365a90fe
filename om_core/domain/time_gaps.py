"""How much later a message was written than the one before it, in words (reference behaviour 4.8). Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

SHORTEST: Final = timedelta(minutes=10)
"""Shorter pauses are not worth a word."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_STEPS: Final = (
    (_DAY, (("hour", _HOUR), ("minute", _MINUTE))),
    (7 * _DAY, (("day", _DAY), ("hour", _HOUR))),
    (30 * _DAY, (("week", 7 * _DAY), ("day", _DAY))),
    (365 * _DAY, (("month", 30 * _DAY), ("week", 7 * _DAY))),
    (float("inf"), (("year", 365 * _DAY), ("month", 30 * _DAY))),
)


def time_gap(before: datetime, after: datetime, timezone: str | None) -> str | None:
    """`2 hours 5 minutes later, 2026-03-01 14:05+01:00`, or None for a short pause.

    Args:
        before: aware; when the earlier message was written.
        after: aware; when the later one was.
        timezone: IANA name to show the time in; UTC when None or not known here.
    """
    pause = after - before
    if pause < SHORTEST:
        return None
    return f"{_in_words(pause.total_seconds())} later, {local_time(after, timezone)}"


def local_time(at: datetime, timezone: str | None) -> str:
    """`2026-03-01 14:05+01:00`: a time in a zone, with its offset from UTC."""
    return at.astimezone(_zone(timezone)).isoformat(sep=" ", timespec="minutes")


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _in_words(seconds: float) -> str:
    if seconds < _HOUR:
        return _counted(round(seconds / _MINUTE), "minute")
    (large, large_s), (small, small_s) = next(units for limit, units in _STEPS if seconds < limit)
    first, rest = divmod(int(seconds), large_s)
    words = [_counted(first, large)]
    if rest >= small_s:
        words.append(_counted(rest // small_s, small))
    return " ".join(words)


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
