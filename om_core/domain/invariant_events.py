"""No event without its change (DESIGN API 4): an event is written in the transaction of what it reports. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from om_core.domain.chunk import ChunkState, ReflectionState
from om_core.domain.job import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from om_core.domain.chunk import Chunk, Reflection


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFact:
    """What counts of one event: its type without `data-om-`, its cycle (`job-attempt`), what it was about."""

    type: str
    cycle_id: str
    operation: str = ""

    @property
    def job_id(self) -> int | None:
        """The job of its cycle; None where the cycle is not one of ours."""
        number = self.cycle_id.partition("-")[0]
        return int(number) if number.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFact:
    """What counts of one job: its state, and the attempt that reached it."""

    id: int
    state: JobState
    attempt: int
    rebuilds: int | None = None
    """The chunk whose notes it makes again."""

    @property
    def cycle_id(self) -> str:
        return f"{self.id}-{self.attempt}"


def unfounded_events(
    events: Sequence[EventFact], jobs: Sequence[JobFact], chunks: Sequence[Chunk], reflections: Sequence[Reflection]
) -> Iterator[str]:
    """Events whose change is not there. Jobs that were pruned are given the benefit of the doubt."""
    yield from _unfounded_ends(events, jobs)
    ends = Counter(event.cycle_id for event in events if event.type.endswith("-end"))
    if twice := sorted(cycle for cycle, count in ends.items() if count > 1):
        yield f"cycles {twice} ended more than once"
    yield from _unfounded_activations(events, chunks, reflections)


def _unfounded_ends(events: Sequence[EventFact], jobs: Sequence[JobFact]) -> Iterator[str]:
    """A cycle that ended well is the last attempt of a completed job."""
    known = {job.id: job for job in jobs}
    for event in events:
        job = known.get(event.job_id or 0)
        if job is None or not event.type.endswith("-end"):
            continue
        if job.state is not JobState.COMPLETED or job.cycle_id != event.cycle_id:
            yield f"{event.type} of cycle {event.cycle_id}, job {job.id} is {job.state} at attempt {job.attempt}"


def _unfounded_activations(
    events: Sequence[EventFact], chunks: Sequence[Chunk], reflections: Sequence[Reflection]
) -> Iterator[str]:
    """Every activation event has its active chunk or its reflection in effect, and every cycle is activated once.

    A rebuild gives a chunk another cycle, so events that match none may be as many as chunks that match none.
    """
    active = {chunk.cycle_id for chunk in chunks if chunk.state is ChunkState.ACTIVE}
    told = Counter(
        event.cycle_id for event in events if event.type == "activation" and event.operation == "observation"
    )
    if twice := sorted(cycle for cycle, count in told.items() if count > 1):
        yield f"cycles {twice} were activated more than once"
    if len(set(told) - active) > len(active - set(told)):
        yield f"activations of {sorted(set(told) - active)} have no active chunk"
    took_effect = {ReflectionState.ACTIVE, ReflectionState.SUPERSEDED, ReflectionState.ERASED}
    in_effect = {one.cycle_id for one in reflections if one.state in took_effect}
    reflected = {event.cycle_id for event in events if event.type == "activation" and event.operation == "reflection"}
    if unfounded := sorted(reflected - in_effect):
        yield f"activations of {unfounded} have no reflection in effect"
