"""What removal does to rows. Everything but looking happens under the locks of a `Family`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from om_core.domain.chunk import Hints
    from om_core.domain.job import JobKind
    from om_core.domain.message import JsonObject
    from om_core.domain.taint import ChunkFact, GenerationFact
    from om_core.domain.thread import MemoryState, ThreadState
    from om_core.ports.records import NewJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Every thread of some memories, and these memories, by id: locked, and nobody adds another."""

    threads: Mapping[int, ThreadState]
    memories: Mapping[int, MemoryState]

    def threads_of(self, memory_id: int) -> tuple[ThreadState, ...]:
        """The threads of one memory, by id."""
        return tuple(state for _, state in sorted(self.threads.items()) if state.memory_id == memory_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A live row of a clone that was copied from another thread's."""

    thread_id: int
    memory_id: int
    resource_id: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """A chunk whose text is gone; stale: something of its range is left."""

    id: int
    thread_id: int
    stale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A job that was cancelled, as the row that would make it again."""

    job: NewJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a thread's row says of its live rows, counted anew."""

    pending_tokens: int
    unbuffered_tokens: int
    stale_tokens: int
    question_seq: int
    oldest_pending_at: datetime | None
    last_live_turn: int
    live: frozenset[int]
    """Of the seqs that were asked about, those that are left."""


class Removals(Protocol):
    """Removal of content of one tenant."""

    def lock(self, memory_ids: Collection[int]) -> Family | None:
        """Lock every thread of these memories in order of id, then the memories: nothing is added to them until the
        end of the transaction. None: a thread was added meanwhile, and is not locked.
        """

    def rows_of(self, thread_id: int, client_id: str) -> tuple[int, ...]:
        """Seqs of the live rows of a message and of its continuations; empty if there is no such message."""

    def is_deleted(self, thread_id: int, client_id: str) -> bool:
        """Whether a message with this id was deleted."""

    def live_above(self, thread_id: int, seq: int) -> tuple[int, ...]:
        """Seqs of the live rows above one."""

    def copies(self, thread_id: int, seqs: Collection[int]) -> tuple[Copy, ...]:
        """Live rows of other threads that were copied from these, and copies of these copies."""

    def copies_from(self, resource_id: str) -> tuple[Copy, ...]:
        """Live rows of threads of others whose message was first stored for this resource."""

    def release_copies(self, thread_id: int) -> None:
        """Copies of a thread's rows count as copied from where these rows came from, if from anywhere."""

    def sharing(self, resource_id: str, since: datetime) -> frozenset[int]:
        """Memories of a resource with chunks since then, if its document was written since by memory or an agent."""

    def first_stored_at(self, removed: Mapping[int, Collection[int]]) -> datetime:
        """When the first of these rows (seqs by thread) was stored."""

    def empty_messages(self, thread_id: int, seqs: Collection[int], *, keep_ids: bool) -> None:
        """Turn rows into tombstones; without `keep_ids` their ids may be used again."""

    def chunks(self, memory_ids: Collection[int]) -> tuple[ChunkFact, ...]: ...

    def words(self, chunk_ids: Collection[int]) -> Mapping[int, frozenset[str]]:
        """Content words of all that chunks say: notes, hints, values, and the title they gave."""

    def generations(self, memory_ids: Collection[int]) -> tuple[GenerationFact, ...]: ...

    def erase_chunks(self, chunk_ids: Collection[int]) -> tuple[Erased, ...]:
        """Empty what chunks say, and count what is left of their ranges."""

    def erase_generations(self, memory_id: int, generations: Collection[int]) -> None: ...

    def newest_kept(self, memory_id: int) -> int:
        """The newest generation that took effect and is left; 0: none."""

    def make_base(self, memory_id: int, generation: int) -> None:
        """Make a kept generation the active one (0: none), and give up the one that waits."""

    def bound(self, memory_id: int, after_position: int, tokens: int) -> int | None:
        """The position above which the newest chunks fit so many tokens; None: all of them do."""

    def hints(self, thread_id: int) -> Hints:
        """What the active chunks of a thread that are left say is going on."""

    def recount(self, thread: ThreadState, seqs: Collection[int]) -> Counted:
        """Counters from the live rows; `seqs`: rows whose life is asked about."""

    def cancel_jobs(self, memory_ids: Collection[int], kind: JobKind | None = None) -> tuple[Cancelled, ...]:
        """Cancel every live job of memories and their threads, in order of id: a worker that holds one writes nothing.
        What was cancelled, to be made again where it is still wanted.
        """

    def erase_jobs(self, memory_ids: Collection[int], since: datetime) -> None:
        """Empty what jobs that were live since then keep of models' answers, and the words of their errors."""

    def erase_events(self, memory_ids: Collection[int], resources: Collection[str], since: datetime) -> None:
        """Leave of payloads since then only ids, times and numbers; of resources, those about their documents."""

    def values(self, memory_ids: Collection[int]) -> tuple[tuple[int, JsonObject], ...]:
        """(memory id, extracted value as a row) of memories."""

    def erase_values(self, memory_id: int, slugs: Collection[str]) -> None: ...

    def erase_documents(self, threads: Sequence[ThreadState], since: datetime) -> None:
        """Working memory of threads and of their resource that memory or an agent has written since then; what is left
        becomes the newest version again.
        """


class Deletions(Protocol):
    """Rows that go altogether, under the same locks."""

    def thread(self, thread: ThreadState) -> dict[str, int]:
        """Delete a thread's rows; how many of each kind."""

    def memory(self, memory_id: int) -> dict[str, int]:
        """Delete a memory that has no thread any more; how many rows of each kind."""

    def threads_of(self, resource_id: str) -> tuple[int, ...]:
        """Ids of a resource's threads; raises as `memories_of`."""

    def memories_of(self, resource_id: str) -> frozenset[int]:
        """Memories of a resource's threads, and its own.

        Raises:
            NotFoundError: the resource is out of the caller's reach.
        """

    def resource(self, resource_id: str) -> dict[str, int]:
        """Delete what belongs to no thread: shared documents, usage, keys and webhooks narrowed to the resource."""
