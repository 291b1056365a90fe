"""The words of a text that say what it is about, in a form in which two texts can be compared (DESIGN 3.3). Pure.

Where this errs, it calls a word content: notes are then made again that need not be, and nothing stays that must go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from om_core.domain.message import File, Image, Text, ToolCall, ToolResult
from om_core.domain.slices import as_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from om_core.domain.message import Part, StoredMessage

STEM: Final = 5
"""Characters of a word that are compared: a note says `diabetic` of a message that said `diabetes`."""
SHORTEST: Final = 4
"""Shorter words are function words more often than not. Numbers count at any length."""
_WORD: Final = re.compile(r"\w+")
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\uac00-\ud7af]+")
"""Scripts that set no spaces between words, or whose endings hang on them: compared by pairs of characters."""
_FUNCTION: Final = """
about above after again against almost along already also although always among another anybody anyone anything
around back because been before being below between both cannot could does doing done down during each either else
even ever every everybody everyone everything from have having here hers herself himself however into itself just
least less like made make many maybe mine more most much must myself neither never nobody none nothing often once
only other others otherwise ours ourselves over perhaps quite rather same several shall should since some somebody
someone something sometimes still such than that their theirs them themselves then there therefore these they this
those though through thus together toward towards under until upon very well went were what whatever when where
whether which while whose will with within without would your yours yourself yourselves
"""
_OF_NOTES: Final = """
agent asked asks assistant call called calls date error mentioned message note noted notes result said says stated
states telling text told tool user users wants
"""
"""What notes say whatever they are about."""
_EMPTY: Final = frozenset(_FUNCTION.split()) | frozenset(_OF_NOTES.split())

_FRAME: Final = re.compile(r"^Date: .*$|\(\d{1,2}:\d{2}\)", re.MULTILINE)
"""When something was said is part of every note."""


def note_words(text: str) -> frozenset[str]:
    """Content words of notes, without the days and times that stand with them."""
    return content_words(_FRAME.sub(" ", text))


def message_words(rows: Iterable[StoredMessage]) -> frozenset[str]:
    """Content words of everything in these messages that a note could have been made from, and of the day on which each
    was said.
    """
    return frozenset(word for row in rows for word in content_words(*_texts(row)))


def _texts(row: StoredMessage) -> Iterable[str]:
    if row.removed:
        return
    yield row.message.author or ""
    yield f"{row.created_at:%Y %B} {row.created_at.day} {row.created_at.month}"
    for part in row.parts:
        yield from _words_of(part)


def _words_of(part: Part) -> Iterable[str]:
    if isinstance(part, Text):
        yield part.text
    elif isinstance(part, ToolCall):
        yield f"{part.name} {as_text(part.args)}"
    elif isinstance(part, ToolResult):
        yield f"{part.name or ''} {as_text(part.visible)}"
    elif isinstance(part, Image):
        yield part.url or ""
    elif isinstance(part, File):
        yield f"{part.filename or ''} {part.url or ''}"


def content_words(*texts: str) -> frozenset[str]:
    """Stems of the words that carry content; pairs of characters where words have no spaces between them."""
    return frozenset(word for text in texts for word in _content(text.casefold()))


def _content(text: str) -> Iterable[str]:
    for word in _WORD.findall(text):
        for run in _UNSPACED.findall(word):
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
        for piece in _UNSPACED.sub(" ", word).split():
            if any(character.isdigit() for character in piece):
                yield piece
            elif len(piece) >= SHORTEST and piece not in _EMPTY:
                yield piece[:STEM]
