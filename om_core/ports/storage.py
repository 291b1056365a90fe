"""Storage as the services see it. One transaction belongs to one tenant; locks are taken in the order thread rows by
id, memory rows by id, job rows by id (DESIGN 3.2), and never held across a model call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from om_core.domain.chunk import Chunk
    from om_core.domain.errors import DatabaseOutageError
    from om_core.domain.job import Job, JobKind, JobRef
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.domain.policy import JobPolicy
    from om_core.domain.reach import Reach
    from om_core.domain.thread import MemoryState, Snapshot, ThreadState
    from om_core.ports.copying import Copies
    from om_core.ports.event_log import Events
    from om_core.ports.kept import Extractions, Reflections, WorkingMemories
    from om_core.ports.keys import Keys
    from om_core.ports.records import (
        BreakerRow,
        BudgetRow,
        ClaimedJob,
        ClaimLimits,
        FinishedJob,
        FoundKey,
        Kept,
        LockedThread,
        NewChunk,
        NewEvent,
        NewJob,
        NewMessage,
        News,
        NewThread,
        Page,
        SystemGauges,
        UsageQuery,
        UsageRow,
        WorkerRow,
    )
    from om_core.ports.removal import Deletions, Removals
    from om_core.ports.webhooks import Webhooks


class Threads(Protocol):
    """Thread rows."""

    def lock(
        self, resource_id: str, external_id: str, *, client_ids: Sequence[str] = (), tail: int = 0
    ) -> LockedThread | None:
        """Lock a thread for appending and read everything a decision needs, in one statement."""

    def lock_by_id(self, thread_id: int) -> ThreadState | None: ...

    def append(
        self,
        thread: ThreadState,
        messages: Sequence[NewMessage],
        jobs: Sequence[NewJob],
        events: Sequence[NewEvent],
    ) -> tuple[JobRef, ...]:
        """Insert rows, write the state that follows from them, jobs and events, in one statement; the jobs inserted."""

    def create(self, new: NewThread) -> bool:
        """Create the thread (and memory) unless it exists; whether it was created."""

    def resources_of(self, external_id: str) -> tuple[str, ...]:
        """The resources that have a thread with this id (at most 2 are returned)."""

    def get(self, resource_id: str, external_id: str) -> ThreadState | None: ...

    def get_by_id(self, thread_id: int) -> ThreadState | None: ...

    def update(self, thread_id: int, **changes: Any) -> None:
        """Write columns of a locked thread."""

    def page(
        self, *, resource_id: str | None, cursor: str | None, limit: int, search: str | None = None
    ) -> Page[ThreadState]:
        """Newest first; `search` is looked for in ids, titles and resources, whatever its case."""


class Memories(Protocol):
    """Memory rows; log writers lock them."""

    def lock(self, memory_id: int) -> MemoryState: ...

    def get(self, memory_id: int) -> MemoryState: ...

    def update(self, memory_id: int, **changes: Any) -> None:
        """Write columns of a locked memory and raise its version."""

    def snapshot(self, thread_id: int) -> Snapshot:
        """Thread, memory and live kinds of work as this transaction sees them, without locks."""

    def find(self, resource_id: str | None, external_id: str) -> Snapshot | None:
        """The same by the caller's ids; AmbiguousThreadError without a resource where several have the thread."""


class Messages(Protocol):
    """Message rows, by seq."""

    def between(self, thread_id: int, after_seq: int, to_seq: int | None, *, limit: int) -> tuple[StoredMessage, ...]:
        """Live and removed rows with `after_seq < seq <= to_seq`, ascending."""

    def shown(self, thread_id: int, *, after_seq: int, also: Sequence[int]) -> tuple[StoredMessage, ...]:
        """Live rows above `after_seq`, and those named, ascending."""

    def at(self, thread_id: int, seqs: Iterable[int]) -> tuple[StoredMessage, ...]: ...

    def find_run(self, thread_id: int, fingerprints: Sequence[bytes]) -> int | None:
        """The seq after the newest stored run of live rows equal to these, or None."""

    def oldest_stored_at(self, thread_id: int, after_seq: int) -> datetime | None:
        """When the first row above `after_seq` was stored."""

    def page(
        self, thread_id: int, *, after_seq: int | None, before_seq: int | None, limit: int
    ) -> tuple[StoredMessage, ...]: ...


