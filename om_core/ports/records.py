"""Values that cross the storage port: what services hand in, and what they get back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from datetime import date, datetime

    from om_core.domain.chunk import ChunkKind, Hints, Reflection, ReflectionState
    from om_core.domain.extraction import Extraction
    from om_core.domain.job import Job, JobKind, JobState, Queue
    from om_core.domain.message import JsonObject, Message
    from om_core.domain.other_threads import OtherThread
    from om_core.domain.policy import Scope
    from om_core.domain.reach import Reach
    from om_core.domain.thread import MemoryState, Snapshot, ThreadState
    from om_core.domain.working_memory import WorkingMemory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list; `next_cursor` is opaque, None at the end."""

    items: tuple[T, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMessage:
    """A stored row that a request may be repeating."""

    seq: int
    client_id: str | None
    message: Message | None
    """None for a tombstone."""
    fingerprint: bytes | None = None


@dataclass(frozen=True, slots=True)
class TailRow:
    """What recognition by content needs of a stored row."""

    seq: int
    fingerprint: bytes
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedThread:
    """A locked thread with what one append needs to decide: everything read after the lock."""

    snapshot: Snapshot
    known: tuple[KnownMessage, ...]
    """Rows whose client id the request names; a message saved in several rows appears once per row, by seq."""
    tail: tuple[TailRow, ...]
    """The newest live rows, oldest first."""
    now: datetime

    @property
    def thread(self) -> ThreadState:
        return self.snapshot.thread

    @property
    def memory(self) -> MemoryState:
        return self.snapshot.memory


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThread:
    """A thread to create, with its memory if the scope's memory does not exist yet."""

    external_id: str
    resource_id: str
    scope: Scope
    title: str | None = None
    metadata: JsonObject = field(default_factory=dict)
    timezone: str | None = None
    config: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A row to append; seq is already assigned under the thread's lock."""

    seq: int
    message: Message
    tokens: int
    fingerprint: bytes
    created_at: datetime
    turn: int
    continues: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to insert unless one of its kind is live for its target."""

    kind: JobKind
    queue: Queue
    target: str
    thread: str
    memory_id: int
    thread_id: int | None
    reason: str
    policy: JsonObject
    prompt_version: str = ""
    chunk_id: int | None = None
    input: JsonObject = field(default_factory=dict)
    """What is chosen already: ids and numbers, no content."""
    traceparent: str = ""
    """The span that makes the job due."""
    models: tuple[str, ...] = ()
    """Which models it may call, in order: while all their breakers are open it is not claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event, written in the transaction of the change it reports. Payload in camelCase (API 4)."""

    type: str
    thread_id: int
    resource_id: str
    payload: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """A stored event. `id` is safe to resume from: it carries the writing transaction (API 4)."""

    id: str
    type: str
    thread_id: int
    payload: JsonObject
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Which targets have new events: (tenant, thread id, resource id), and the position up to which this was looked."""

    position: str
    targets: frozenset[tuple[str, int, str]]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChunk:
    """An Observer result to store over the range right after `buffered_seq`."""

    memory_id: int
    thread_id: int
    from_seq: int
    to_seq: int
    kind: ChunkKind
    text: str
    tokens: int
    message_tokens: int
    job_id: int | None
    attempt: int | None
    hints: Hints
    shown_chunks: tuple[int, ...] = ()
    shown_generation: int | None = None
    extracted: JsonObject = field(default_factory=dict)
    model: str | None = None
    prompt_version: str = ""
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReflection:
    """A generation to store."""

    memory_id: int
    generation: int
    base_generation: int
    through_position: int
    state: ReflectionState
    text: str
    tokens: int
    input_tokens: int
    job_id: int
    attempt: int
    level: int
    model: str
    prompt_version: str
    cost_usd: float | None
    extracted: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job whose lease this process holds; every write names `job.attempt`."""

    job: Job
    thread: str
    now: datetime
    capped: bool = False
    """Its tenant may not run more at once: others of it may be due, and their rings were in vain."""
    breakers: frozenset[str] = frozenset()
    """Models that failed lately; all others are known to work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLimits:
    """What a claim has to keep to: running jobs of one tenant, and what its scopes may use per day."""

    in_flight: int = 256
    favour: int = 4
    """From so many leases on, a ring no longer favours its own job over those of tenants that hold fewer."""
    budgets: tuple[tuple[str, str, float], ...] = ()
    """(scope, `tokens` or `usd`, limit)."""
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)
    """US dollars per input and per output token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRow:
    """A model's circuit breaker, shared by all workers: `closed`, `open` until a time, or `half_open`."""

    model: str
    state: str
    failures: int
    opened_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """One budget of a thread today (UTC): what was booked, what running jobs reserve, what its next job would take."""

    scope: str
    unit: str
    limit: float
    used: float
    reserved: float
    wanted: float

    @property
    def spent(self) -> bool:
        """Whether the next job has to wait. The first of a day always fits."""
        taken = self.used + self.reserved
        return taken > 0 and taken + self.wanted > self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """How an attempt ended. `run_at_s`: seconds until a retry; `failed`: whether it counts against the limit."""

    state: JobState
    error: JsonObject | None = None
    retry_after_s: float | None = None
    failed: bool = False
    narrowed_to: int | None = None
    """A smaller `to_seq` for the next attempts; their failures are counted anew."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    booked: bool = False
    """These costs were booked when each call was saved: they are remembered of the attempt, and not counted again."""
    outcome: str = "ok"
    drop_partial: bool = False
    """What is saved of this attempt is of no use: the next one starts anew."""
    policy: JsonObject | None = None
    """The policy under which the next attempt runs, if it is not the job's own."""
    models: tuple[str, ...] = ()
    """The models of that policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a memory keeps beside its chunks and messages."""

    reflection: Reflection | None
    """The active one."""
    working_memory: tuple[WorkingMemory, ...] = ()
    """The newest of the resource, then of the thread."""
    extractions: tuple[Extraction, ...] = ()
    others: tuple[OtherThread, ...] = ()
    """Other threads of the memory with something that is not in the log yet, most recently active first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """An API key as its tenant sees it; the key itself is nowhere stored."""

    id: int
    prefix: str
    name: str
    reach: Reach
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""


@dataclass(frozen=True, slots=True)
class FoundKey:
    """Whose key was presented, and what it is narrowed to."""

    id: int
    tenant_id: str
    reach: Reach


UsageBy: TypeAlias = Literal["day", "resource", "thread", "kind", "model"]
"""What usage is summed by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """Which usage, and by what it is summed; days are UTC, the last included."""

    by: tuple[UsageBy, ...]
    resource: str | None = None
    thread_id: int | None = None
    first_day: date | None = None
    last_day: date | None = None
    cursor: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """Sums of model calls. `group` has a value per name in `by`; a deleted thread is None."""

    group: dict[str, str | None]
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGauge:
    """Live jobs of one kind in one queue: due, waiting for their time, held by a worker."""

    queue: str
    kind: str
    due: int
    waiting: int
    running: int
    oldest_due_age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemGauges:
    """What metrics show of the database, across tenants. Counts stop at a bound, so that asking stays cheap."""

    queues: tuple[QueueGauge, ...]
    oldest_pending_age_s: float
    discarded: dict[str, int]
    """By kind."""
    workers: int
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker process and when it was last seen."""

    name: str
    queues: tuple[str, ...]
    slots: int
    running: int
    seen_at: datetime
    age_s: float
