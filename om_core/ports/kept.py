"""Storage of what is kept beside chunks and messages: generations, working memory, extracted values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from om_core.domain.chunk import Reflection, ReflectionState
    from om_core.domain.extraction import Extraction
    from om_core.domain.generations import SourceRange
    from om_core.domain.message import JsonObject
    from om_core.domain.working_memory import WorkingMemory
    from om_core.ports.records import NewReflection, Page


class Reflections(Protocol):
    """Generations of a memory."""

    def add(self, reflection: NewReflection) -> None: ...

    def get(self, memory_id: int, generation: int) -> Reflection | None: ...

    def last_generation(self, memory_id: int) -> int: ...

    def set_extracted(self, memory_id: int, generation: int, values: JsonObject) -> None: ...

    def set_state(self, memory_id: int, generation: int, state: ReflectionState) -> None: ...

    def page(self, memory_id: int, *, cursor: str | None, limit: int) -> Page[Reflection]: ...

    def sources(self, memory_id: int, after_position: int, through_position: int) -> tuple[SourceRange, ...]:
        """What the chunks at these positions cover: one range per thread, by the first position of each."""


class WorkingMemories(Protocol):
    """Versions of the documents that are always shown."""

    def latest(self, scope: str, scope_key: str) -> WorkingMemory | None:
        """The newest version: `thread` with the thread's number, `resource` with the caller's id."""

    def add(self, new: WorkingMemory) -> bool:
        """Add the next version, and forget the oldest; False: somebody else added it first."""


class Extractions(Protocol):
    """The newest value and failure of each extractor of a memory."""

    def put(self, memory_id: int, new: Extraction) -> None:
        """Keep a value, or with `error` the failure beside the value before; a newer range's stays."""
