"""Fifty seeds at every run of the tests; `make fuzz SEEDS=2000` plays more and leaves a report."""

from __future__ import annotations

import pytest

from tests.fuzz.campaign import MUTANT_SEEDS, Arena, hunt, run
from tests.fuzz.mutants import MUTANTS, mutant
from tests.fuzz.schedule import draw, play, play_processes, shrink

BATCH = 10


@pytest.mark.conforms("11.3", "11.37")
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 50, BATCH))
def test_every_promise_holds_after_every_schedule(place: Arena, first: int):
    report = run(place, range(first, first + BATCH), process_every=0)

    assert report.detail == []
    assert (report.seeds, report.violations) == (BATCH, 0)


@pytest.mark.conforms("11.37")
@pytest.mark.slow
def test_two_processes_at_one_thread_keep_every_promise(place: Arena):
    assert play_processes(place.store, place.admin, place.url, 1).findings == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_guard_that_is_gone_is_noticed(place: Arena, name: str):
    assert hunt(place, [name])[name] in range(1, MUTANT_SEEDS + 1)


def test_a_seed_repeats_to_the_step(place: Arena):
    first, second = (play(place.store, place.admin, draw(7)) for _ in range(2))

    assert first.trail == second.trail


@pytest.mark.slow
def test_a_schedule_that_fails_is_made_as_short_as_it_still_fails(place: Arena):
    with mutant("range", place.admin):
        failed = play(place.store, place.admin, draw(7))
        short = shrink(place.store, place.admin, failed)

    assert short.findings
    assert len(short.plan.steps) < len(failed.plan.steps) / 2
    assert set(short.plan.steps) < set(failed.plan.steps)
