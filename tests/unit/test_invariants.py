from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from om_core.domain.chunk import ChunkState, Reflection, ReflectionState
from om_core.domain.invariant_events import EventFact, JobFact
from om_core.domain.invariants import Marks, violations
from om_core.domain.job import JobKind, JobState
from om_core.domain.message import OpenCall
from om_core.options import resolve_policy
from tests.unit.test_coverage import NOW, chunk, sound, with_chunks, with_thread

POLICY = resolve_policy({"observation": {"message_tokens": 1000, "buffer_tokens": 30}})


def rules(material) -> set[str]:
    return {found.invariant.value for found in violations(material)}


def working(material=None, **thread):
    """Sound material whose jobs and wake are known as well: an observe job is live, and a sweep will look."""
    material = material or sound()
    state = replace(material.snapshot.thread, **{"cut_seq": 10, "held_tokens": 0, "idle_due_at": NOW, **thread})
    snapshot = replace(material.snapshot, thread=state, live_jobs=frozenset({JobKind.OBSERVE}))
    return replace(material, snapshot=snapshot, policy=POLICY, now=NOW)


def with_snapshot(material, **changes):
    return replace(material, snapshot=replace(material.snapshot, **changes))


def reflection(generation: int, state: ReflectionState, base: int = 0, through: int = 0) -> Reflection:
    return Reflection(
        generation=generation,
        base_generation=base,
        through_position=through,
        text="kept",
        tokens=0,
        state=state,
        job_id=90 + generation,
        attempt=1,
    )


def with_memory(material, **changes):
    return with_snapshot(material, memory=replace(material.snapshot.memory, **changes))


def test_sound_material_violates_nothing():
    assert violations(working()) == ()


@pytest.mark.parametrize(
    ("material", "rule"),
    [
        (with_chunks(chunk(1, 1, 2, 1), chunk(3, 5, 6)), "coverage"),
        (sound(shown=frozenset(range(6, 11))), "coverage"),
        (with_chunks(chunk(1, 1, 3, 1), chunk(2, 3, 4, 2), chunk(3, 5, 6)), "overlap"),
        (with_chunks(chunk(1, 1, 2, 2), chunk(2, 3, 4, 1), chunk(3, 5, 6)), "order"),
        (with_chunks(chunk(1, 1, 2, 1), chunk(2, 3, 4, 7), chunk(3, 5, 6)), "order"),
        (sound(messages=sound().messages[1:]), "order"),
        (with_thread(buffered_seq=11), "cursors"),
        (with_thread(pending_tokens=61), "counters"),
        (with_chunks(chunk(1, 1, 2, 1), chunk(2, 3, 4, 2), chunk(3, 5, 6, message_tokens=19)), "counters"),
    ],
)
def test_each_rule_of_rows_and_cursors_is_found_broken_under_its_name(material, rule):
    assert rule in rules(material)


@pytest.mark.parametrize(
    "fell",
    [{"head_seq": 11}, {"buffered_seq": 7}, {"observed_seq": 5}, {"next_position": 4}, {"memory_version": 1}],
    ids=str,
)
def test_a_cursor_below_where_it_was_seen_before_has_fallen(fell):
    before = replace(Marks.of(sound().snapshot), **fell)

    found = violations(sound(previous=before))

    assert [(one.invariant.value, one.detail.split()[0]) for one in found] == [("cursors", next(iter(fell)))]


def test_a_cursor_that_rose_or_stayed_is_no_finding():
    assert violations(sound(previous=Marks.of(with_thread(head_seq=9, observed_seq=2).snapshot))) == ()


ACTIVE, BUFFERED, SUPERSEDED = ReflectionState.ACTIVE, ReflectionState.BUFFERED, ReflectionState.SUPERSEDED


@pytest.mark.parametrize(
    ("kept", "memory"),
    [
        ((reflection(1, ACTIVE), reflection(2, ACTIVE)), {"generation": 2}),
        ((reflection(1, SUPERSEDED),), {"generation": 1}),
        ((reflection(1, ACTIVE),), {}),
        ((reflection(1, ACTIVE, through=2),), {"generation": 1, "reflected_position": 1}),
        ((reflection(1, BUFFERED),), {}),
        ((), {"buffered_generation": 1}),
        ((reflection(1, ACTIVE), reflection(2, BUFFERED)), {"generation": 1, "buffered_generation": 2}),
    ],
)
def test_reflections_that_disagree_with_their_memory_are_found(kept, memory):
    found = rules(with_memory(sound(reflections=kept), **memory))

    assert "reflection" in found


def test_one_active_reflection_and_one_that_waits_upon_it_are_sound():
    kept = (reflection(2, BUFFERED, base=1), reflection(1, ACTIVE))

    assert rules(with_memory(sound(reflections=kept), generation=1, buffered_generation=2)) == set()


