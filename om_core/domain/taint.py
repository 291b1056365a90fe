"""What was made from removed messages, and has to go with them (DESIGN 3.3). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

STEM: Final = 5
"""Characters of a word that are compared: a note says `diabetic` of a message that said `diabetes`."""
SHORTEST: Final = 4
"""Shorter words are function words more often than not; numbers count at any length."""
_WORD: Final = re.compile(r"\w+")
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\uac00-\ud7af]+")
"""Scripts that set no spaces between words, or whose endings hang on them: compared by pairs of characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFact:
    """What taint looks at of a chunk: its range, what its Observer was shown, and its notes."""

    id: int
    thread_id: int
    from_seq: int
    to_seq: int
    position: int | None
    text: str
    shown_chunks: tuple[int, ...]
    shown_generation: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFact:
    """A reflection: the text that stands for every position up to `through_position`."""

    generation: int
    through_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Ids of tainted chunks, and tainted generations."""

    chunks: frozenset[int] = frozenset()
    generations: frozenset[int] = frozenset()


def spread(
    chunks: Sequence[ChunkFact],
    generations: Sequence[GenerationFact],
    *,
    covering: Collection[int],
    words: Collection[str],
    own_words: Callable[[ChunkFact], Collection[str]],
) -> Taint:
    """Follow what was removed through notes and reflections until nothing more is found.

    Args:
        chunks: of the memory.
        generations: of the memory, in any state.
        covering: ids of the chunks whose range holds a removed message.
        words: content words of what was removed.
        own_words: content words of the messages of a chunk that are left; asked only where it matters.

    A chunk is tainted when it covers a removed message, or when it was shown a tainted note and repeats a word of what
    was removed that its own messages do not hold. A generation is tainted when a tainted chunk lies below it.
    """
    tainted = set(covering)
    cleared: set[int] = set()
    found: frozenset[int] = frozenset()
    while True:
        lowest = min((chunk.position for chunk in chunks if chunk.id in tainted and chunk.position), default=None)
        found = frozenset(
            one.generation for one in generations if lowest is not None and one.through_position >= lowest
        )
        before = len(tainted)
        for chunk in chunks:
            if chunk.id in tainted or chunk.id in cleared or not _was_shown(chunk, tainted, found):
                continue
            repeated = content_words(chunk.text) & set(words)
            if repeated and not repeated <= set(own_words(chunk)):
                tainted.add(chunk.id)
            else:
                cleared.add(chunk.id)  # its own words do not change
        if len(tainted) == before:
            return Taint(chunks=frozenset(tainted), generations=found)


def _was_shown(chunk: ChunkFact, tainted: Collection[int], generations: Collection[int]) -> bool:
    return chunk.shown_generation in generations or any(shown in tainted for shown in chunk.shown_chunks)


def content_words(*texts: str) -> frozenset[str]:
    """Stems of the words that carry content, and pairs of characters where words have no spaces between them."""
    return frozenset(word for text in texts for word in _content(text.casefold()))


def _content(text: str) -> Iterable[str]:
    for word in _WORD.findall(text):
        for run in _UNSPACED.findall(word):
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
        rest = _UNSPACED.sub(" ", word)
        for piece in rest.split():
            if any(character.isdigit() for character in piece):
                yield piece
            elif len(piece) >= SHORTEST:
                yield piece[:STEM]
