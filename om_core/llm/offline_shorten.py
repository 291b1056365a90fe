"""Entries of a log made shorter: which pieces of which notes stay within a number of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from om_core.llm.offline_languages import ENGLISH
from om_core.llm.offline_pieces import Piece, joined, pieces_of
from om_core.llm.offline_prose import word_classes
from om_core.llm.offline_text import estimate_tokens, words
from om_core.llm.offline_units import Unit, choose
from om_core.prompts.notes import Note

_WORTH: Final = {"🔴": 4.0, "✅": 3.0, "🟡": 1.5, "": 1.2, "🟢": 0.6}
_OLDEST: Final = 0.5
"""What an old note is worth beside a new one; marks 🔴 and ✅ lose half as much."""
_MARK_TOKENS: Final = 8
_DAY_TOKENS: Final = 10
_NOTE_TOKENS: Final = 100
_NOTE_CHARS: Final = 800
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Entry:
    """A note with its details, in the order of time. `pieces` are those of the note's own line."""

    note: Note
    details: list[Note]
    number: int
    pieces: list[Piece] = field(default_factory=list)


def size_of(entries: Sequence[Entry]) -> int:
    """Estimated tokens of the entries."""
    return sum(estimate_tokens(line.line()) + 1 for entry in entries for line in (entry.note, *entry.details))


def weightiest(entries: Sequence[Entry]) -> Entry:
    """The entry that matters most, without its details; the newest of several."""
    best = max(entries, key=lambda entry: (_WORTH[entry.note.priority], entry.number))
    return replace(best, details=[])


def shortened(entries: Sequence[Entry], units: Sequence[Unit], room: float) -> list[Entry]:
    """What fits into about `room` estimated tokens, short notes of one day and the same speakers as one.

    Args:
        entries: in order of time.
        units: of these entries.
        room: tokens.
    """
    return _together(_chosen(entries, units, room))


def with_pieces(entry: Entry, numbers: Sequence[int]) -> Entry:
    """The entry with some of the pieces of its note."""
    text = joined(entry.pieces, numbers)
    return replace(entry, note=replace(entry.note, text=text), pieces=[entry.pieces[number] for number in numbers])


def units_of(entries: Sequence[Entry]) -> list[Unit]:
    """The pieces of each note and of its details as candidates, in order; the first that is taken pays for its line.

    A unit's `order` is the number of its line, counted over all entries, its `index` the number of the piece.
    """
    on_day = Counter(entry.note.date for entry in entries)
    units: list[Unit] = []
    line_number = 0
    for position, entry in enumerate(entries):
        age = 1 - position / max(1, len(entries) - 1)
        mark = entry.note.priority
        fade = (1 - _OLDEST) * age * (0.5 if mark in {"🔴", "✅"} else 1.0)
        header = _DAY_TOKENS / on_day[entry.note.date]
        for pieces in (entry.pieces, *map(_pieces_of_detail, entry.details)):
            share = round((_opening_cost(pieces) + header) / len(pieces))
            units.extend(
                _unit(piece, order=line_number, weight=_WORTH[mark] * (1 - fade), index=index, share=share)
                for index, piece in enumerate(pieces)
            )
            line_number += 1
            header = 0.0
    return units


def _pieces_of_detail(detail: Note) -> list[Piece]:
    """Its pieces; a line that is kept word for word has one."""
    return pieces_of(detail.text) if detail.depth == 1 else [Piece("", detail.text)]


def _unit(piece: Piece, *, order: int, weight: float, index: int, share: int) -> Unit:
    """`share`: of the tokens of the note's opening, so that a note which says little is worth little."""
    text = f"{piece.label} {piece.text}" if index == 0 else piece.text
    said = set(words(text))
    faint, strong = word_classes(said, text, ENGLISH)
    cost = estimate_tokens(piece.text) + 1
    return Unit(
        order=order,
        when=_NO_TIME,
        label=piece.label,
        text=piece.text,
        weight=weight,
        mark="🟡",
        terms=tuple(sorted(said)),
        faint=faint,
        strong=strong,
        length=cost + share,
        cost=cost,
        index=index,
    )


def _chosen(entries: Sequence[Entry], units: Sequence[Unit], room: float) -> list[Entry]:
    """The entries of the chosen pieces; of one with chosen details at least the first piece stays, to name them."""
    taken: dict[int, list[int]] = {}
    for unit in choose(units, int(room), lambda unit: _MARK_TOKENS + estimate_tokens(unit.label)):
        taken.setdefault(unit.order, []).append(unit.index)
    found: list[Entry] = []
    number = 0
    for entry in entries:
        numbers = [taken.get(number + index, []) for index in range(1 + len(entry.details))]
        number += len(numbers)
        if any(numbers):
            said = numbers[0] or [0]
            shorter = entry if len(said) == len(entry.pieces) else with_pieces(entry, said)
            details = [_shorter(detail, kept) for detail, kept in zip(entry.details, numbers[1:], strict=True) if kept]
            found.append(replace(shorter, details=details))
    return found


def _shorter(detail: Note, kept: Sequence[int]) -> Note:
    pieces = _pieces_of_detail(detail)
    return detail if len(kept) == len(pieces) else replace(detail, text=joined(pieces, kept))


def _together(entries: Sequence[Entry]) -> list[Entry]:
    """Short notes of one day and the same speakers, or the same command, as one note."""
    found: list[Entry] = []
    for entry in entries:
        if found and (both := _both(found[-1], entry)) is not None:
            found[-1] = both
        else:
            found.append(entry)
    return found


def _both(first: Entry, second: Entry) -> Entry | None:
    """Two entries as one with the first's time, or None where they are better apart."""
    if len(first.note.text) + len(second.note.text) > _NOTE_CHARS:
        return None
    mine, other = ({piece.label for piece in entry.pieces} for entry in (first, second))
    alike = (first.note.date, first.note.priority) == (second.note.date, second.note.priority)
    if not alike or first.details or second.details or "" in mine | other or not (mine <= other or other <= mine):
        return None
    labels = list(dict.fromkeys(piece.label for piece in (*first.pieces, *second.pieces)))
    pieces = sorted((*first.pieces, *second.pieces), key=lambda piece: labels.index(piece.label))
    text = joined(pieces, range(len(pieces)))
    if estimate_tokens(text) > _NOTE_TOKENS:
        return None
    return replace(first, note=replace(first.note, text=text), pieces=pieces)


def _opening_cost(pieces: Sequence[Piece]) -> int:
    """Tokens of a line's mark, time and first label."""
    return _MARK_TOKENS + estimate_tokens(pieces[0].label)
