"""Coverage (DESIGN 2.1), read back from the database: every message is raw or covered by exactly one chunk.

`audit` compares rows with what they claim and knows no database, so each finding can be provoked in a test.
`check_coverage` reads one thread as it stands and audits it together with the context that an agent would get.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from om_core.domain.assemble import assemble
from om_core.domain.chunk import ChunkState
from om_core.domain.context import ContextInput
from om_core.domain.message import Role
from om_core.domain.pairs import is_visible
from om_core.services.context import find_snapshot, raw_messages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from om_core.domain.chunk import Chunk, Reflection
    from om_core.domain.message import StoredMessage
    from om_core.domain.thread import Snapshot, ThreadState
    from om_core.ports import Transaction
    from om_core.services.deps import Services

PAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One thread as the database holds it: rows by seq, its chunks, the log's chunks of its memory, and the seqs that
    a context shows raw (`shown_from_seq` is the trim that this context applies; 0: none).
    """

    snapshot: Snapshot
    messages: tuple[StoredMessage, ...]
    chunks: tuple[Chunk, ...]
    log: tuple[Chunk, ...]
    reflection: Reflection | None
    shown: frozenset[int]
    shown_from_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What an audit found, as seqs; `misfits` says in words what else does not agree. All empty: the promise holds."""

    thread: str
    messages: int
    chunks: int
    uncovered: tuple[int, ...] = ()
    """Neither in a chunk nor raw in the context."""
    doubly_covered: tuple[int, ...] = ()
    """In more than one chunk."""
    misfits: tuple[str, ...] = ()

    @property
    def uncovered_messages(self) -> int:
        """How many messages are lost from memory."""
        return len(self.uncovered)

    @property
    def doubly_covered_messages(self) -> int:
        """How many messages were observed twice."""
        return len(self.doubly_covered)

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not (self.uncovered or self.doubly_covered or self.misfits)


def check_coverage(services: Services, tenant: str, thread: str, resource: str | None = None) -> Coverage:
    """Audit one thread from one consistent read.

    Raises:
        NotFoundError, AmbiguousThreadError: no such thread, or several and no resource given.
    """
    with services.store.reading(tenant) as tx:
        return audit(_read(tx, services, thread, resource))


def audit(material: Material) -> Coverage:
    """Compare the rows with what cursors, ranges and counters claim."""
    thread = material.snapshot.thread
    times = Counter(seq for chunk in material.chunks for seq in range(chunk.from_seq, chunk.to_seq + 1))
    return Coverage(
        thread=thread.external_id,
        messages=sum(not row.removed for row in material.messages),
        chunks=len(material.chunks),
        uncovered=tuple(_uncovered(material, times)),
        doubly_covered=tuple(sorted(seq for seq, count in times.items() if count > 1)),
        misfits=(*_misplaced(material), *_miscounted(material)),
    )


def _uncovered(material: Material, times: Collection[int]) -> Iterator[int]:
    """Live messages without a chunk at or below the cursors, and those above `observed_seq` that no context shows."""
    thread = material.snapshot.thread
    # What the cap leaves out is the one named exception (DESIGN 6.5): it is observed later.
    raw_from = max(thread.observed_seq + 1, material.shown_from_seq)
    for row in material.messages:
        if row.removed:
            continue
        lost = row.seq <= thread.buffered_seq and row.seq not in times
        unseen = row.seq >= raw_from and _is_rendered(row) and row.seq not in material.shown
        if lost or unseen:
            yield row.seq


def _is_rendered(row: StoredMessage) -> bool:
    """Whether a context shows the row at all (DESIGN 6.11)."""
    return row.role is not Role.SYSTEM and any(is_visible(part) for part in row.parts)


def _misplaced(material: Material) -> Iterator[str]:
    """Rows and chunks that contradict the cursors."""
    thread = material.snapshot.thread
    seqs = {row.seq for row in material.messages}
    missing = thread.head_seq - len(seqs & set(range(1, thread.head_seq + 1)))
    if missing:
        yield f"{missing} of {thread.head_seq} rows are missing"
    if beyond := [seq for seq in seqs if seq > thread.head_seq]:
        yield f"rows above head_seq {thread.head_seq}: {sorted(beyond)[:5]}"
    for chunk in material.chunks:
        active = chunk.state is ChunkState.ACTIVE
        if chunk.to_seq > thread.buffered_seq:
            yield f"chunk {chunk.id} ends at {chunk.to_seq}, above buffered_seq {thread.buffered_seq}"
        if active != (chunk.to_seq <= thread.observed_seq):
            yield f"chunk {chunk.id} ({chunk.state}) ends at {chunk.to_seq}, observed_seq is {thread.observed_seq}"


def _miscounted(material: Material) -> Iterator[str]:
    """Counters that differ from what they count."""
    thread, memory = material.snapshot.thread, material.snapshot.memory
    log = sum(chunk.tokens for chunk in material.log)
    base = material.reflection.tokens if material.reflection else 0
    stale = {
        seq
        for chunk in material.chunks
        if chunk.stale and chunk.state is ChunkState.ACTIVE
        for seq in range(chunk.from_seq, chunk.to_seq + 1)
    }
    expected = (
        ("pending_tokens", thread.pending_tokens, _tokens_above(material, thread.observed_seq)),
        ("unbuffered_tokens", thread.unbuffered_tokens, _tokens_above(material, thread.buffered_seq)),
        ("held_tokens", thread.held_tokens, _tokens_above(material, _held_from(thread))),
        ("stale_tokens", thread.stale_tokens, sum(row.tokens for row in material.messages if row.seq in stale)),
        ("log_tokens", memory.log_tokens, base + log),
        ("base_tokens", memory.base_tokens, base),
    )
    for name, stored, counted in expected:
        if stored != counted:
            yield f"{name} is {stored}, counted {counted}"


def _held_from(thread: ThreadState) -> int:
    return max(thread.cut_seq, thread.buffered_seq)


def _tokens_above(material: Material, seq: int) -> int:
    return sum(row.tokens for row in material.messages if row.seq > seq and not row.removed)


def _read(tx: Transaction, services: Services, thread: str, resource: str | None) -> Material:
    snapshot = find_snapshot(tx, thread, resource)
    state, memory = snapshot.thread, snapshot.memory
    rows = tuple(_rows(tx, state.id))
    chunks = tuple(_chunks(tx, state.id))
    log = tx.chunks.log(memory.id, memory.reflected_position)
    reflection = tx.reflections.get(memory.id, memory.generation) if memory.generation else None
    context = assemble(
        ContextInput(
            thread=state,
            memory=memory,
            policy=services.policies.of(memory),
            reflection=reflection,
            chunks=log,
            messages=raw_messages(tx, snapshot),
        ),
        count=services.counter.count_text,
    )
    return Material(
        snapshot=snapshot,
        messages=rows,
        chunks=chunks,
        log=log,
        reflection=reflection,
        shown=frozenset(seq for seq in context.message_seqs if seq is not None),
        shown_from_seq=max(state.shown_from_seq, context.shown_from_seq),
    )


def _rows(tx: Transaction, thread_id: int) -> Iterator[StoredMessage]:
    after = 0
    while page := tx.messages.between(thread_id, after, None, limit=PAGE):
        yield from page
        after = page[-1].seq


def _chunks(tx: Transaction, thread_id: int) -> Sequence[Chunk]:
    found: list[Chunk] = []
    cursor: str | None = None
    while True:
        page = tx.chunks.page(thread_id, state="all", cursor=cursor, limit=PAGE)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
