"""Each guard by itself (DESIGN 2): the fence, the cursor, the ranges, the version of the prefix, the base."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from om_core.domain.job import JobState
from om_core.ports import FinishedJob
from tests.fuzz.actors import Actor, Stage, gated, run_out, run_to
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_races import active_chunk, run_one
from tests.integration.test_sweep import shift
from tests.support.fixtures import raw_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.domain.job import Job
    from om_core.memory import Memory
    from om_core.ports import Transaction
    from tests.support.servers import Servers

DONE = FinishedJob(state=JobState.COMPLETED)
LATER = FinishedJob(state=JobState.RETRYABLE, retry_after_s=5.0, outcome="retry_later")
WRITES: dict[str, Callable[[Transaction, Job], bool]] = {
    "range": lambda tx, job: tx.jobs.fix_input(job, from_seq=1, to_seq=2, input={}),
    "partial result": lambda tx, job: tx.jobs.save_partial(job, [{"notes": "late"}]),
    "completion": lambda tx, job: tx.jobs.finish(job, DONE),
    "failure": lambda tx, job: tx.jobs.finish(job, LATER),
}
TAKEN = {
    "by another attempt": "UPDATE jobs SET attempt = attempt + 1",
    "by a cancellation": "UPDATE jobs SET state = 'cancelled', lease_owner = NULL, lease_expires_at = NULL,"
    " finished_at = clock_timestamp()",
}


@pytest.fixture
def stage(servers: Servers, database_url: str) -> Iterator[Stage]:
    """Actors of this test stop at every statement, commit and model call."""
    admin = servers.admin(database_url.split("@/")[1].split("?", maxsplit=1)[0])
    with gated():
        yield Stage(admin)
    admin.close()


@pytest.mark.report("J02")
@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("write", WRITES)
def test_a_worker_whose_job_was_taken_writes_nothing(memory: Memory, write: str, taken: str) -> None:
    talk(memory, "t", 10)
    claimed = memory.services.store.system.claim(queue="buffering", owner="late", lease_s=60)
    assert claimed is not None
    shift(memory.services, TAKEN[taken])
    before = memory.job(claimed.job.id)

    with memory.services.store.transaction("default") as tx:
        assert not WRITES[write](tx, claimed.job)

    assert memory.job(claimed.job.id) == before


@pytest.mark.parametrize("write", WRITES)
def test_a_worker_that_holds_its_job_writes(memory: Memory, write: str) -> None:
    talk(memory, "t", 10)
    claimed = memory.services.store.system.claim(queue="buffering", owner="here", lease_s=60)
    assert claimed is not None

    with memory.services.store.transaction("default") as tx:
        assert WRITES[write](tx, claimed.job)


def worker(memory: Memory, queue: str) -> Actor:
    def work() -> None:
        run_one(memory.services, queue)

    return Actor("worker", work, None)


@pytest.mark.conforms("11.6")
@pytest.mark.report("J15")
def test_a_range_whose_cursor_has_moved_is_not_stored(memory: Memory, stage: Stage) -> None:
    talk(memory, "t", 10)
    late = worker(memory, "buffering")
    stage.enter(late)
    run_to(stage, late, "commit.after", times=2)  # claimed, and chosen from seq 1 on
    shift(memory.services, "UPDATE threads SET buffered_seq = 1, unbuffered_tokens = unbuffered_tokens - 1")

    run_out(stage, late)

    assert memory.observations("t", resource="r", state="all").items == ()
    assert memory.get_thread("t", resource="r").buffered_seq == 1
    assert memory.jobs().items[0]["state"] == "running", "the whole transaction is undone, and the lease runs out"


@pytest.mark.conforms("11.6")
@pytest.mark.report("J15")
@pytest.mark.parametrize(("first", "last"), [(1, 2), (2, 3), (1, 9), (99, 100)])
def test_the_database_refuses_a_chunk_that_does_not_go_on_where_one_ends(memory: Memory, first: int, last: int) -> None:
    """Overlaps share a first or a last message, or begin where no chunk ends; so do gaps."""
    active_chunk(memory)
    copy = (
        "INSERT INTO chunks (tenant_id, memory_id, thread_id, from_seq, to_seq, kind, state, text, tokens,"
        " message_tokens) SELECT tenant_id, memory_id, thread_id, :first, :last, kind, 'buffered', 'again', 1, 1"
        " FROM chunks LIMIT 1"
    )

    with pytest.raises(sa_exc.IntegrityError), raw_session(memory.services.store) as session:
        session.execute(sa.text(copy), {"first": first, "last": last})


@pytest.mark.report("B06")
def test_a_context_does_not_take_the_report_of_a_change_that_it_has_not_seen(memory: Memory, stage: Stage) -> None:
    active_chunk(memory)
    talk(memory, "t", 10, start=10)
    settle(memory)
    seen: list[str | None] = []
    reader = Actor(
        "reader", lambda: seen.append(memory.context("t", resource="r", wait=False).context.prefix_changed), None
    )
    stage.enter(reader)
    run_to(stage, reader, "commit.after")  # has read the context, and not yet stored that it reports the change

    memory.activate("t", resource="r")
    run_out(stage, reader)

    assert seen == ["activation"]
    assert memory.context("t", resource="r", wait=False).context.prefix_changed == "activation", (
        "of the second activation"
    )


@pytest.mark.conforms("11.9", "11.32")
@pytest.mark.report("B06")
def test_a_reflection_based_on_another_generation_never_takes_effect(memory: Memory) -> None:
    active_chunk(memory)
    memory.reflect("t", resource="r")
    assert run_one(memory.services, "reflection") == "ok"
    shift(memory.services, "UPDATE reflections SET base_generation = 0, generation = 5")
    shift(memory.services, "UPDATE memories SET generation = 4, buffered_generation = 5")

    memory.activate("t", resource="r")

    assert memory.get_thread("t", resource="r").observed_seq > 0
    with memory.services.store.reading("default") as tx:
        found = tx.memories.find("r", "t")
    assert found is not None
    assert (found.memory.generation, found.memory.buffered_generation) == (4, None)
