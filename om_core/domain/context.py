"""What the actor's prompt is made of (DESIGN 2.5, 2.6, 6.2, 6.5); `om_core.domain.assemble` puts it together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.chunk import Chunk, Reflection
    from om_core.domain.message import JsonObject, Message, StoredMessage
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import MemoryState, ThreadState

SystemKind: TypeAlias = Literal["preamble", "reflection", "log"]
VolatileKind: TypeAlias = Literal[
    "current_task",
    "suggested_response",
    "ephemeral",
    "working_memory",
    "extracted",
    "other_notes",
    "other_threads",
    "date",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemBlock:
    """One text of the system prompt. A cacheable block is byte-identical until the next prefix change."""

    text: str
    kind: SystemKind
    cacheable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VolatileBlock:
    """One text of the tail after the newest message: what may differ from one context to the next."""

    text: str
    kind: VolatileKind
    name: str | None = None
    """Which of several: the scope of a working memory, the slug of an extracted value, another conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextInput:
    """One consistent read of the database. `messages` are, in order of seq: pins, raw messages of stale chunks, and
    everything above `observed_seq` (from `shown_from_seq` on, if a trim is stored, with the pins and the question).

    `chunks` are the active chunks after the active reflection, by position.
    """

    thread: ThreadState
    memory: MemoryState
    policy: MemoryPolicy
    reflection: Reflection | None
    chunks: tuple[Chunk, ...]
    messages: tuple[StoredMessage, ...]
    ephemeral: tuple[Message, ...] = ()
    max_tokens: int | None = None
    buffered_chunks: int = 0
    volatile: tuple[VolatileBlock, ...] = ()
    """Further blocks for the volatile tail, unwrapped: working memory, extracted values, other threads."""
    now: datetime | None = None
    """The client's own clock, if it gave one: today's date then stands in the volatile tail."""

    @property
    def log_changed(self) -> bool:
        """Whether the log became another text since the thread's last prefix change."""
        return self.thread.shown_version != self.memory.log_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Activated:
    """What an activation moved into the log."""

    reason: str
    chunks: int
    messages: int
    tokens: int
    observation_tokens: int
    cycle_ids: tuple[str, ...] = ()
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTokens:
    """Sizes in tokens: the log (with any reflection), the raw messages, and all of it with preamble and tail."""

    log: int
    messages: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A prompt, in parts. `messages` is the complete list of conversation messages: the stable part
    (`stable_messages` of them), messages still open, then the volatile tail.
    """

    system: tuple[SystemBlock, ...]
    messages: tuple[Message, ...]
    stable_messages: int
    volatile: tuple[VolatileBlock, ...]
    tokens: ContextTokens
    generation: int
    observed_seq: int
    head_seq: int
    prefix_hash: str
    prefix_changed: str | None = None
    activated: Activated | None = None
    trimmed: JsonObject | None = None
    over_budget: bool = False
    waited_s: float = 0.0
    message_seqs: tuple[int | None, ...] = field(default=())
    """seq of each message; None for markers, placeholders and the tail."""
    shown_from_seq: int = 0
    """The trim that this context applies, for the caller to store with `pins` when it rose; 0: none (DESIGN 6.5)."""
    pins: tuple[int, ...] = ()
    shown_position: int = 0
    """Up to where the stable part holds the log, for the caller to store with a prefix change (DESIGN 6.9)."""
    shown_version: int = 0
    """The memory's `log_version` that it was read at, to be stored with it."""
    volatile_messages: int = 0
    """How many of `messages`, at the end, are the volatile tail."""
