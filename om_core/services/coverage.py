"""Coverage and the other invariants (DESIGN 2), read back from the database.

`check_coverage` reads one thread as it stands and audits it together with the context that an agent would get;
`examine` adds what is kept of its jobs, events and reflections. The rules are in `domain.invariants`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from om_core.domain.assemble import assemble
from om_core.domain.context import ContextInput
from om_core.domain.invariant_events import EventFact, JobFact
from om_core.domain.invariants import (
    Marks,
    Material,
    Violation,
    doubly_covered,
    miscounted,
    misplaced,
    uncovered,
    violations,
)
from om_core.domain.job import JobKind
from om_core.services.context import find_snapshot, raw_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from om_core.domain.chunk import Chunk
    from om_core.domain.job import Job
    from om_core.domain.message import StoredMessage
    from om_core.domain.thread import Snapshot
    from om_core.ports import EventRow, Transaction
    from om_core.services.deps import Services

PAGE = 1_000
MOST_EVENTS = 10_000
MOST_KEPT = 1_000
"""Events, jobs and generations looked at: the newest of them."""


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
        return audit(_read(tx, services, find_snapshot(tx, thread, resource)))


def examine(
    services: Services, tenant: str, thread_id: int, *, previous: Marks | None = None
) -> tuple[tuple[Violation, ...], Marks]:
    """Every invariant of one thread, from one consistent read, and the marks that the next look is to compare with.

    Raises:
        NotFoundError: no such thread.
    """
    with services.store.reading(tenant) as tx:
        snapshot = tx.memories.snapshot(thread_id)
        material = replace(_with_work(tx, services, _read(tx, services, snapshot)), previous=previous)
    return violations(material), Marks.of(snapshot)


def _with_work(tx: Transaction, services: Services, material: Material) -> Material:
    """The same with what is kept of jobs, events and reflections. Another thread of the memory may have caused them,
    so in resource scope jobs of reflections may be unknown; they are given the benefit of the doubt.
    """
    snapshot = material.snapshot
    thread, memory = snapshot.thread, snapshot.memory
    jobs = tx.jobs.page(state=None, kind=None, thread_id=thread.id, cursor=None, limit=MOST_KEPT).items
    events = tx.events.after(thread_id=thread.id, resource_id=None, last_id=None, limit=MOST_EVENTS)
    return replace(
        material,
        reflections=tx.reflections.page(memory.id, cursor=None, limit=MOST_KEPT).items,
        policy=services.policies.of(memory),
        now=tx.now(),
        jobs=tuple(map(_job_fact, jobs)),
        events=tuple(map(_fact, events)),
    )


def _job_fact(job: Job) -> JobFact:
    rebuilds = job.chunk_id if job.kind is JobKind.REBUILD else None
    return JobFact(id=job.id, state=job.state, attempt=job.attempt, rebuilds=rebuilds)


def _fact(event: EventRow) -> EventFact:
    return EventFact(
        type=event.type.removeprefix("data-om-"),
        cycle_id=str(event.payload.get("cycleId", "")),
        operation=str(event.payload.get("operationType", "")),
    )


def audit(material: Material) -> Coverage:
    """Compare the rows with what cursors, ranges and counters claim."""
    return Coverage(
        thread=material.snapshot.thread.external_id,
        messages=sum(not row.removed for row in material.messages),
        chunks=len(material.chunks),
        uncovered=uncovered(material),
        doubly_covered=doubly_covered(material),
        misfits=(*misplaced(material), *miscounted(material)),
    )


def _read(tx: Transaction, services: Services, snapshot: Snapshot) -> Material:
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
