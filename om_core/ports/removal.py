"""What removal does to rows; everything of it happens under the locks of all threads of a memory and of the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from om_core.domain.job import JobKind
    from om_core.domain.message import OpenCall
    from om_core.domain.taint import ChunkFact, GenerationFact
    from om_core.domain.thread import ThreadState


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counters of a thread, recounted from its live rows."""

    pending_tokens: int
    unbuffered_tokens: int
    stale_tokens: int
    question_seq: int
    oldest_pending_at: datetime | None
    last_live_turn: int
    live_pins: tuple[int, ...]
    live_calls: tuple[OpenCall, ...]


class Removals(Protocol):
    """Removal of content of one tenant."""

    def lock_threads(self, memory_id: int) -> tuple[ThreadState, ...]:
        """Every thread of a memory, locked in order of id."""

    def rows_of(self, thread_id: int, client_id: str) -> tuple[int, ...]:
        """Seqs of the live rows of a message and of its continuations; empty if there is no such message."""

    def is_deleted(self, thread_id: int, client_id: str) -> bool:
        """Whether a message with this id was deleted."""

    def live_above(self, thread_id: int, seq: int) -> tuple[int, ...]:
        """Seqs of the live rows above one."""

    def first_stored_at(self, thread_id: int, seqs: Sequence[int]) -> datetime: ...

    def empty_messages(self, thread_id: int, seqs: Sequence[int], *, keep_ids: bool) -> None:
        """Turn rows into tombstones; without `keep_ids` their ids may be used again."""

    def chunks(self, memory_id: int) -> tuple[ChunkFact, ...]: ...

    def generations(self, memory_id: int) -> tuple[GenerationFact, ...]: ...

    def erase_chunks(self, chunk_ids: Collection[int]) -> tuple[tuple[int, int, bool], ...]:
        """Empty the notes of chunks and count what is left of their ranges; (id, thread id, stale) of each."""

    def erase_generations(self, memory_id: int, generations: Collection[int]) -> None: ...

    def newest_kept(self, memory_id: int) -> tuple[int, int, int]:
        """Generation, `through_position` and tokens of the newest reflection that took effect and is left; or zeros."""

    def make_base(self, memory_id: int, generation: int) -> None:
        """Make a kept generation the active one (0: none), and give up the one that waits."""

    def bound(self, memory_id: int, after_position: int, tokens: int) -> int | None:
        """The position above which the newest chunks fit so many tokens; None: all of them do."""

    def cancel_jobs(self, memory_id: int) -> None:
        """Cancel every live job of a memory and its threads; a worker that holds one writes nothing."""

    def cancel_kind(self, memory_id: int, kind: JobKind) -> None: ...

    def erase_jobs(self, memory_id: int) -> None:
        """Empty what jobs keep of models' answers, and the words of their errors."""

    def erase_events(self, memory_id: int, since: datetime) -> None:
        """Leave of payloads only ids, times and numbers."""

    def erase_kept(
        self,
        thread: ThreadState,
        *,
        lowest_seq: int,
        since: datetime,
        chunk_ids: Collection[int],
        generations: Collection[int],
    ) -> None:
        """Extracted values and working-memory versions that may hold what was removed."""

    def recount(self, thread: ThreadState) -> Counted: ...

    def delete_thread(self, thread: ThreadState, *, with_memory: bool) -> dict[str, int]:
        """Delete its rows; how many of each kind."""

    def threads_of_resource(self, resource_id: str) -> tuple[tuple[int, int], ...]:
        """(thread id, memory id) of a resource, in order of thread id."""

    def delete_resource(self, resource_id: str) -> dict[str, int]:
        """Delete what belongs to no thread: shared documents, usage, keys and webhooks narrowed to the resource."""