class Chunks(Protocol):
    """Chunk rows."""

    def add(self, chunk: NewChunk) -> None: ...

    def buffered(self, thread_id: int) -> tuple[Chunk, ...]:
        """Chunks that wait for activation, in order of their range."""

    def activate(self, chunk_ids: Sequence[int], first_position: int) -> None: ...

    def log(self, memory_id: int, after_position: int) -> tuple[Chunk, ...]:
        """Active chunks above a position, in order of position."""

    def log_tokens(self, memory_id: int, after_position: int) -> int:
        """Tokens of the active chunks above a position."""

    def newest_notes(self, memory_id: int, thread_id: int, max_tokens: int) -> tuple[Chunk, ...]:
        """The newest chunks with notes, active or buffered, that fit `max_tokens`, oldest first."""

    def stale_seqs(self, thread_id: int) -> tuple[int, ...]:
        """Seqs below the cursor whose notes are gone, until they are made again."""

    def any_stale(self, memory_id: int, after_position: int, through_position: int) -> bool:
        """Whether notes of these positions are gone and not made again yet."""

    def get(self, chunk_id: int) -> Chunk | None: ...

    def over(self, thread_id: int, from_seq: int) -> int | None:
        """The chunk whose range starts there, also one that this transaction has just added."""

    def set_extracted(self, chunk_id: int, values: JsonObject, shown: Sequence[int]) -> None:
        """Store the values of a chunk, and the chunks whose values it was shown for them."""

    def rewrite(self, chunk_id: int, new: NewChunk) -> bool:
        """Replace the text of a stale or parked chunk in place; False when it is neither."""

    def page(self, thread_id: int, *, state: str, cursor: str | None, limit: int) -> Page[Chunk]: ...


class Jobs(Protocol):
    """Job rows of one tenant."""

    def insert(self, jobs: Sequence[NewJob]) -> tuple[JobRef, ...]:
        """Insert those whose target has no live job of the kind."""

    def insert_discarded(self, job: NewJob, error: JsonObject) -> int:
        """Store a job that is given up from the start, to be redriven by a person."""

    def get(self, job_id: int) -> Job | None: ...

    def fix_input(self, job: Job, *, from_seq: int | None, to_seq: int | None, input: JsonObject) -> bool:
        """Store the range and prior notes chosen at the first claim, under the fence."""

    def save_partial(self, job: Job, partial: Sequence[JsonObject]) -> bool:
        """Store finished model calls under the fence, and count what the newest cost; False: the lease was lost."""

    def finish(self, job: Job, result: FinishedJob) -> bool:
        """End this attempt under the fence; False: someone else won, and nothing was written."""

    def lock_expired(self, job_id: int) -> Job | None:
        """Lock a running job whose lease has expired; None when it was renewed, ended, or is being taken over."""

    def await_observe(self, thread_id: int) -> JobRef | None:
        """Raise the thread's live observe job to the queue of those that are waited for."""

    def live(self, thread_id: int, kind: JobKind) -> JobRef | None: ...

    def older_live(self, job: Job) -> bool:
        """Whether an older job of the same kind for the same thread is not done yet."""

    def rebuilds(self, memory_id: int) -> bool:
        """Whether notes of a memory are being made again."""

    def running(self) -> int:
        """How many jobs of the tenant are held by workers that are alive."""

    def ask(self, job_id: int, guidance: str | None) -> None:
        """A live job is now asked for by hand, with a person's guidance if there is any."""

    def retry(self, job_id: int) -> JobRef | None:
        """Discarded -> available; None when it is not discarded or a live one took its place."""

    def cancel(self, job_id: int) -> bool: ...

    def page(
        self,
        *,
        state: str | None,
        kind: str | None,
        thread_id: int | None,
        cursor: str | None,
        limit: int,
        resource_id: str | None = None,
    ) -> Page[Job]: ...


class Transaction(Protocol):
    """A transaction of one tenant; commits at the end of its `with` block, rolls back on any exception."""

    tenant_id: str

    @property
    def threads(self) -> Threads: ...

    @property
    def memories(self) -> Memories: ...

    @property
    def messages(self) -> Messages: ...

    @property
    def chunks(self) -> Chunks: ...

    @property
    def reflections(self) -> Reflections: ...

    @property
    def jobs(self) -> Jobs: ...

    @property
    def events(self) -> Events: ...

    @property
    def keys(self) -> Keys: ...

    @property
    def webhooks(self) -> Webhooks: ...

    @property
    def removal(self) -> Removals: ...

    @property
    def copies(self) -> Copies: ...

    @property
    def deletions(self) -> Deletions: ...

    @property
    def working_memory(self) -> WorkingMemories: ...

    @property
    def extractions(self) -> Extractions: ...

    def now(self) -> datetime:
        """The database's clock."""

    def kept(self, thread: ThreadState, memory: MemoryState, *, others: int = 0) -> Kept:
        """The active reflection, working memory, extracted values, and the newest of so many other threads of a shared
        memory, in one statement.
        """

    def book_usage(self, thread: ThreadState, kind: str, model: str, result: FinishedJob) -> None:
        """Add to the day's usage."""

    def usage(self, query: UsageQuery) -> Page[UsageRow]:
        """What model calls took, summed; ordered by what it is summed by.

        Raises:
            InvalidInputError: the cursor is of another list.
        """

    def budgets(
        self, thread: ThreadState, kind: JobKind, models: tuple[str, ...], limits: ClaimLimits
    ) -> tuple[BudgetRow, ...]:
        """Today's budgets of a thread, against what its next job of this kind would take."""

    def prune_jobs(self, days: int, *, limit: int) -> int:
        """Delete jobs that finished longer ago and cannot be redriven, among the oldest; how many."""

    def prune_events(self, days: int, *, limit: int) -> int:
        """Delete events written longer ago, among the oldest; how many."""


