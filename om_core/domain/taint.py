"""What was made from removed messages, and has to go with them (DESIGN 3.3). Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFact:
    """What taint looks at of a chunk: its range, and what its Observer was shown. What it says is read only of those
    that were shown something tainted.
    """

    id: int
    memory_id: int
    thread_id: int
    from_seq: int
    to_seq: int
    position: int | None = None
    shared_chunk_id: int | None = None
    """Whose notes stand for this range as well: that of the thread it was cloned from, in the same log."""
    shown_chunks: tuple[int, ...] = ()
    """Also of other memories: a document of the resource carries values from one to another."""
    shown_generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFact:
    """A reflection: the text that stands for every position of its memory up to `through_position`."""

    memory_id: int
    generation: int
    through_position: int

    @property
    def key(self) -> tuple[int, int]:
        """Its memory and number."""
        return self.memory_id, self.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Ids of tainted chunks, and tainted generations by memory and number."""

    chunks: frozenset[int] = frozenset()
    generations: frozenset[tuple[int, int]] = frozenset()

    def generations_of(self, memory_id: int) -> frozenset[int]:
        """The tainted generations of one memory."""
        return frozenset(generation for owner, generation in self.generations if owner == memory_id)


def covering(chunks: Sequence[ChunkFact], removed: Mapping[int, Collection[int]]) -> frozenset[int]:
    """Ids of the chunks whose range holds a removed message; `removed`: seqs by thread."""
    ordered = {thread_id: sorted(seqs) for thread_id, seqs in removed.items()}

    def over(chunk: ChunkFact) -> bool:
        seqs = ordered.get(chunk.thread_id, [])
        return bisect_left(seqs, chunk.from_seq) < bisect_right(seqs, chunk.to_seq)

    return frozenset(chunk.id for chunk in chunks if over(chunk))


def spread(
    chunks: Sequence[ChunkFact],
    generations: Sequence[GenerationFact],
    *,
    covering: Collection[int],
    words: Collection[str],
    said: Callable[[Collection[int]], Mapping[int, frozenset[str]]],
    own_words: Callable[[ChunkFact], Collection[str]],
) -> Taint:
    """Follow what was removed through notes and reflections until nothing more is found.

    Args:
        chunks: of the memories.
        generations: of the memories, in any state.
        covering: ids of the chunks whose range holds a removed message.
        words: content words of what was removed.
        said: content words of all that chunks say (notes, hints, values, the title they gave), by id.
        own_words: content words of the messages of a chunk that are left; asked only where it matters.

    A chunk is tainted when it covers a removed message, when the notes that stand for it too are tainted, or when it
    was shown something tainted and repeats a word of what was removed that its own messages do not hold. A generation
    is tainted when a tainted chunk lies below it.
    """
    tainted = set(covering)
    cleared: set[int] = set()
    while True:
        tainted |= {chunk.id for chunk in chunks if chunk.shared_chunk_id in tainted}
        found = _fallen(chunks, generations, tainted)
        before = len(tainted)
        starts = _starts(chunks, tainted)
        asked = [
            chunk
            for chunk in chunks
            if chunk.id not in tainted and chunk.id not in cleared and _was_shown(chunk, tainted, found, starts)
        ]
        told = said([chunk.id for chunk in asked]) if asked else {}
        for chunk in asked:
            repeated = told[chunk.id].intersection(words)
            if repeated and not repeated.issubset(own_words(chunk)):
                tainted.add(chunk.id)
            else:
                cleared.add(chunk.id)  # whatever else turns out to be tainted, these words do not change
        if len(tainted) == before:
            return Taint(chunks=frozenset(tainted), generations=found)


def _fallen(
    chunks: Sequence[ChunkFact], generations: Sequence[GenerationFact], tainted: Collection[int]
) -> frozenset[tuple[int, int]]:
    """Generations at or above the lowest tainted position of their memory."""
    lowest: dict[int, int] = {}
    for chunk in chunks:
        if chunk.id in tainted and chunk.position is not None:
            lowest[chunk.memory_id] = min(chunk.position, lowest.get(chunk.memory_id, chunk.position))
    return frozenset(
        one.key for one in generations if one.memory_id in lowest and one.through_position >= lowest[one.memory_id]
    )


def _starts(chunks: Sequence[ChunkFact], tainted: Collection[int]) -> dict[int, int]:
    """By thread, where its first tainted chunk starts."""
    starts: dict[int, int] = {}
    for chunk in chunks:
        if chunk.id in tainted:
            starts[chunk.thread_id] = min(chunk.from_seq, starts.get(chunk.thread_id, chunk.from_seq))
    return starts


def _was_shown(
    chunk: ChunkFact, tainted: Collection[int], generations: Collection[tuple[int, int]], starts: Mapping[int, int]
) -> bool:
    """Whether its Observer saw anything tainted: notes, a reflection, or what a thread carries from chunk to chunk (its
    task, title and values).
    """
    if (chunk.memory_id, chunk.shown_generation) in generations or any(one in tainted for one in chunk.shown_chunks):
        return True
    start = starts.get(chunk.thread_id)
    return start is not None and start < chunk.from_seq
