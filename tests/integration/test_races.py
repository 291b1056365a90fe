"""Interleavings and endings that could lose work, count it twice, or leave it where nobody comes for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from om_core.domain.job import QUEUE_OF, JobKind
from om_core.memory import Memory
from om_core.ports import NewJob
from om_core.prompts.observer import OBSERVER_VERSION
from om_core.services.coverage import check_coverage
from om_core.services.deps import Policies
from om_core.services.enqueue import decide_again, target
from om_core.services.run_jobs import JobRunner
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_sweep import shift
from tests.support.fixtures import SMALL
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.job import JobRef
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import MemoryState
    from om_core.services.deps import Services
    from om_core.store.engine import PostgresStore


def run_one(services: Services, queue: str) -> str | None:
    """Run the best due job of a queue in this thread."""
    runner = JobRunner(services)
    try:
        return runner.run(queue)
    finally:
        runner.close()


def insert_job(services: Services, kind: JobKind, *, chunk_id: int | None = None) -> JobRef:
    """A live job for thread `t`, as if somebody had decided it."""
    with services.store.transaction("default") as tx:
        snapshot = tx.memories.find("r", "t")
        assert snapshot is not None
        thread = snapshot.thread
        policy = services.policies.of(snapshot.memory)
        new = NewJob(
            kind=kind,
            queue=QUEUE_OF[kind],
            target=target(kind, thread_id=thread.id, memory_id=thread.memory_id, chunk_id=chunk_id),
            thread="t",
            memory_id=thread.memory_id,
            thread_id=thread.id,
            chunk_id=chunk_id,
            reason="test",
            policy=services.policies.as_json(policy),
            prompt_version=OBSERVER_VERSION,
        )
        [ref] = tx.jobs.insert([new])
    return ref


def park(services: Services, chunk_id: int, *, more_tokens: int) -> None:
    """Make an active chunk look as if a parked extract of some tokens more stood there."""
    shift(services, "UPDATE chunks SET kind = 'parked', tokens = tokens + %s WHERE id = %s", more_tokens, chunk_id)
    shift(services, "UPDATE memories SET log_tokens = log_tokens + %s", more_tokens)


def active_chunk(memory: Memory) -> dict[str, Any]:
    """Thread `t` with one active chunk; that chunk."""
    talk(memory, "t", 10)
    settle(memory)
    memory.activate("t", resource="r")
    return memory.observations("t", resource="r", state="active").items[0]


@pytest.mark.conforms("11.10")
def test_a_chunk_rebuilt_below_a_waiting_reflection_leaves_the_log_counted_right(memory: Memory) -> None:
    services = memory.services
    chunk = active_chunk(memory)
    park(services, chunk["id"], more_tokens=1000)
    memory.reflect("t", resource="r")
    assert run_one(services, "reflection") == "ok"
    insert_job(services, JobKind.REBUILD, chunk_id=chunk["id"])
    assert run_one(services, "observation") == "ok"

    memory.activate("t", resource="r")

    assert memory.context("t", resource="r").context.generation == 1
    assert check_coverage(services, "default", "t", "r").misfits == ()


def test_a_rebuild_whose_chunk_needs_none_any_more_ends(memory: Memory) -> None:
    chunk = active_chunk(memory)
    ref = insert_job(memory.services, JobKind.REBUILD, chunk_id=chunk["id"])

    run_one(memory.services, "observation")

    assert memory.job(ref.id)["state"] == "superseded"
    assert memory.observations("t", resource="r", state="active").items[0]["text"] == chunk["text"]


class GatedPolicies(Policies):
    """Policies behind a gate: a decision of the services that have them waits until the test opens it."""

    def of(self, memory: MemoryState) -> MemoryPolicy:
        reached, gate = self.gates
        reached.set()
        assert gate.wait(30)
        return super().of(memory)

    gates = (threading.Event(), threading.Event())


def waits_for_a_lock(store: PostgresStore) -> bool:
    with store.session("om_app", "default") as session:
        return bool(session.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")))


@pytest.mark.conforms("11.3")
def test_notes_that_come_while_a_reflect_job_ends_with_nothing_are_not_forgotten(
    services: Services, store: PostgresStore, services_with: Callable[..., Services]
) -> None:
    Memory(services).append("t", [{"role": "user", "content": "hello"}], resource="r")
    insert_job(services, JobKind.REFLECT)
    reached, gate = GatedPolicies.gates = (threading.Event(), threading.Event())
    worker = threading.Thread(
        target=run_one, args=(services_with(SMALL, policies=GatedPolicies(SMALL)), "reflection"), daemon=True
    )
    with services.store.transaction("default") as tx:  # another thread of the same memory activates
        snapshot = tx.memories.find("r", "t")
        assert snapshot is not None
        tx.memories.lock(snapshot.memory.id)
        worker.start()
        eventually(lambda: reached.is_set() or waits_for_a_lock(store), what="the worker ends its job")
        tx.memories.update(snapshot.memory.id, log_tokens=10_000)
        decide_again(tx, services, tx.memories.snapshot(snapshot.thread.id), tx.now())
    gate.set()
    worker.join(30)

    with services.store.reading("default") as tx:
        found = tx.memories.find("r", "t")
    assert found is not None
    assert found.live_jobs == {JobKind.REFLECT}


def crash(services: Services, job_id: int, *, failures: int) -> None:
    """A worker claims the job and dies, as four others before it did; then the lease runs out and is found."""
    from om_core.services.sweep import rescue

    shift(services, "UPDATE jobs SET failures = %s, expired_leases = 4 WHERE id = %s", failures, job_id)
    claimed = services.store.system.claim(queue="", owner="gone", lease_s=60, job_id=job_id)
    assert claimed is not None
    shift(services, "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE id = %s", job_id)
    assert rescue(services, "default", job_id)


def test_a_range_that_kills_every_worker_is_halved_and_then_parked(memory: Memory) -> None:
    talk(memory, "t", 10)
    [job] = memory.jobs().items
    for _ in range(8):
        crash(memory.services, job["id"], failures=2)
        if memory.job(job["id"])["state"] == "completed":
            break

    [chunk] = memory.observations("t", resource="r", state="all").items
    assert (chunk["kind"], chunk["from_seq"], chunk["to_seq"]) == ("parked", 1, 1)
    assert check_coverage(memory.services, "default", "t", "r").holds


def test_a_reflection_that_kills_every_worker_is_given_up(memory: Memory) -> None:
    active_chunk(memory)
    ref = insert_job(memory.services, JobKind.REFLECT)

    crash(memory.services, ref.id, failures=2)

    assert memory.job(ref.id)["state"] == "discarded"


def test_a_job_whose_policy_does_not_parse_is_given_up_and_decided_again(memory: Memory) -> None:
    talk(memory, "t", 10)
    [job] = memory.jobs().items
    shift(memory.services, "UPDATE jobs SET policy = '{\"observation\": 5}' WHERE id = %s", job["id"])

    run_one(memory.services, "buffering")

    assert memory.job(job["id"])["state"] == "discarded"
    assert memory.job(job["id"])["error"]["code"] == "invalid_option"
    settle(memory)
    assert len(memory.observations("t", resource="r", state="all").items) >= 1


def test_an_error_before_anything_was_chosen_parks_nothing_beyond_the_cut(memory: Memory) -> None:
    """A job may use up its failures before it has a range, on a thread with nothing left to observe."""
    talk(memory, "t", 10)
    [job] = memory.jobs().items
    shift(memory.services, "UPDATE threads SET buffered_seq = head_seq, unbuffered_tokens = 0, held_tokens = 0")

    crash(memory.services, job["id"], failures=2)

    assert memory.job(job["id"])["state"] == "completed"
    assert memory.observations("t", resource="r", state="all").items == ()


def grown(memory: Memory, log_tokens: int) -> None:
    """The log grows, as an activation makes it grow; what is due then is decided."""
    services = memory.services
    with services.store.transaction("default") as tx:
        snapshot = tx.memories.find("r", "t")
        assert snapshot is not None
        tx.memories.lock(snapshot.memory.id)
        tx.memories.update(snapshot.memory.id, log_tokens=log_tokens)
        decide_again(tx, services, tx.memories.snapshot(snapshot.thread.id), tx.now())


@pytest.fixture
def given_up(memory: Memory) -> Memory:
    """Memory whose reflect job was discarded, with a log above the threshold."""
    memory.append("t", [{"role": "user", "content": "hello"}], resource="r")
    grown(memory, 10_000)
    [job] = memory.jobs(kind="reflect").items
    crash(memory.services, job["id"], failures=2)
    return memory


def reflect_states(memory: Memory) -> list[str]:
    return [job["state"] for job in memory.jobs(kind="reflect").items]


@pytest.mark.conforms("5.4")
def test_a_discarded_reflection_is_not_decided_again_by_the_next_step(given_up: Memory) -> None:
    given_up.append("t", [{"role": "assistant", "content": "hi"}], resource="r")

    assert reflect_states(given_up) == ["discarded"]
    assert given_up.status("t", resource="r")["why_idle"]["reflect"].startswith("the last attempt was given up")


@pytest.mark.conforms("5.4")
def test_a_discarded_reflection_is_decided_again_when_the_log_changes(given_up: Memory) -> None:
    grown(given_up, 12_000)

    assert reflect_states(given_up) == ["available", "discarded"]


def test_a_redriven_reflection_is_no_longer_given_up(given_up: Memory) -> None:
    [job] = given_up.jobs(kind="reflect").items
    given_up.retry_job(job["id"])
    given_up.cancel_job(job["id"])

    given_up.append("t", [{"role": "assistant", "content": "hi"}], resource="r")

    assert reflect_states(given_up) == ["available", "cancelled"]


def test_a_reflect_job_that_finds_nothing_does_not_come_again_at_once(memory: Memory) -> None:
    memory.append("t", [{"role": "user", "content": "hello"}], resource="r")
    grown(memory, 10_000)  # counted, but not readable: as when a stale chunk stands first

    assert run_one(memory.services, "reflection") == "nothing"

    assert reflect_states(memory) == ["completed"]


def test_guidance_does_not_wipe_what_a_running_job_has_chosen(memory: Memory) -> None:
    active_chunk(memory)
    ref = insert_job(memory.services, JobKind.REFLECT)
    shift(memory.services, 'UPDATE jobs SET input = \'{"through": 1, "base": 0}\' WHERE id = %s', ref.id)

    memory.reflect("t", resource="r", guidance="keep names")

    with memory.services.store.reading("default") as tx:
        job = tx.jobs.get(ref.id)
    assert job is not None
    assert job.input == {"through": 1, "base": 0, "guidance": "keep names"}


@pytest.mark.report("A12")
def test_closing_a_turn_makes_buffering_on_idle_due(services_with: Callable[..., Services]) -> None:
    options = {**SMALL, "observation": {**SMALL["observation"], "buffer_on_idle": True}}
    memory = Memory(services_with(options))
    with memory.turn("t", "r") as turn:
        turn.start([{"role": "user", "content": "hello"}])
        assert memory.jobs().items == ()

    assert [job["reason"] for job in memory.jobs().items] == ["idle"]
