"""Jobs: kinds, queues, states and the legal transitions between states (DESIGN 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.message import JsonObject


class JobKind(StrEnum):
    """What a job does, and to what."""

    OBSERVE = "observe"  # per thread: the next range becomes a chunk
    REBUILD = "rebuild"  # per chunk: its text is made again, in place
    EXTRACT = "extract"  # per chunk or generation: values beside its notes
    REFLECT = "reflect"  # per memory: the log becomes a new generation
    INDEX = "index"  # per thread: notes become searchable


class Queue(StrEnum):
    """Celery queues; each can have its own workers."""

    OBSERVATION = "observation"  # somebody waits
    BUFFERING = "buffering"  # ahead of time
    REFLECTION = "reflection"
    INDEXING = "indexing"
    MAINTENANCE = "maintenance"


QUEUE_OF: Final = {
    JobKind.OBSERVE: Queue.BUFFERING,
    JobKind.REBUILD: Queue.OBSERVATION,
    JobKind.EXTRACT: Queue.OBSERVATION,
    JobKind.REFLECT: Queue.REFLECTION,
    JobKind.INDEX: Queue.INDEXING,
}


class JobState(StrEnum):
    """`available -> running -> completed`, with the side exits below."""

    AVAILABLE = "available"
    RUNNING = "running"
    RETRYABLE = "retryable"  # failed, due again at run_at
    COMPLETED = "completed"
    DISCARDED = "discarded"  # given up; can be redriven
    CANCELLED = "cancelled"  # removed by somebody
    SUPERSEDED = "superseded"  # its base changed under it


WORKER_SEEN_S: Final = 15.0
"""A worker seen this recently counts as there (DESIGN 6.4)."""

LIVE_STATES: Final = frozenset({JobState.AVAILABLE, JobState.RUNNING, JobState.RETRYABLE})
TRANSITIONS: Final = {
    JobState.AVAILABLE: frozenset({JobState.RUNNING, JobState.CANCELLED}),
    JobState.RUNNING: frozenset(
        {JobState.COMPLETED, JobState.RETRYABLE, JobState.DISCARDED, JobState.CANCELLED, JobState.SUPERSEDED}
    ),
    JobState.RETRYABLE: frozenset({JobState.AVAILABLE, JobState.RUNNING, JobState.CANCELLED}),
    JobState.COMPLETED: frozenset[JobState](),
    JobState.DISCARDED: frozenset({JobState.AVAILABLE}),
    JobState.CANCELLED: frozenset[JobState](),
    JobState.SUPERSEDED: frozenset[JobState](),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef:
    """What a ring carries: ids for people to read in Flower, never content."""

    id: int
    tenant_id: str
    kind: JobKind
    queue: Queue
    thread: str
    """The thread's external id (for a reflection in resource scope: the resource's)."""
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row of the queue. `attempt` is the fence: it rises at every claim, and every write names it."""

    id: int
    tenant_id: str
    kind: JobKind
    queue: Queue
    state: JobState
    memory_id: int
    thread_id: int | None
    thread: str = ""
    """The thread's external id, for people."""
    chunk_id: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    attempt: int = 0
    failures: int = 0
    expired_leases: int = 0
    reason: str = ""
    run_at: datetime | None = None
    awaited: bool = False
    lease_owner: str | None = None
    lease_expires_at: datetime | None = None
    policy: JsonObject = field(default_factory=dict)
    prompt_version: str = ""
    traceparent: str = ""
    """The span that made the job due, in W3C's form; empty without tracing."""
    input: JsonObject = field(default_factory=dict)
    """Chosen at the first claim and kept while `partial` is not empty: prior notes shown, base generation, through."""
    partial: list[JsonObject] = field(default_factory=list)
    """Finished model calls of this job, oldest first; a retry resumes after them."""
    error: JsonObject | None = None
    attempts: list[JsonObject] = field(default_factory=list)
    """The newest attempts that ended: number, outcome, tokens, cost, error."""
    models: tuple[str, ...] = ()
    """Which models it may call, in order."""
    reserved_tokens: int = 0
    reserved_usd: float = 0.0
    """What the running attempt may take of the day's budgets; 0 where none is set."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def cycle_id(self) -> str:
        """`cycleId` of this run's events."""
        return f"{self.id}-{self.attempt}"
