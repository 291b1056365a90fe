"""How much later a message was written than the one before it, in words (reference behaviour 4.8). Pure.

The words depend on the times of the two messages and on a zone, never on when they are read: what was shown once reads
the same after a midnight or a change of the clocks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from math import floor
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from om_core.domain.message import Role
from om_core.domain.tags import is_injected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from om_core.domain.message import StoredMessage

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
    """`2 hours 5 minutes later — 2026-03-01 14:05+01:00`, or None for a short pause.

    Args:
        before: aware; when the earlier message was written.
        after: aware; when the later one was.
        timezone: IANA name to show the time in; UTC when None or not known here.
    """
    pause = after - before
    if pause < SHORTEST:
        return None
    return f"{_in_words(pause.total_seconds())} later — {local_time(after, timezone)}"


def gap_before(row: StoredMessage, spoken: StoredMessage | None, timezone: str | None) -> str | None:
    """The gap before a message, in words.

    Only a question has one, and none that brings results: nothing may stand between these and their calls. It counts
    from the last part of what was said before to the first part of the question.

    Args:
        row: the later message.
        spoken: the newest message before it that `is_spoken`.
        timezone: of the thread; the message's own comes first.
    """
    if spoken is None or not row.is_question or row.results or not is_spoken(row):
        return None
    until = [part.created_at for part in spoken.parts if part.created_at is not None]
    since = [part.created_at for part in row.parts if part.created_at is not None]
    before, after = (until or [spoken.created_at])[-1], (since or [row.created_at])[0]
    return time_gap(before, after, row.message.timezone or timezone)


def is_spoken(row: StoredMessage) -> bool:
    """Whether somebody said something by it: it is not removed, not memory's own, and not empty."""
    injected = row.role is Role.SYSTEM or is_injected(row.message)
    return not row.removed and not injected and row.message.has_content


def gaps_among(rows: Iterable[StoredMessage], timezone: str | None) -> tuple[tuple[int, str], ...]:
    """The gaps of successive messages of one thread, by the seq of the later one."""
    found: list[tuple[int, str]] = []
    spoken: StoredMessage | None = None
    for row in filter(is_spoken, rows):
        gap = gap_before(row, spoken, timezone)
        found += [(row.seq, gap)] if gap else []
        spoken = row
    return tuple(found)


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
        return _counted(floor(seconds / _MINUTE + 0.5), "minute")
    (large, large_s), (small, small_s) = next(units for limit, units in _STEPS if seconds < limit)
    first, rest = divmod(int(seconds), large_s)
    words = [_counted(first, large)]
    if rest >= small_s:
        words.append(_counted(rest // small_s, small))
    return " ".join(words)


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