def test_work_that_is_due_without_a_job_is_stranded():
    assert rules(with_snapshot(working(), live_jobs=frozenset())) == {"stranded"}


def test_a_tail_that_no_sweep_will_look_at_is_stranded():
    waiting = {"last_activity_at": NOW, "oldest_pending_at": NOW}

    assert rules(working(idle_due_at=None, **waiting)) == {"stranded"}


def test_work_that_only_time_made_due_may_wait_for_the_sweep_that_will_come():
    small = {"unbuffered_tokens": 20, "pending_tokens": 40, "oldest_pending_at": NOW - timedelta(hours=2)}
    due = with_snapshot(working(**small), live_jobs=frozenset())

    assert "stranded" not in rules(due)
    assert "stranded" in rules(with_snapshot(working(**small, idle_due_at=None), live_jobs=frozenset()))


def test_a_cut_that_nothing_holds_is_stranded():
    assert rules(working(cut_seq=8, held_tokens=20)) == {"stranded"}


@pytest.mark.parametrize("age", [timedelta(0), timedelta(hours=2)])
def test_a_cut_that_an_open_call_holds_or_held_is_not_stranded(age):
    call = OpenCall(call_id="c", seq=9, name="look", at=NOW - age)

    assert rules(working(cut_seq=8, held_tokens=20, open_calls=(call,), question_seq=9)) == set()


def test_a_call_that_is_open_below_the_cursor_is_pinned():
    call = OpenCall(call_id="c", seq=3, name="look", at=NOW)

    assert rules(with_thread(open_calls=(call,))) == {"coverage"}
    assert rules(with_thread(open_calls=(call,), pins=(3,))) == set()


def told(*events: EventFact, jobs: tuple[JobFact, ...] = ()):
    made = {1: 11, 2: 12, 3: 13}
    chunks = tuple(replace(one, job_id=made[one.id], attempt=1) for one in sound().chunks)
    return sound(chunks=chunks, jobs=jobs, events=events, reflections=())


DONE = JobFact(id=13, state=JobState.COMPLETED, attempt=2)
LEFT = JobFact(id=13, state=JobState.SUPERSEDED, attempt=2)


@pytest.mark.parametrize(
    "material",
    [
        told(EventFact(type="buffering-end", cycle_id="13-1"), jobs=(DONE,)),
        told(EventFact(type="observation-end", cycle_id="13-2"), jobs=(LEFT,)),
        told(EventFact(type="buffering-end", cycle_id="13-2"), EventFact(type="buffering-end", cycle_id="13-2")),
        told(*[EventFact(type="activation", cycle_id="11-1", operation="observation")] * 2),
        told(*[EventFact(type="activation", cycle_id=f"{n}-1", operation="observation") for n in (11, 12, 13)]),
        told(EventFact(type="activation", cycle_id="91-1", operation="reflection")),
    ],
)
def test_an_event_without_its_change_is_found(material):
    assert rules(material) == {"events"}


def test_events_with_their_changes_and_those_of_pruned_jobs_are_sound():
    events = (
        EventFact(type="buffering-start", cycle_id="13-1"),
        EventFact(type="buffering-failed", cycle_id="13-1"),
        EventFact(type="buffering-end", cycle_id="13-2"),
        EventFact(type="buffering-end", cycle_id="4-1"),
        EventFact(type="activation", cycle_id="11-1", operation="observation"),
        EventFact(type="activation", cycle_id="6-1", operation="observation"),  # of chunk 2, before its rebuild
    )

    assert [one.state for one in told().chunks].count(ChunkState.ACTIVE) == 2
    assert rules(told(*events, jobs=(DONE,))) == set()


def test_a_tail_that_no_time_would_change_needs_no_sweep():
    buffered = sound(chunks=(*sound().chunks, chunk(4, 7, 10)))
    thread = {"buffered_seq": 10, "unbuffered_tokens": 0, "idle_due_at": None, "last_activity_at": NOW}

    assert rules(working(buffered, **thread)) == set()


def test_stale_notes_that_nobody_makes_again_are_stranded():
    made = sound()
    stale = tuple(replace(one, stale=one.state is ChunkState.BUFFERED) for one in made.chunks)
    coming = JobFact(id=9, state=JobState.AVAILABLE, attempt=0, rebuilds=3)

    assert "stranded" in rules(replace(made, chunks=stale, jobs=()))
    assert "stranded" in rules(replace(made, chunks=stale, jobs=(replace(coming, state=JobState.CANCELLED),)))
    assert "stranded" in rules(replace(made, chunks=stale, jobs=(replace(coming, rebuilds=2),)))
    assert "stranded" not in rules(replace(made, chunks=stale, jobs=(coming,)))
