"""The state of a thread and of its memory: narrow rows that every decision reads (DESIGN 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from om_core.domain.chunk import Hints

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.job import JobKind
    from om_core.domain.message import JsonObject, OpenCall
    from om_core.domain.policy import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyActivation:
    """A step came after a long pause, or from another model: the prompt cache is lost, so chunks may move now, and a
    finished reflection may take effect, as far as the settings of each phase say so.

    Decided when the step is stored, against the state before it; carried out by the next activation.
    """

    reason: Literal["ttl", "provider_change"]
    last_activity_at: datetime | None = None
    previous_model: str | None = None
    chunks: bool = True
    reflection: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """One conversation. Ranges in the comments are of seq; counts are tokens as the actor sees them.

    `observed_seq <= buffered_seq <= head_seq`, and `cut_seq <= head_seq`.
    """

    id: int
    tenant_id: str
    external_id: str
    resource_id: str
    memory_id: int
    title: str | None = None
    title_seq: int | None = None
    """The newest seq the Observer had seen when it gave the title; None: the caller's own, which stays (pinned)."""
    metadata: JsonObject = field(default_factory=dict)
    timezone: str | None = None
    version: int = 0
    """Of title, metadata, zone and config: raised by their writers, compared by `PUT` (API 3)."""
    head_seq: int = 0
    buffered_seq: int = 0
    observed_seq: int = 0
    cut_seq: int = 0
    """The newest seq after which the Observer may cut: no call before it waits for a result that holds a cut."""
    pending_tokens: int = 0  # (observed_seq, head_seq]
    unbuffered_tokens: int = 0  # (buffered_seq, head_seq]
    held_tokens: int = 0  # (max(cut_seq, buffered_seq), head_seq]
    stale_tokens: int = 0  # raw messages at or below observed_seq whose chunk is stale
    open_calls: tuple[OpenCall, ...] = ()
    turn: int = 0
    turn_open: bool = False
    question_seq: int = 0
    """seq of the newest user message; 0 before the first."""
    last_model: str | None = None
    last_activity_at: datetime | None = None
    oldest_pending_at: datetime | None = None
    """When the oldest message above `buffered_seq` was stored; None when everything is buffered."""
    idle_due_at: datetime | None = None
    wait_latch_seq: int | None = None
    """`buffered_seq` at which a wait timed out or failed; no further wait until it moves (DESIGN 6.4)."""
    shown_from_seq: int = 0
    """Messages of (observed_seq, shown_from_seq) are left out of contexts by a trim; 0: none."""
    shown_position: int = 0
    """Notes of other threads above this position stand in the volatile tail, until this thread's prefix changes."""
    shown_version: int = 0
    """`log_version` of the memory at the last prefix change; another one is a prefix change."""
    pins: tuple[int, ...] = ()
    """seqs that stay raw until the next prefix change: at or below `observed_seq`, or the question of a stored trim."""
    hints: Hints = field(default_factory=Hints)
    early_activation: EarlyActivation | None = None
    prefix_version: int = 0
    prefix_reason: str | None = None
    """Why the stable part last changed, until a context that may write has reported it."""
    created_at: datetime | None = None

    @property
    def title_pinned(self) -> bool:
        """Whether the title is the caller's own, which the Observer never changes."""
        return self.title is not None and self.title_seq is None

    @property
    def cuttable_tokens(self) -> int:
        """Unbuffered tokens up to `cut_seq`: what an observe job could take now."""
        return max(0, self.unbuffered_tokens - self.held_tokens) if self.cut_seq > self.buffered_seq else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """What one scope key owns: the log's counters and its active generation."""

    id: int
    scope: Scope = "thread"
    scope_key: str = ""
    config: JsonObject = field(default_factory=dict)
    version: int = 0
    generation: int = 0
    """The active reflection; 0: none yet."""
    log_tokens: int = 0
    """The visible log: the active reflection and every active chunk after it."""
    base_tokens: int = 0
    """Of these, the active reflection's."""
    next_position: int = 1
    reflected_position: int = 0
    log_version: int = 0
    """Raised when what threads may be showing of the log becomes another text, rather than grows: a reflection takes
    effect, a shown chunk is rebuilt.
    """
    log_reason: str | None = None
    """Why it was raised last: each thread's next context gives it as the reason of its prefix change."""
    buffered_generation: int | None = None
    """A finished reflection that waits for the threshold."""
    repair_position: int | None = None
    """After a removal took reflections away: notes at or below it are left out of contexts until one replaces them."""
    stuck_log_tokens: int | None = None
    """Log size at which reflecting made no progress; wait for growth (DESIGN 6.8)."""
    discarded_version: int | None = None
    """`version` at which a reflection was given up; while it is the current one, nothing has changed since."""

    @property
    def shown_after(self) -> int:
        """The position after which a context shows chunks."""
        return max(self.reflected_position, self.repair_position or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What `decide` looks at: one thread, its memory, and which kinds of work are live for them already."""

    thread: ThreadState
    memory: MemoryState
    live_jobs: frozenset[JobKind] = frozenset()
    running_jobs: frozenset[JobKind] = frozenset()
    discarded_jobs: frozenset[JobKind] = frozenset()
    """Kinds given up on whose input has not changed since."""
    ready_tokens: tuple[int, ...] = ()
    """Tokens of the messages that each chunk ready for activation covers, oldest first; only in contexts."""
