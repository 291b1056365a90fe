"""The offline Reflector: sorts by date, merges, lets old detail go, until the log fits its target (DESIGN 6.8, 6.9)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from om_core.llm.offline_text import estimate_tokens, words
from om_core.llm.offline_units import Unit, choose
from om_core.prompts.notes import Note, format_notes, note_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.ports import ReflectorMaterial

SHARES: Final = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Most of the log's tokens that are kept, by level."""
_MARGIN: Final = 0.97
_ROUNDS: Final = 6
_WORTH: Final = {"🔴": 4.0, "✅": 3.0, "🟡": 1.5, "": 1.2, "🟢": 0.6}
_OLDEST: Final = 0.35
"""What an old note is worth beside a new one; marks 🔴 and ✅ lose half as much."""
_LAST: Final = date.max
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RUN: Final = re.compile(r"\S+ [^:]{3,140}?(?=: |$)")
_WORD: Final = re.compile(r"\w+|[^\w\s.,;:!]")
_ARTICLES: Final = frozenset({"a", "an", "the"})
_TIMES: Final = re.compile(r" \(×(\d{1,6})\)$")


@dataclass(slots=True)
class _Entry:
    """A note with its details, in the order of time."""

    note: Note
    details: list[Note]
    number: int


def reflect(material: ReflectorMaterial, count_tokens: Callable[[str], int]) -> str:
    """The log in fewer than `target_tokens`, and within the share of its level."""
    entries = _merged(_sorted(_entries(note_lines(material.log))))
    whole = _format(entries)
    size = count_tokens(whole)
    wanted = min(material.target_tokens * _MARGIN, size * SHARES[min(max(material.level, 0), 4)])
    if size <= wanted:
        return whole
    units = _units(entries)
    room = wanted * sum(_cost(line) for entry in entries for line in (entry.note, *entry.details)) / size
    kept = ""
    for _ in range(_ROUNDS):
        kept = _format(_chosen(entries, units, room))
        size = count_tokens(kept)
        if size <= wanted:
            break
        room *= _MARGIN * wanted / size
    # A log of few long notes may hold none that fits: the weightiest is kept, because emptiness replaces no notes.
    return kept if kept or not entries else _format([_weightiest(entries)])


def _weightiest(entries: list[_Entry]) -> _Entry:
    best = max(entries, key=lambda entry: (_WORTH.get(entry.note.priority or "", 1.0), entry.number))
    return replace(best, details=[])


def _entries(notes: Sequence[Note]) -> list[_Entry]:
    entries: list[_Entry] = []
    for note in notes:
        if note.depth and entries:
            entries[-1].details.append(note)
        else:
            entries.append(_Entry(note=note, details=[], number=len(entries)))
    return entries


def _sorted(entries: list[_Entry]) -> list[_Entry]:
    """By day and time; a note without a day stays with the one before it."""
    day: date | None = None
    for entry in entries:
        day = entry.note.date or day
        entry.note = replace(entry.note, date=day)
    return sorted(entries, key=lambda entry: (entry.note.date or _LAST, entry.note.time or "", entry.number))


def _merged(entries: list[_Entry]) -> list[_Entry]:
    """Equal notes become the newest of them; runs of one command on one day become the last, with their number."""
    newest: dict[object, _Entry] = {}
    times = Counter[object]()
    for entry in entries:
        key = _key(entry)
        times[key] += _number(entry.note.text)
        newest[key] = entry
    kept = {id(entry): key for key, entry in newest.items()}
    merged = [entry for entry in entries if id(entry) in kept]
    for entry in merged:
        number = times[kept[id(entry)]]
        if number > 1 and isinstance(kept[id(entry)], tuple):
            entry.note = replace(entry.note, text=f"{_TIMES.sub('', entry.note.text)} (×{number})")
    return merged


def _number(text: str) -> int:
    match = _TIMES.search(text)
    return int(match[1]) if match else 1


def _key(entry: _Entry) -> object:
    """What makes two notes the same: one command on one day (a tuple), or the same words in the same order."""
    text = _TIMES.sub("", entry.note.text)
    run = _RUN.match(text)
    if entry.note.priority in {"🟡", "🟢", "✅"} and run is not None and "/" in run[0] and not entry.details:
        return (entry.note.date, run[0].casefold())
    lines = (text, *(detail.text for detail in entry.details))
    return " ".join(word for line in lines for word in _WORD.findall(line.casefold()) if word not in _ARTICLES) or text


def _units(entries: Sequence[_Entry]) -> list[Unit]:
    """Each line as a candidate, in order; a note opens its entry at its own cost, so its unit adds nothing."""
    units: list[Unit] = []
    for position, entry in enumerate(entries):
        age = 1 - position / max(1, len(entries) - 1)
        mark = entry.note.priority
        fade = (1 - _OLDEST) * age * (0.5 if mark in {"🔴", "✅"} else 1.0)
        units.extend(
            _unit(line, order=position, weight=_WORTH[mark] * (1 - fade), index=index)
            for index, line in enumerate((entry.note, *entry.details))
        )
    return units


def _unit(line: Note, *, order: int, weight: float, index: int) -> Unit:
    said = words(line.text)
    return Unit(
        order=order,
        when=_NO_TIME,
        label="",
        text=line.line(),
        weight=weight,
        mark="🟡",
        terms=tuple(sorted(set(said))),
        length=len(said),
        cost=estimate_tokens(line.line()) + 1 if index else 0,
        index=index,
    )


def _chosen(entries: Sequence[_Entry], units: Sequence[Unit], room: float) -> list[_Entry]:
    """The entries of the chosen lines, each with those of its details that were chosen."""
    opening = [_cost(entry.note) for entry in entries]
    details: dict[int, list[Note]] = {}
    for unit in choose(units, int(room), lambda unit: opening[unit.order]):
        kept = details.setdefault(unit.order, [])
        if unit.index:
            kept.append(entries[unit.order].details[unit.index - 1])
    return [replace(entries[order], details=kept) for order, kept in details.items()]


def _cost(note: Note) -> int:
    return estimate_tokens(note.line()) + 1


def _format(entries: Sequence[_Entry]) -> str:
    return format_notes(note for entry in entries for note in (entry.note, *entry.details))
