"""The measure (API 1): an answer counts when 80 % of its content words stand within three consecutive notes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

WINDOW: Final = 3
"""Notes in a row that may state an answer together."""
ANSWER: Final = 0.8
EVIDENCE: Final = 0.5
"""Share of the content words of an answer, and of an evidence turn, that have to stand there."""
_WORD: Final = re.compile(r"[a-z0-9]+")
_ENDINGS: Final = ("ing", "ies", "ed", "es", "s")
_SHORTEST_STEM: Final = 3
_STOP_TEXT: Final = """
a about an and are as at be been but by did do does for from had has have he her him his i if in is it its me my no not
of on or our out she so that the their them they this to up us was we were with yes you your
"""
_STOP: Final = frozenset(_STOP_TEXT.split())


def content_words(text: object) -> frozenset[str]:
    """The content words of a text, crudely stemmed; Latin letters and digits only, as the data are English."""
    lower = str(text).lower().replace("'s", "")
    return frozenset(_stem(word) for word in _WORD.findall(lower) if word not in _STOP)


def _stem(word: str) -> str:
    ending = next((end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= _SHORTEST_STEM), "")
    return word.removesuffix(ending)


def answered(notes: Sequence[str], answers: Iterable[object]) -> int:
    """How many of the answers the notes state. Each note holds its date; an answer without content words never counts."""
    held = [content_words(note) for note in notes]
    places: defaultdict[str, set[int]] = defaultdict(set)
    for first in range(len(held)):
        for word in frozenset().union(*held[first : first + WINDOW]):
            places[word].add(first)
    return sum(_is_stated(content_words(answer), places) for answer in answers)


def _is_stated(answer: frozenset[str], places: defaultdict[str, set[int]]) -> bool:
    together = Counter(first for word in answer for first in places.get(word, ()))
    return bool(together) and max(together.values()) >= ANSWER * len(answer)


def is_kept(turn: str, notes: str) -> bool:
    """Whether half of the content words of an evidence turn are among those of the notes."""
    said = content_words(turn)
    return bool(said) and len(said & content_words(notes)) >= EVIDENCE * len(said)


def spoken_date(when: datetime) -> str:
    """A time as the dialogues give it: `1:56 pm on 8 May, 2023`."""
    return f"{when.hour % 12 or 12}:{when:%M} {'pm' if when.hour >= 12 else 'am'} on {when.day} {when:%B}, {when.year}"
