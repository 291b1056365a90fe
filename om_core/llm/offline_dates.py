"""Days that a sentence speaks of, worked out from the day on which it was said (DESIGN 6.10)."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final

from om_core.llm.offline_calendars import CALENDARS, WEEKDAYS, Calendar

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS: Final = {"day": 1, "week": 7, "weekend": 7}


def with_days(sentence: str, said: date, language: str = "en") -> str:
    """The sentence with its relative days worked out: `went there yesterday` becomes `went there May 7`.

    In English the day takes the place of the words, elsewhere it follows them: `hier (May 7)`. The year is given where
    it is not the one of `said`. What lies outside the calendar stays as it is.

    Args:
        sentence: as it was said.
        said: the day on which it was said, in the speaker's zone.
        language: code of a calendar; without one the sentence is given back.
    """
    calendar = CALENDARS.get(language)
    if calendar is None:
        return sentence

    def worked_out(match: re.Match[str]) -> str:
        try:
            day = _meaning(match, calendar, said)
        except (OverflowError, ValueError):
            return match[0]
        return day if calendar.replaces else f"{match[0]} ({day})"

    return calendar.pattern.sub(worked_out, sentence)


def has_day(sentence: str, language: str = "en") -> bool:
    """Whether the sentence names a day from where the speaker stands."""
    calendar = CALENDARS.get(language)
    return calendar is not None and calendar.pattern.search(sentence) is not None


def _meaning(match: re.Match[str], calendar: Calendar, said: date) -> str:
    found = match.groupdict()
    if word := found["word"]:
        return _day(said + timedelta(days=calendar.words[word.lower()]), said)
    if year := found.get("year"):
        return str(said.year + calendar.years[year])
    if what := found["what"]:
        forward = found["way"].lower() in calendar.future
        return _named(calendar.units[what.lower()], calendar, forward=forward, said=said)
    past = found["n1"] is not None
    count, unit = (found["n1"], found["u1"]) if past else (found["n2"], found["u2"])
    number = int(count) if count.isdigit() else calendar.numbers[count.lower()]
    return _counted(calendar.units[unit.lower()], -number if past else number, said)


def _named(unit: str, calendar: Calendar, *, forward: bool, said: date) -> str:
    step = 1 if forward else -1
    if unit in WEEKDAYS:
        index = WEEKDAYS.index(unit)
        if calendar.by_week:
            moved = index - said.weekday() + 7 * step
        else:
            distance = (index - said.weekday()) % 7
            moved = (distance or 7) if forward else distance - 7
        return f"{unit.capitalize()} {_day(said + timedelta(days=moved), said)}"
    return _counted(unit, step, said)


def _counted(unit: str, number: int, said: date) -> str:
    if unit in WEEKDAYS:
        raise ValueError(unit)
    if unit == "year":
        return str(date(said.year + number, 1, 1).year)
    if unit == "month":
        months = said.year * 12 + said.month - 1 + number
        return f"{_MONTHS[months % 12]} {date(months // 12, 1, 1).year}"
    moved = said + timedelta(days=_DAYS[unit] * number)
    if unit == "weekend":
        return f"weekend of {_day(moved + timedelta(days=5 - moved.weekday()), said)}"
    if unit == "week":
        return f"week of {_day(moved - timedelta(days=moved.weekday()), said)}"
    return _day(moved, said)


def _day(when: date, said: date) -> str:
    year = "" if when.year == said.year else f", {when.year}"
    return f"{_MONTHS[when.month - 1]} {when.day}{year}"