class SystemStore(Protocol):
    """Finding work and holding leases, across tenants; reads no content (DESIGN 3.2)."""

    def claim(
        self,
        *,
        queue: str,
        owner: str,
        lease_s: float,
        job_id: int | None = None,
        limits: ClaimLimits | None = None,
    ) -> ClaimedJob | None:
        """Claim the job named, if it is due and its tenant holds few leases, else the best due job of the queue:
        waited for, then the tenant with fewest leases, then age. Raises its attempt and reserves its budget.

        What a breaker or a budget refuses is put off, and the next best is tried.
        """

    def breaker_gate(self, model: str, job: Job) -> float | None:
        """Seconds until the model may be asked again; None: this attempt may ask it now, perhaps as the probe."""

    def breaker_failed(self, model: str, job: Job, policy: JobPolicy, *, after_s: float | None) -> str:
        """Count an outage of the model; the breaker's state after it."""

    def breaker_worked(self, model: str) -> bool:
        """The model answered: close its breaker; whether there was anything to forget."""

    def breakers(self) -> tuple[BreakerRow, ...]:
        """The breakers of models that ever failed."""

    def renew(self, held: Mapping[int, int], *, owner: str, lease_s: float) -> frozenset[int]:
        """Renew leases of {job id: attempt}; the ids that are lost (another owner or attempt)."""

    def ring_due(self, queues: Sequence[str], *, limit: int) -> tuple[JobRef, ...]:
        """Due jobs of these queues that were not rung lately; marks them rung, with growing pauses."""

    def expired(self, *, limit: int) -> tuple[tuple[str, int], ...]:
        """(tenant, job id) of running jobs whose lease expired."""

    def idle_threads(self, *, limit: int) -> tuple[tuple[str, int], ...]:
        """(tenant, thread id) of threads whose `idle_due_at` has come; pushes it forward so that no two sweeps meet."""

    def unattended(self, after: tuple[str, int], *, limit: int) -> tuple[tuple[str, int], ...]:
        """(tenant, thread id) above `after`, in order, of threads with unread messages and nobody to come for them:
        no live observe job, or no time set at which the sweep looks.
        """

    def key(self, digest: bytes) -> FoundKey | None:
        """Whose key has this hash, if it is neither revoked nor expired."""

    def key_id(self, digest: bytes) -> int | None:
        """The id of the key with this hash, if it is not revoked."""

    def key_hash(self, key_id: int) -> bytes | None:
        """The hash of a key, whatever its state."""

    def tenants(self, after: str, *, limit: int) -> tuple[str, ...]:
        """Tenants that have threads, in order, above one."""

    def job_states(self, job_ids: Sequence[int]) -> dict[int, str]: ...

    def news(self, position: str | None) -> News:
        """Who has events settled after a position; None: nobody yet, only where to begin."""

    def due_webhooks(self, *, lease_s: float, limit: int) -> tuple[tuple[str, int], ...]:
        """(tenant, id) of webhooks that have something to send; each is this caller's for `lease_s` seconds."""

    def heartbeat(self, *, name: str, queues: Sequence[str], slots: int, running: int, version: str) -> None: ...

    def forget_worker(self, name: str) -> None: ...

    def workers(self, *, max_age_s: float) -> tuple[WorkerRow, ...]: ...

    def gauges(self) -> SystemGauges:
        """Queue depths and ages, by one bounded statement."""


class Store(Protocol):
    """The database."""

    @property
    def system(self) -> SystemStore: ...

    def within(self, reach: Reach) -> Store:
        """The same database for a caller who reaches less: other threads, jobs, events and documents are not found, and
        a reader's `transaction` raises ForbiddenError.
        """

    def transaction(self, tenant_id: str) -> AbstractContextManager[Transaction]:
        """Read and write as this tenant."""

    def reading(self, tenant_id: str) -> AbstractContextManager[Transaction]:
        """One consistent read (repeatable read, read only)."""

    def as_outage(self, error: BaseException) -> DatabaseOutageError | None:
        """An error of the database itself, as one to wait out; None: it has another cause."""

    def close(self) -> None: ...
