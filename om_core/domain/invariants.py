"""Invariants (DESIGN 2): what holds of every thread whatever was interleaved, cut off or done twice. Pure.

Each rule compares rows with what cursors, ranges, counters, jobs and events claim. The fuzz, property tests and the
scheduled audit use the same rules; a rule whose evidence was not read (None) is left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from om_core.domain.chunk import ChunkState, ReflectionState
from om_core.domain.cuts import holds_cut
from om_core.domain.invariant_events import EventFact, JobFact, unfounded_events
from om_core.domain.job import LIVE_STATES
from om_core.domain.message import Role
from om_core.domain.pairs import is_visible
from om_core.domain.thresholds import decide, next_wake
from om_core.domain.ttl import auto_ttl_s

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from om_core.domain.chunk import Chunk, Reflection
    from om_core.domain.message import StoredMessage
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import Snapshot, ThreadState

SHOWN = 5
"""How many seqs or ids a finding names."""


class Invariant(StrEnum):
    """The rules, each under the name by which a report counts it."""

    COVERAGE = "coverage"
    ORDER = "order"
    OVERLAP = "overlap"
    CURSORS = "cursors"
    COUNTERS = "counters"
    REFLECTION = "reflection"
    STRANDED = "stranded"
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class Violation:
    """One finding: the rule, and in words what contradicts it."""

    invariant: Invariant
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """An earlier look at a thread: what may only have risen since (DESIGN 2.3)."""

    head_seq: int
    buffered_seq: int
    observed_seq: int
    next_position: int
    reflected_position: int
    memory_version: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Marks:
        """The marks of a thread and its memory as they stand."""
        thread, memory = snapshot.thread, snapshot.memory
        return cls(
            head_seq=thread.head_seq,
            buffered_seq=thread.buffered_seq,
            observed_seq=thread.observed_seq,
            next_position=memory.next_position,
            reflected_position=memory.reflected_position,
            memory_version=memory.version,
        )


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
    reflections: tuple[Reflection, ...] | None = None
    """The newest generations of the memory."""
    policy: MemoryPolicy | None = None
    """With `now`: whether work is due for which nobody comes."""
    now: datetime | None = None
    jobs: tuple[JobFact, ...] | None = None
    """With `events`: the jobs of the thread that are still kept."""
    events: tuple[EventFact, ...] | None = None
    previous: Marks | None = None


def violations(material: Material) -> tuple[Violation, ...]:
    """Every finding, worst first."""
    return (
        *_coverage(material),
        *_overlap(material),
        *(Violation(Invariant.ORDER, text) for text in misplaced(material)),
        *(Violation(Invariant.CURSORS, text) for text in _fallen(material)),
        *(Violation(Invariant.COUNTERS, text) for text in miscounted(material)),
        *(Violation(Invariant.REFLECTION, text) for text in unreflected(material)),
        *(Violation(Invariant.STRANDED, text) for text in _stranded(material)),
        *(Violation(Invariant.EVENTS, text) for text in _unfounded(material)),
    )


def _coverage(material: Material) -> Iterator[Violation]:
    if lost := uncovered(material):
        yield Violation(Invariant.COVERAGE, f"{len(lost)} messages neither raw nor in a chunk: {_some(lost)}")
    thread = material.snapshot.thread
    open_below = {call.seq for call in thread.open_calls if call.seq <= thread.observed_seq}
    if unpinned := open_below - set(thread.pins):
        yield Violation(Invariant.COVERAGE, f"calls are open in messages {_some(unpinned)}, and these are not pinned")


def _overlap(material: Material) -> Iterator[Violation]:
    if twice := doubly_covered(material):
        yield Violation(Invariant.OVERLAP, f"{len(twice)} messages in more than one chunk: {_some(twice)}")


def _some(seqs: Collection[int]) -> str:
    return f"{sorted(seqs)[:SHOWN]}{' …' if len(seqs) > SHOWN else ''}"


def _times(material: Material) -> Counter[int]:
    return Counter(seq for chunk in material.chunks for seq in range(chunk.from_seq, chunk.to_seq + 1))


def uncovered(material: Material) -> tuple[int, ...]:
    """Live messages without a chunk at or below the cursors, and those above `observed_seq` that no context shows."""
    thread, times = material.snapshot.thread, _times(material)
    # What the cap leaves out is the one named exception (DESIGN 6.5): it is observed later.
    raw_from = max(thread.observed_seq + 1, material.shown_from_seq)

    def lost(row: StoredMessage) -> bool:
        unseen = row.seq >= raw_from and _is_rendered(row) and row.seq not in material.shown
        return unseen or (row.seq <= thread.buffered_seq and row.seq not in times)

    return tuple(row.seq for row in material.messages if not row.removed and lost(row))


def doubly_covered(material: Material) -> tuple[int, ...]:
    """Messages in more than one chunk."""
    return tuple(sorted(seq for seq, count in _times(material).items() if count > 1))


def _is_rendered(row: StoredMessage) -> bool:
    """Whether a context shows the row at all (DESIGN 6.11)."""
    return row.role is not Role.SYSTEM and any(is_visible(part) for part in row.parts)


def misplaced(material: Material) -> Iterator[str]:
    """Rows and chunks that contradict the cursors, or stand in another order than their positions say."""
    thread = material.snapshot.thread
    seqs = {row.seq for row in material.messages}
    if missing := thread.head_seq - len(seqs & set(range(1, thread.head_seq + 1))):
        yield f"{missing} of {thread.head_seq} rows are missing"
    if beyond := [seq for seq in seqs if seq > thread.head_seq]:
        yield f"rows above head_seq {thread.head_seq}: {_some(beyond)}"
    for chunk in material.chunks:
        active = chunk.state is ChunkState.ACTIVE
        if chunk.to_seq > thread.buffered_seq:
            yield f"chunk {chunk.id} ends at {chunk.to_seq}, above buffered_seq {thread.buffered_seq}"
        if active != (chunk.to_seq <= thread.observed_seq):
            yield f"chunk {chunk.id} ({chunk.state}) ends at {chunk.to_seq}, observed_seq is {thread.observed_seq}"
    yield from _mispositioned(material)


def _mispositioned(material: Material) -> Iterator[str]:
    """Positions follow seq within a thread, each is given once, and none has yet to be given (DESIGN 3.1)."""
    following = material.snapshot.memory.next_position
    positions = [
        chunk.position
        for chunk in sorted(material.chunks, key=lambda chunk: chunk.from_seq)
        if chunk.position is not None
    ]
    if any(first >= second for first, second in pairwise(positions)):
        yield f"positions do not follow the messages: {positions}"
    if above := [position for position in positions if position >= following]:
        yield f"positions {_some(above)} are given, next_position is {following}"


def _fallen(material: Material) -> Iterator[str]:
    """Cursors in their order, and none below where it was seen before."""
    thread = material.snapshot.thread
    if not 0 <= thread.observed_seq <= thread.buffered_seq <= thread.head_seq:
        yield f"observed_seq {thread.observed_seq}, buffered_seq {thread.buffered_seq}, head_seq {thread.head_seq}"
    before = material.previous
    if before is None:
        return
    current = Marks.of(material.snapshot)
    for name in Marks.__slots__:
        old, new = getattr(before, name), getattr(current, name)
        if new < old and name != "reflected_position":  # a removal or a restore takes that one back
            yield f"{name} was {old}, is {new}"


def miscounted(material: Material) -> Iterator[str]:
    """Counters that differ from what they count."""
    thread, memory = material.snapshot.thread, material.snapshot.memory
    log = sum(chunk.tokens for chunk in material.log)
    base = material.reflection.tokens if material.reflection else 0
    expected = (
        ("pending_tokens", thread.pending_tokens, _tokens_above(material, thread.observed_seq)),
        ("unbuffered_tokens", thread.unbuffered_tokens, _tokens_above(material, thread.buffered_seq)),
        ("held_tokens", thread.held_tokens, _tokens_above(material, max(thread.cut_seq, thread.buffered_seq))),
        ("log_tokens", memory.log_tokens, base + log),
        ("base_tokens", memory.base_tokens, base),
        ("stale_tokens", thread.stale_tokens, _stale_tokens(material)),
    )
    for name, stored, counted in expected:
        if stored != counted:
            yield f"{name} is {stored}, counted {counted}"
    yield from _missized(material)


def _missized(material: Material) -> Iterator[str]:
    """Chunks whose range holds another number of tokens than an activation would move."""
    live = {row.seq: row.tokens for row in material.messages if not row.removed}
    for chunk in material.chunks:
        seqs = range(chunk.from_seq, chunk.to_seq + 1)
        counted = sum(live.get(seq, 0) for seq in seqs)
        emptied = chunk.state is ChunkState.ACTIVE and any(seq not in live for seq in seqs)  # by a removal, afterwards
        if chunk.message_tokens != counted and not emptied:
            yield f"chunk {chunk.id} covers {chunk.message_tokens} tokens, counted {counted}"


def _stale_tokens(material: Material) -> int:
    stale = {
        seq
        for chunk in material.chunks
        if chunk.stale and chunk.state is ChunkState.ACTIVE
        for seq in range(chunk.from_seq, chunk.to_seq + 1)
    }
    return sum(row.tokens for row in material.messages if row.seq in stale)


def _tokens_above(material: Material, seq: int) -> int:
    return sum(row.tokens for row in material.messages if row.seq > seq and not row.removed)


def unreflected(material: Material) -> Iterator[str]:
    """One active reflection, the one that the memory names; one that waits, based on it."""
    memory, kept = material.snapshot.memory, material.reflections
    if kept is None:
        return
    active = [one.generation for one in kept if one.state is ReflectionState.ACTIVE]
    if active != ([memory.generation] if memory.generation else []):
        yield f"active reflections {active}, the memory's generation is {memory.generation}"
    base = next((one for one in kept if one.generation == memory.generation), None)
    if (base.through_position if base else 0) != memory.reflected_position:
        yield f"reflected_position is {memory.reflected_position}, generation {memory.generation} says otherwise"
    waiting = [one.generation for one in kept if one.state is ReflectionState.BUFFERED]
    if waiting != ([memory.buffered_generation] if memory.buffered_generation else []):
        yield f"waiting reflections {waiting}, the memory names {memory.buffered_generation}"
    if any(one.base_generation != memory.generation for one in kept if one.generation in waiting):
        yield f"reflection {waiting} waits upon another base than generation {memory.generation}"


def _stranded(material: Material) -> Iterator[str]:
    """Work that is due, without a live job or a reason; and an end of thread that nothing will come back to."""
    yield from _abandoned(material)
    policy, now = material.policy, material.now
    if policy is None or now is None:
        return
    thread = material.snapshot.thread
    for action in decide(material.snapshot, policy, now).actions:
        if action.reason == "age" and thread.idle_due_at is not None:
            continue  # due by time alone: the sweep that comes decides it
        yield f"{action.kind} is due ({action.reason}), without a job"
    ttl = policy.observation.activate_after_idle_s
    wake = next_wake(thread, policy, auto_ttl_s(thread.last_model) if ttl == "auto" else ttl)
    if wake is not None and thread.idle_due_at is None:
        yield f"{thread.pending_tokens} tokens are pending, and no sweep will look"
    if thread.cut_seq < thread.head_seq and not _held(thread, policy, now):
        yield f"cut_seq is {thread.cut_seq} of {thread.head_seq}, and no open call holds it"


def _abandoned(material: Material) -> Iterator[str]:
    """Stale chunks whose notes nobody makes again: activation would stop before them for ever."""
    if material.jobs is None:
        return
    coming = {job.rebuilds for job in material.jobs if job.state in LIVE_STATES}
    if left := [chunk.id for chunk in material.chunks if chunk.stale and chunk.id not in coming]:
        yield f"chunks {_some(left)} are stale, without a job"


def _held(thread: ThreadState, policy: MemoryPolicy, now: datetime) -> bool:
    """Whether an open call holds the cut, or one that has grown old did: then the next sweep or step moves it."""
    limit = policy.observation.open_call_max_age_s
    aged = any(not holds_cut(call, question_seq=0, now=now, max_age_s=limit) for call in thread.open_calls)
    return aged or any(
        holds_cut(call, question_seq=thread.question_seq, now=now, max_age_s=limit) for call in thread.open_calls
    )


def _unfounded(material: Material) -> Iterator[str]:
    if material.events is not None and material.jobs is not None:
        yield from unfounded_events(material.events, material.jobs, material.chunks, material.reflections or ())
