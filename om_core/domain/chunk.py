"""Chunks and reflections: the two things a log is made of (DESIGN 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.message import JsonObject


class ChunkKind(StrEnum):
    """What the range became: notes, an extract in their place, or nothing worth a note."""

    OBSERVED = "observed"
    PARKED = "parked"
    EMPTY = "empty"


class ChunkState(StrEnum):
    """Buffered chunks wait, active ones are in the log (or below a reflection)."""

    BUFFERED = "buffered"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What the Observer thinks is going on, and the newest seq it had seen when it said so (DESIGN 6.6).

    None means "not asked or not said" and never erases what is known.
    """

    seen_seq: int = 0
    current_task: str | None = None
    suggested_response: str | None = None

    def merged_over(self, older: Hints) -> Hints:
        """These hints where they say something, `older` where they are silent."""
        return Hints(
            seen_seq=max(self.seen_seq, older.seen_seq) if self.is_empty else self.seen_seq,
            current_task=self.current_task or older.current_task,
            suggested_response=self.suggested_response,
        )

    @property
    def is_empty(self) -> bool:
        return self.current_task is None and self.suggested_response is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One Observer result over `from_seq..to_seq` of one thread; both ends included."""

    id: int
    thread_id: int
    thread: str = ""
    """The caller's id of the thread, where the log is read; else empty."""
    from_seq: int
    to_seq: int
    kind: ChunkKind
    state: ChunkState
    text: str
    tokens: int
    message_tokens: int
    stale: bool = False
    position: int | None = None
    hints: Hints = field(default_factory=Hints)
    extracted: JsonObject = field(default_factory=dict)
    """Values by slug, as this range gave them."""
    model: str | None = None
    cost_usd: float | None = None
    job_id: int | None = None
    attempt: int | None = None
    created_at: datetime | None = None
    activated_at: datetime | None = None

    @property
    def cycle_id(self) -> str:
        """The id under which events speak of this chunk: the job and attempt that wrote it (DESIGN 5)."""
        return f"{self.job_id}-{self.attempt}"


class ReflectionState(StrEnum):
    """`buffered -> active <-> superseded`, or `discarded`, or `erased`."""

    BUFFERED = "buffered"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    DISCARDED = "discarded"
    ERASED = "erased"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """One generation: the text that stands for every chunk with `position <= through_position`."""

    generation: int
    base_generation: int
    through_position: int
    text: str
    tokens: int
    state: ReflectionState
    input_tokens: int = 0
    extracted: JsonObject = field(default_factory=dict)
    """Values by slug, as the Reflector gave them."""
    model: str | None = None
    cost_usd: float | None = None
    job_id: int | None = None
    attempt: int | None = None
    created_at: datetime | None = None
    activated_at: datetime | None = None

    @property
    def cycle_id(self) -> str:
        return f"{self.job_id}-{self.attempt}"
