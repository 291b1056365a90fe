"""Copying the rows of a locked thread into a new one, for a clone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Where the chunks of the new thread end, the buffered and the active ones, the last position, and how many tokens
    their active notes have.
    """

    buffered_seq: int
    observed_seq: int
    position: int
    tokens: int


class Copies(Protocol):
    """Copies within one tenant; the new thread is empty. Chunks are taken over whole, up to `to_seq` and before the
    first stale one.
    """

    def messages(self, source: int, target: int, *, resource: str, to_seq: int) -> None:
        """Rows up to `to_seq` with tombstones, each naming the row it was copied from and whose it was first."""

    def chunks(self, source: int, target: int, memory_id: int, *, to_seq: int) -> Copied:
        """Chunks with their positions, into a memory that is empty."""

    def moved_chunks(self, source: int, target: int, memory_id: int, *, to_seq: int, after: int) -> Copied:
        """Chunks with new positions above `after`, into a memory that has a log already."""

    def shared_chunks(self, source: int, target: int, memory_id: int, *, to_seq: int, after: int) -> Copied:
        """Empty chunks in the same memory, for ranges of which its log has the notes; of active chunks only."""

    def generations(self, from_memory: int, memory_id: int, *, newest: int, position: int) -> None:
        """Generations that took effect, up to `newest`, and stand for nothing beyond `position`; none is active."""

    def waiting(self, from_memory: int, memory_id: int, *, generation: int, base: int, position: int) -> bool:
        """The generation that waits to take effect, if it goes on from `base`; whether it was taken over."""

    def document(self, source: int, target: int, *, to_seq: int) -> None:
        """The thread's own working memory, as it was at `to_seq`."""

    def values(self, from_memory: int, memory_id: int, target: int, *, generations: bool) -> None:
        """Extracted values of the chunks that were taken over; of generations too, where these have equal numbers."""
