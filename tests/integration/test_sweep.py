"""The sweep: rings, rescues, wakes idle threads, and works alone while rings cannot be sent (DESIGN 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from om_core.domain.job import JobRef
from om_core.memory import Memory
from om_core.services.leases import LeaseKeeper
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import Sweeper
from tests.support.fixtures import SMALL, raw_session
from tests.support.jobs import QUEUES, work_off
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from om_core.services.deps import Services

TEXT = "the blue box goes to the Berlin office on Friday and Maria calls them " * 4


class Bell:
    """A dispatcher that remembers its rings; it may be out of order."""

    def __init__(self, *, healthy: bool = True) -> None:
        self.healthy = healthy
        self.rung: list[JobRef] = []

    def ring(self, jobs: Iterable[JobRef]) -> None:
        self.rung.extend(jobs)

    def close(self) -> None:
        pass


def fill(memory: Memory, count: int) -> None:
    for n in range(count):
        memory.append("t", [{"role": "assistant" if n % 2 else "user", "content": f"{n} {TEXT}"}], resource="r")


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def rung(services_with: Callable[..., Services], bell: Bell) -> Services:
    return services_with(dispatcher=bell)


@pytest.fixture
def sweeper(rung: Services) -> Iterator[Sweeper]:
    runner = JobRunner(rung)
    built = Sweeper(rung, runner, name="w1", queues=QUEUES, slots=4, period_s=60)
    yield built
    built.stop()
    runner.drain(10)
    runner.close()


def shift(services: Services, sql: str, *params: object) -> None:
    """Let time pass in the database by moving a stored time back."""
    with raw_session(services.store) as session:
        session.hot(sql + " RETURNING 1", params)


def test_a_job_whose_ring_was_lost_is_rung_again_but_not_at_every_sweep(
    rung: Services, bell: Bell, sweeper: Sweeper
) -> None:
    fill(Memory(rung), 5)
    bell.rung.clear()

    assert sweeper.sweep_once().rung == 1
    assert sweeper.sweep_once().rung == 0
    assert [job.kind.value for job in bell.rung] == ["observe"]


def test_it_rings_at_most_the_free_slots(rung: Services, bell: Bell, sweeper: Sweeper) -> None:
    memory = Memory(rung)
    for n in range(6):
        memory.append(f"t{n}", [{"role": "user", "content": TEXT * 4}], resource="r")
    bell.rung.clear()

    assert sweeper.sweep_once().rung == 4


def test_while_rings_cannot_be_sent_the_sweep_does_the_work(rung: Services, bell: Bell, sweeper: Sweeper) -> None:
    bell.healthy = False
    memory = Memory(rung)
    fill(memory, 5)

    assert sweeper.sweep_once().ran == 1
    eventually(lambda: memory.observations("t", resource="r", state="buffered").items, what="a chunk")


def test_a_worker_is_seen_while_it_sweeps_and_forgotten_when_it_stops(rung: Services, sweeper: Sweeper) -> None:
    sweeper.sweep_once()
    assert [worker.name for worker in rung.store.system.workers(max_age_s=15)] == ["w1"]

    sweeper.stop()
    assert rung.store.system.workers(max_age_s=15) == ()


@pytest.mark.conforms("11.30")
@pytest.mark.report("J05", "J20")
def test_an_expired_lease_is_taken_over_and_the_fifth_in_a_row_counts_as_a_failure(
    rung: Services, sweeper: Sweeper
) -> None:
    fill(Memory(rung), 5)
    memory = Memory(rung)
    for round_number in range(1, 6):
        shift(rung, "UPDATE jobs SET run_at = clock_timestamp() WHERE state <> 'running'")
        claimed = rung.store.system.claim(queue="buffering", owner="gone", lease_s=60)
        assert claimed is not None
        shift(
            rung, "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE id = %s", claimed.job.id
        )
        assert sweeper.sweep_once().rescued == 1
        job = memory.job(claimed.job.id)
        assert (job["state"], job["attempt"], job["failures"]) == ("retryable", round_number, int(round_number == 5))


def test_a_renewed_lease_is_not_taken_over(rung: Services, sweeper: Sweeper) -> None:
    fill(Memory(rung), 5)
    claimed = rung.store.system.claim(queue="buffering", owner=rung.owner, lease_s=60)
    assert claimed is not None
    keeper = LeaseKeeper(rung)
    lost = keeper.hold(claimed.job)
    shift(rung, "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE id = %s", claimed.job.id)

    assert keeper.renew_once() == frozenset()
    assert sweeper.sweep_once().rescued == 0
    assert not lost.is_set()
    keeper.stop()


def test_a_lease_that_somebody_took_cancels_the_model_call(rung: Services, sweeper: Sweeper) -> None:
    fill(Memory(rung), 5)
    claimed = rung.store.system.claim(queue="buffering", owner=rung.owner, lease_s=60)
    assert claimed is not None
    keeper = LeaseKeeper(rung)
    lost = keeper.hold(claimed.job)
    shift(rung, "UPDATE jobs SET attempt = attempt + 1, lease_owner = 'other' WHERE id = %s", claimed.job.id)

    assert keeper.renew_once() == {claimed.job.id}
    assert lost.is_set()
    keeper.stop()


def idle(services: Services, seconds: int) -> None:
    shift(
        services,
        "UPDATE threads SET last_activity_at = last_activity_at - %s * interval '1 s',"
        " oldest_pending_at = oldest_pending_at - %s * interval '1 s', idle_due_at = idle_due_at - %s * interval '1 s'",
        seconds,
        seconds,
        seconds,
    )


def test_an_idle_thread_is_activated_by_the_sweep(services_with: Callable[..., Services], bell: Bell) -> None:
    services = services_with({**SMALL, "activate_after_idle": "5m"}, dispatcher=bell)
    runner = JobRunner(services)
    sweeper = Sweeper(services, runner, name="w", queues=QUEUES, slots=4, period_s=60)
    memory = Memory(services)
    fill(memory, 8)
    work_off(services)
    fill(memory, 4)  # more than the least that stays raw
    assert memory.get_thread("t", resource="r").observed_seq == 0

    idle(services, 301)
    assert sweeper.sweep_once().woken == 1

    assert memory.get_thread("t", resource="r").observed_seq > 0
    [first, *_] = [event for event in memory.events("t", resource="r") if event.type == "data-om-activation"]
    assert first.payload["triggeredBy"] == "ttl"
    assert first.payload["ttlExpiredMs"] >= 301_000
    runner.close()


@pytest.mark.report("A06")
def test_a_small_old_tail_is_observed(rung: Services, sweeper: Sweeper) -> None:
    memory = Memory(rung)
    fill(memory, 1)
    assert memory.jobs().items == ()

    idle(rung, 3601)
    sweeper.sweep_once()

    assert [(job["kind"], job["reason"]) for job in memory.jobs().items] == [("observe", "age")]


def test_a_thread_without_anything_pending_is_not_looked_at_again(rung: Services, sweeper: Sweeper) -> None:
    memory = Memory(rung)
    fill(memory, 1)
    memory.observe("t", resource="r")
    work_off(rung)
    memory.activate("t", resource="r")
    idle(rung, 3601)

    assert sweeper.sweep_once().woken == 1
    assert memory.get_thread("t", resource="r").idle_due_at is None
    assert sweeper.sweep_once().woken == 0


def test_a_thread_that_cannot_move_yet_rests_for_a_while(services_with: Callable[..., Services], bell: Bell) -> None:
    services = services_with({**SMALL, "activate_after_idle": 1}, dispatcher=bell)
    sweeper = Sweeper(services, JobRunner(services), name="w", queues=QUEUES, slots=4, period_s=60)
    memory = Memory(services)
    fill(memory, 1)
    idle(services, 10)

    assert sweeper.sweep_once().woken == 1
    assert sweeper.sweep_once().woken == 0


def test_an_aged_open_call_releases_the_cut(rung: Services, sweeper: Sweeper) -> None:
    memory = Memory(rung)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    fill(memory, 1)
    memory.append("t", [{"role": "assistant", "content": None, "tool_calls": [call]}], resource="r")
    assert memory.get_thread("t", resource="r").cut_seq == 1
    opened = memory.get_thread("t", resource="r").open_calls[0]
    with rung.store.transaction("default") as tx:
        thread = tx.threads.lock("r", "t")
        assert thread is not None
        old = replace(opened, at=opened.at.replace(year=opened.at.year - 1))
        tx.threads.update(thread.thread.id, open_calls=(old,))
    idle(rung, 4000)

    sweeper.sweep_once()

    assert memory.get_thread("t", resource="r").cut_seq == 2
