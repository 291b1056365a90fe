"""Notes as data: reading the text of a log, and writing it in its one normal form.

The form: `Date: May 8, 2023`, below it `* 🔴 (13:56) text`, below that `  * -> detail`, and lines indented by four
blanks that continue the line above them word for word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final, Literal, TypeAlias

from om_core.prompts.render import MONTHS

Priority: TypeAlias = Literal["🔴", "🟡", "🟢", "✅", ""]
PRIORITIES: Final[tuple[Priority, ...]] = ("🔴", "🟡", "🟢", "✅")
EXTRACT_MARK: Final = "[extract: no notes could be made of these messages]"
"""A note that says of those below it that an extract stands for them. No model is shown it: it would be copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line of a log. `time` is `HH:MM`; depth 0 is a note, 1 a detail, 2 a continuation kept word for word."""

    date: date | None
    time: str | None = None
    priority: Priority = ""
    text: str
    depth: int = 0

    def line(self) -> str:
        """The line in normal form, without its date."""
        if self.depth >= 2:
            return f"    {self.text}"
        mark = f"{self.priority} " if self.priority else ""
        time = f"({self.time}) " if self.time else ""
        return f"{'  * -> ' if self.depth else '* '}{mark}{time}{self.text}"


_MONTH_NUMBER: Final = {name.lower(): number for number, name in enumerate(MONTHS, 1)}
_BULLET: Final = re.compile(r"(?:[-*•+‣–]|\d{1,3}[.)])(?:\s++|(?=->|→))")
_ARROW: Final = re.compile(r"(?:->|→|=>)\s*+")
_MARK: Final = re.compile(r"\*{0,2}(🔴|🟡|🟢|✅|☑️?|✔️?)\ufe0f?\*{0,2}\s*+")
_REFERENCE: Final = re.compile(r"\[m\d{1,18}(?:\s?[-–,]\s?m?\d{1,18}){0,8}\]:?\s*+")
"""The number of an entry of the history; it means nothing to a reader of notes."""
_TIME: Final = re.compile(r"\*{0,2}[(\[](\d{1,2}):(\d{2})(?::\d{2})?\s?([ap]\.?m\.?)?[)\]]\*{0,2}:?\s*+", re.IGNORECASE)
_MONTH_DAY: Final = re.compile(r"(?P<month>[A-Za-z]{3,9})\.? (?P<day>\d{1,2})(?:st|nd|rd|th)?,? (?P<year>\d{4})\b")
_DAY_MONTH: Final = re.compile(r"(?P<day>\d{1,2})(?:st|nd|rd|th)? (?P<month>[A-Za-z]{3,9})\.?,? (?P<year>\d{4})\b")
_ISO: Final = re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})\b")
_DATE_LEAD: Final = re.compile(
    r"(?P<dressed>(?:[#*_>\s]|[-*•]\s){0,8}+)(?P<label>date\s?:\s?\*{0,2}\s?)?", re.IGNORECASE
)
_WEEKDAY: Final = re.compile(r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,? ", re.IGNORECASE)
_DATE_LINE_CHARS: Final = 120
_DATE_WORDS: Final = 4


def day_line(day: date) -> str:
    """The header of a day: `Date: May 8, 2023`."""
    return f"Date: {MONTHS[day.month - 1]} {day.day}, {day.year}"


def parse_day(line: str) -> date | None:
    """The day that a line announces, or None when the line is no date header.

    Taken as headers: `Date:` followed by a date in one of three usual forms, and a line that holds nothing else but
    such a date (as a heading, bold, or followed by a colon).
    """
    if len(line) > _DATE_LINE_CHARS:
        return None
    lead = _DATE_LEAD.match(line)
    rest = line[lead.end() :] if lead else line
    rest = rest[weekday.end() :] if (weekday := _WEEKDAY.match(rest)) else rest
    for form in (_MONTH_DAY, _ISO, _DAY_MONTH):
        found = form.match(rest)
        if found and ((lead and lead["label"]) or not rest[found.end() :].strip(" :*_#")):
            return _as_date(found["year"], found["month"], found["day"])
    return None


def names_no_day(text: str) -> bool:
    """Whether a text is the header of a day that cannot be read, as in `Date: unknown`."""
    lead = _DATE_LEAD.match(text[:_DATE_LINE_CHARS])
    if lead is None or not lead["label"] or len(text) > _DATE_LINE_CHARS:
        return False
    return len(text[lead.end() :].split()) <= _DATE_WORDS


def without_extract_marks(notes: str) -> str:
    """The notes of a log as models are shown them."""
    return "\n".join(line for line in notes.split("\n") if EXTRACT_MARK not in line)


def _as_date(year: str, month: str, day: str) -> date | None:
    number = int(month) if month.isdigit() else _MONTH_NUMBER.get(month[:3].lower())
    try:
        return date(int(year), number or 0, int(day))
    except ValueError:
        return None


def note_lines(notes: str, *, default_day: date | None = None) -> list[Note]:
    """The notes of a log or an answer, in order, each with the day of the header above it.

    Args:
        notes: text in normal form, or in what models make of it.
        default_day: the day of notes above the first header.
    """
    day = default_day
    found: list[Note] = []
    for line in notes.split("\n"):
        if not line.strip():
            continue
        announced = parse_day(line)
        if announced is not None:
            day = announced
        elif (note := _note(line, day, follows=bool(found))) is not None:
            found.append(note)
    return found


def _note(line: str, day: date | None, *, follows: bool) -> Note | None:
    stripped = line.strip()
    indent = len(line) - len(line.lstrip())
    bullet = _BULLET.match(stripped)
    body = stripped[bullet.end() :] if bullet else stripped
    arrow = _ARROW.match(body)
    if bullet is None and arrow is None and indent and follows:
        return Note(date=day, text=line.rstrip()[min(indent, 4) :], depth=2)
    priority, time, text = _marks(body[arrow.end() :] if arrow else body)
    if not text:
        return None
    marked = bool(priority or time)
    depth = 1 if follows and (arrow or (indent >= 2 and bullet and not marked)) else 0
    return Note(date=day, time=time, priority=priority, text=text, depth=depth)


def _marks(text: str) -> tuple[Priority, str | None, str]:
    """Mark and time at the start of a note, in either order, and the rest without the numbers of entries."""
    priority: Priority = ""
    time: str | None = None
    for _ in range(4):
        if not priority and (mark := _MARK.match(text)):
            priority = next((known for known in PRIORITIES if known == mark[1]), "✅")
            text = text[mark.end() :]
        elif time is None and (clock := _TIME.match(text)) and (time := _clock(clock)):
            text = text[clock.end() :]
        elif reference := _REFERENCE.match(text):
            text = text[reference.end() :]
        else:
            break
    return priority, time, text.strip()


def _clock(match: re.Match[str]) -> str | None:
    hour, minute, half = int(match[1]), int(match[2]), (match[3] or "").lower()
    if half:
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    return f"{hour:02d}:{minute:02d}" if hour < 24 and minute < 60 else None


def is_list_item(line: str) -> bool:
    """Whether a line looks like an item of a list."""
    return _BULLET.match(line.lstrip()) is not None


def format_notes(notes: Iterable[Note]) -> str:
    """The notes in normal form, under a header wherever the day changes."""
    lines: list[str] = []
    day: date | None = None
    for note in notes:
        if note.date is not None and note.date != day:
            day = note.date
            lines.append(day_line(day))
        lines.append(note.line())
    return "\n".join(lines)
