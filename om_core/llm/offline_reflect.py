"""The offline Reflector: sorts by date, merges, shortens old notes more than new ones, until the log fits its target
(DESIGN 6.8, 6.9).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from om_core.llm.offline_languages import ENGLISH
from om_core.llm.offline_pieces import Piece, joined, pieces_of
from om_core.llm.offline_prose import word_classes
from om_core.llm.offline_text import estimate_tokens, words
from om_core.llm.offline_units import Unit, choose
from om_core.prompts.notes import Note, format_notes, note_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.ports import ReflectorMaterial

SHARES: Final = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Most of the log's tokens that are kept, by level."""
_MARGIN: Final = 0.97
_SNUG: Final = 0.95
_ROUNDS: Final = 6
_WORTH: Final = {"🔴": 4.0, "✅": 3.0, "🟡": 1.5, "": 1.2, "🟢": 0.6}
_OLDEST: Final = 0.5
"""What an old note is worth beside a new one; marks 🔴 and ✅ lose half as much."""
_REPEAT_WORDS: Final = 3
_MARK_TOKENS: Final = 8
_DAY_TOKENS: Final = 10
_NOTE_TOKENS: Final = 100
_NOTE_CHARS: Final = 800
_LAST: Final = date.max
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RUN: Final = re.compile(r"\S+ [^:]{3,140}?(?=: |$)")
_WORD: Final = re.compile(r"\w+|[^\w\s.,;:!]")
_ARTICLES: Final = frozenset({"a", "an", "the"})
_TIMES: Final = re.compile(r" \(×(\d{1,6})\)$")


@dataclass(slots=True)
class _Entry:
    """A note with its details, in the order of time. `pieces` are those of the note's own line."""

    note: Note
    details: list[Note]
    number: int
    pieces: list[Piece] = field(default_factory=list)


def reflect(material: ReflectorMaterial, count_tokens: Callable[[str], int]) -> str:
    """The log in fewer than `target_tokens`, and within the share of its level."""
    entries = _without_repeats(_merged(_sorted(_entries(note_lines(material.log)))))
    whole = _format(entries)
    size = count_tokens(whole)
    wanted = min(material.target_tokens * _MARGIN, size * SHARES[min(max(material.level, 0), 4)])
    if size <= wanted:
        return whole
    units = _units(entries)
    room = wanted * sum(_cost(line) for entry in entries for line in (entry.note, *entry.details)) / size
    best = ""
    for _ in range(_ROUNDS):
        kept = _format(_together(_chosen(entries, units, room)))
        size = count_tokens(kept)
        if len(best) < len(kept) and size <= wanted:
            best = kept
        if _SNUG * wanted <= size <= wanted:
            break
        room *= _MARGIN * wanted / max(1, size)
    # A log of few long notes may hold none that fits: the weightiest is kept, because emptiness replaces no notes.
    return best if best or not entries else _format([_weightiest(entries)])


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
    """By day and time; what a note does not say of them is as in the note before it."""
    day: date | None = None
    time = ""
    order: dict[int, tuple[date, str, int]] = {}
    for entry in entries:
        time = entry.note.time or (time if entry.note.date in {None, day} else "")
        day = entry.note.date or day
        entry.note = replace(entry.note, date=day)
        order[entry.number] = (day or _LAST, time, entry.number)
    return sorted(entries, key=lambda entry: order[entry.number])


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


def _without_repeats(entries: list[_Entry]) -> list[_Entry]:
    """The notes as pieces; what the same speaker says again in the same words stands only where it was said last."""
    said: set[tuple[str, str]] = set()
    kept: list[_Entry] = []
    for entry in reversed(entries):
        entry.pieces = pieces_of(entry.note.text)
        numbers = [
            number for number, piece in enumerate(entry.pieces) if (piece.label, piece.text.casefold()) not in said
        ]
        said.update(
            (piece.label, piece.text.casefold()) for piece in entry.pieces if len(piece.text.split()) >= _REPEAT_WORDS
        )
        if len(numbers) == len(entry.pieces) or (entry.details and not numbers):
            kept.append(entry)
        elif numbers:
            kept.append(_with_pieces(entry, numbers))
    return kept[::-1]


def _with_pieces(entry: _Entry, numbers: Sequence[int]) -> _Entry:
    """The entry with some of the pieces of its note."""
    text = joined(entry.pieces, numbers)
    return replace(entry, note=replace(entry.note, text=text), pieces=[entry.pieces[number] for number in numbers])


def _units(entries: Sequence[_Entry]) -> list[Unit]:
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


def _chosen(entries: Sequence[_Entry], units: Sequence[Unit], room: float) -> list[_Entry]:
    """The entries of the chosen pieces; of one with chosen details at least the first piece stays, to name them."""
    taken: dict[int, list[int]] = {}
    for unit in choose(units, int(room), lambda unit: _MARK_TOKENS + estimate_tokens(unit.label)):
        taken.setdefault(unit.order, []).append(unit.index)
    found: list[_Entry] = []
    number = 0
    for entry in entries:
        numbers = [taken.get(number + index, []) for index in range(1 + len(entry.details))]
        number += len(numbers)
        if any(numbers):
            said = numbers[0] or [0]
            shorter = entry if len(said) == len(entry.pieces) else _with_pieces(entry, said)
            details = [_shorter(detail, kept) for detail, kept in zip(entry.details, numbers[1:], strict=True) if kept]
            found.append(replace(shorter, details=details))
    return found


def _shorter(detail: Note, kept: Sequence[int]) -> Note:
    pieces = _pieces_of_detail(detail)
    return detail if len(kept) == len(pieces) else replace(detail, text=joined(pieces, kept))


def _together(entries: Sequence[_Entry]) -> list[_Entry]:
    """Short notes of one day and the same speakers, or the same command, as one note."""
    found: list[_Entry] = []
    for entry in entries:
        if found and (both := _both(found[-1], entry)) is not None:
            found[-1] = both
        else:
            found.append(entry)
    return found


def _both(first: _Entry, second: _Entry) -> _Entry | None:
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


def _cost(note: Note) -> int:
    return estimate_tokens(note.line()) + 1


def _format(entries: Sequence[_Entry]) -> str:
    return format_notes(note for entry in entries for note in (entry.note, *entry.details))
