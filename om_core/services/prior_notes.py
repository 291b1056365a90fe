"""Which earlier notes the Observer is shown: the newest within `previous_observer_tokens` (DESIGN 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from om_core.domain.thread import Snapshot
    from om_core.ports import Transaction
    from om_core.services.deps import Services


@dataclass(frozen=True, slots=True)
class PriorNotes:
    """Text for the prompt, and what it came from: deletion follows these ids (DESIGN 3.3)."""

    text: str
    chunk_ids: tuple[int, ...]
    generation: int | None


def prior_notes(
    tx: Transaction, services: Services, snapshot: Snapshot, *, most_tokens: int, only: list[int] | None = None
) -> PriorNotes:
    """Newest notes within the limit; `only` repeats an earlier choice, so that a retry shows the same."""
    if most_tokens == 0:
        return PriorNotes("", (), None)
    if only is not None:
        chunks = tuple(chunk for chunk in map(tx.chunks.get, only) if chunk is not None)
    else:
        chunks = tx.chunks.newest_notes(snapshot.memory.id, snapshot.thread.id, most_tokens)
    text = "\n".join(chunk.text for chunk in chunks)
    used = sum(chunk.tokens + 1 for chunk in chunks)
    generation = None
    memory = snapshot.memory
    if memory.generation and used < most_tokens:
        reflection = tx.reflections.get(memory.id, memory.generation)
        if reflection is not None:
            older = newest_lines(services, reflection.text, most_tokens - used)
            text = "\n".join(part for part in (older, text) if part)
            generation = memory.generation
    if used > most_tokens:
        text = newest_lines(services, text, most_tokens)
    return PriorNotes(text, tuple(chunk.id for chunk in chunks), generation)


def newest_lines(services: Services, text: str, max_tokens: int) -> str:
    """The last whole lines of a text that fit."""
    kept: list[str] = []
    left = max_tokens
    for line in reversed(text.splitlines()):
        left -= services.counter.count_text(line) + 1
        if left < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))
