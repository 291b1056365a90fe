"""The offline Reflector: sorts by date, merges, shortens old notes more than new ones, until the log fits its target
(DESIGN 6.8, 6.9).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Final

from om_core.llm.offline_pieces import pieces_of
from om_core.llm.offline_shorten import Entry, shortened, size_of, units_of, weightiest, with_pieces
from om_core.prompts.notes import Note, format_notes, note_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.ports import ReflectorMaterial

SHARES: Final = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Most of the log's tokens that are kept, by level."""
_MARGIN: Final = 0.97
_SNUG: Final = 0.95
_ROUNDS: Final = 6
_REPEAT_WORDS: Final = 3
_LAST: Final = date.max
_RUN: Final = re.compile(r"\S+ [^:]{3,140}?(?=: |$)")
_WORD: Final = re.compile(r"\w+|[^\w\s.,;:!]")
_ARTICLES: Final = frozenset({"a", "an", "the"})
_TIMES: Final = re.compile(r" \(×(\d{1,6})\)$")


def reflect(material: ReflectorMaterial, count_tokens: Callable[[str], int]) -> str:
    """The log in fewer than `target_tokens`, and within the share of its level."""
    entries = _without_repeats(_merged(_sorted(_entries(note_lines(material.log)))))
    whole = _format(entries)
    size = count_tokens(whole)
    wanted = min(material.target_tokens * _MARGIN, size * SHARES[min(max(material.level, 0), 4)])
    if size <= wanted:
        return whole
    units = units_of(entries)
    room = wanted * size_of(entries) / size
    best = ""
    for _ in range(_ROUNDS):
        kept = _format(shortened(entries, units, room))
        size = count_tokens(kept)
        if len(best) < len(kept) and size <= wanted:
            best = kept
        if _SNUG * wanted <= size <= wanted:
            break
        room *= _MARGIN * wanted / max(1, size)
    # A log of few long notes may hold none that fits: the weightiest is kept, because emptiness replaces no notes.
    return best if best or not entries else _format([weightiest(entries)])


def _entries(notes: Sequence[Note]) -> list[Entry]:
    entries: list[Entry] = []
    for note in notes:
        if note.depth and entries:
            entries[-1].details.append(note)
        else:
            entries.append(Entry(note=note, details=[], number=len(entries)))
    return entries


def _sorted(entries: list[Entry]) -> list[Entry]:
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


def _merged(entries: list[Entry]) -> list[Entry]:
    """Equal notes become the newest of them; runs of one command on one day become the last, with their number."""
    newest: dict[object, Entry] = {}
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


def _key(entry: Entry) -> object:
    """What makes two notes the same: one command on one day (a tuple), or the same words in the same order."""
    text = _TIMES.sub("", entry.note.text)
    run = _RUN.match(text)
    if entry.note.priority in {"🟡", "🟢", "✅"} and run is not None and "/" in run[0] and not entry.details:
        return (entry.note.date, run[0].casefold())
    lines = (text, *(detail.text for detail in entry.details))
    return " ".join(word for line in lines for word in _WORD.findall(line.casefold()) if word not in _ARTICLES) or text


def _without_repeats(entries: list[Entry]) -> list[Entry]:
    """The notes as pieces; what the same speaker says again in the same words stands only where it was said last."""
    said: set[tuple[str, str]] = set()
    kept: list[Entry] = []
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
            kept.append(with_pieces(entry, numbers))
    return kept[::-1]


def _format(entries: Sequence[Entry]) -> str:
    return format_notes(note for entry in entries for note in (entry.note, *entry.details))
