"""Copying the rows of a locked thread into a new one, for a clone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from om_core.domain.thread import ThreadState


class Copies(Protocol):
    """Copies within one tenant; the target is empty, and its memory is its own."""

    def messages(self, source: int, target: int, *, resource: str, to_seq: int) -> None:
        """Rows up to `to_seq` with tombstones, each naming the row it was copied from and whose it was first."""

    def chunks(self, source: int, target: int, memory_id: int, *, to_seq: int) -> tuple[int, int, int]:
        """Whole chunks up to `to_seq` or the first stale one; the ends of the buffered and of the active ones, and the
        last position.
        """

    def generations(self, from_memory: int, memory_id: int, *, newest: int, position: int) -> None:
        """Generations that took effect, up to `newest`, and stand for nothing beyond `position`; none is active."""

    def kept(self, source: ThreadState, target: ThreadState, *, to_seq: int) -> None:
        """The thread's working memory as it was then, and extracted values of what was copied."""
