"""One generation of a log, against another one, with the messages that stand behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.errors import NotFoundError
from om_core.domain.generations import line_diff
from om_core.services.context import find_snapshot
from om_core.services.views import reflection_view

if TYPE_CHECKING:
    from om_core.domain.chunk import Reflection
    from om_core.domain.generations import SourceRange
    from om_core.domain.message import JsonObject
    from om_core.ports import Transaction
    from om_core.services.deps import Services


def generation(
    services: Services, tenant: str, thread: str, resource: str | None, number: int, *, against: int | None = None
) -> JsonObject:
    """A generation with its text, the ranges of messages whose notes it condenses (`sources`, of which its base lacks
    `new_sources`), and the lines that differ from another generation.

    Args:
        services: the adapters.
        tenant: whose.
        thread: a thread of the memory.
        resource: its owner.
        number: the generation.
        against: the one to compare with; default its base. 0 is the empty text before the first.

    Raises:
        NotFoundError: the memory has no such generation.
    """
    with services.store.reading(tenant) as tx:
        memory = find_snapshot(tx, thread, resource).memory
        found = _get(tx, memory.id, number)
        base = _get(tx, memory.id, found.base_generation) if found.base_generation else None
        other = found.base_generation if against is None else against
        before = _get(tx, memory.id, other).text if other else ""
        after = base.through_position if base else 0
        sources = tx.reflections.sources(memory.id, 0, found.through_position)
        added = tx.reflections.sources(memory.id, after, found.through_position)
    return {
        **reflection_view(found),
        "sources": [_source_view(one) for one in sources],
        "new_sources": [_source_view(one) for one in added],
        "against": other,
        "diff": [{"op": line.op, "text": line.text} for line in line_diff(before, found.text)],
    }


def _get(tx: Transaction, memory_id: int, number: int) -> Reflection:
    found = tx.reflections.get(memory_id, number)
    if found is None:
        msg = f"no generation {number}; there are 1 to {tx.reflections.last_generation(memory_id)}"
        raise NotFoundError(msg)
    return found


def _source_view(source: SourceRange) -> JsonObject:
    return {
        "thread": source.thread,
        "from_seq": source.from_seq,
        "to_seq": source.to_seq,
        "chunks": source.chunks,
    }
