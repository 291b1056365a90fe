"""Days that a sentence speaks of, worked out from the day on which it was said (DESIGN 6.10)."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS: Final = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "couple of": 2}
_UNITS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}
_RELATIVE: Final = re.compile(
    r"\b(?:(?P<word>yesterday|tomorrow|last night|tonight|today|this morning)"
    r"|(?P<way>last|next|this past|past) (?P<what>week|weekend|month|year|monday|tuesday|wednesday|thursday|friday|"
    r"saturday|sunday)"
    r"|(?P<count>\d{1,3}|an?|one|two|three|four|five|six|a couple of) (?P<unit>day|week|month|year)s? "
    r"(?P<tense>ago|from now))\b",
    re.IGNORECASE,
)
_OFFSETS: Final = {"yesterday": -1, "last night": -1, "tomorrow": 1, "tonight": 0, "today": 0, "this morning": 0}


def meaning(sentence: str, said: date) -> str | None:
    """`meaning May 7, 2023` or `estimated Apr 2023` for the first relative day in a sentence; None without one."""
    match = _RELATIVE.search(sentence)
    if match is None:
        return None
    try:
        return _meaning(match, said)
    except (OverflowError, ValueError):
        return None


def _meaning(match: re.Match[str], said: date) -> str | None:
    if word := match["word"]:
        offset = _OFFSETS[word.lower()]
        return f"meaning {_day(said + timedelta(days=offset))}" if offset else None
    if what := match["what"]:
        return _named(what.lower(), forward=match["way"].lower() == "next", said=said)
    count = match["count"].lower()
    number = int(count) if count.isdigit() else _NUMBERS.get(count.removeprefix("a ") if " " in count else count, 1)
    signed = number if match["tense"].lower() == "from now" else -number
    return _counted(match["unit"].lower(), signed, said)


def _named(what: str, *, forward: bool, said: date) -> str:
    step = 1 if forward else -1
    if what in _WEEKDAYS:
        distance = (_WEEKDAYS.index(what) - said.weekday()) % 7
        return f"meaning {_day(said + timedelta(days=(distance or 7) if forward else distance - 7))}"
    if what == "weekend":
        saturday = said + timedelta(days=5 - said.weekday())
        return f"meaning weekend of {_day(saturday + timedelta(days=7 * step))}"
    if what == "week":
        return f"estimated week of {_day(said + timedelta(days=7 * step - said.weekday()))}"
    return _counted(what, step, said)


def _counted(unit: str, number: int, said: date) -> str:
    if unit == "year":
        return f"estimated {said.year + number}"
    if unit == "month":
        months = said.year * 12 + said.month - 1 + number
        return f"estimated {_MONTHS[months % 12]} {months // 12}"
    moved = said + timedelta(days=_UNITS[unit] * number)
    return f"{'meaning' if unit == 'day' else 'estimated'} {_day(moved)}"


def _day(when: date) -> str:
    return f"{_MONTHS[when.month - 1]} {when.day}, {when.year}"
