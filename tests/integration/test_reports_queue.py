"""Work in the background: each test is a way in which systems of this kind lost it, doubled it, or let it hold up a turn."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from om_core.memory import Memory
from om_core.services.run_jobs import JobRunner
from om_core.store.engine import PostgresStore
from tests.integration.test_backlog import MILLION, Tracing, covered
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_races import run_one
from tests.integration.test_sweep import shift
from tests.integration.test_waiting import GatedModel
from tests.support.fixtures import SMALL, build, raw_session
from tests.support.jobs import work_off
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers

INSTANT: dict[str, Any] = {**SMALL, "model": "openai/instant"}


@pytest.fixture
def wide(database_url: str) -> Iterator[PostgresStore]:
    """A store with a connection for each of many callers at once."""
    opened = PostgresStore(database_url, pool_size=32)
    yield opened
    opened.close()


def together(count: int, work: Callable[[int], object]) -> list[Any]:
    """So many callers that begin at the same moment; what they return."""
    start = threading.Barrier(count)

    def run(number: int) -> object:
        start.wait(30)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.report("J01")
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_first_calls_that_meet_make_one_thread_and_one_memory(wide: PostgresStore, scope: str) -> None:
    def first(number: int) -> int:
        memory = Memory(build(wide, {**SMALL, "scope": scope}))  # nothing is shared but the database
        message = {"role": "user", "id": f"m{number}", "content": f"hello {number}"}
        return memory.append("t", [message], resource="r").messages[0].seq

    seqs = together(20, first)

    assert sorted(seqs) == list(range(1, 21))
    with raw_session(wide) as session:
        assert session.hot("SELECT (SELECT count(*) FROM threads), (SELECT count(*) FROM memories)", ()) == [(1, 1)]


@pytest.mark.report("J02")
def test_status_shows_what_runs_only_while_somebody_holds_it(memory: Memory) -> None:
    talk(memory, "t", 10)
    claimed = memory.services.store.system.claim(queue="buffering", owner="gone", lease_s=60)
    assert claimed is not None
    assert [job["owner"] for job in memory.status("t", resource="r")["running"]] == ["gone"]

    shift(memory.services, "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s'")

    assert memory.status("t", resource="r")["running"] == []


@pytest.mark.report("J03")
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_thirty_parallel_turns_of_one_owner_never_deadlock(
    wide: PostgresStore, servers: Servers, database_url: str, scope: str
) -> None:
    services = build(wide, {**SMALL, "scope": scope})
    memory = Memory(services)
    stop = Event()

    def turn(number: int) -> None:
        if number >= 30:  # and two workers beside them
            while not stop.is_set():
                for queue in ("buffering", "observation", "reflection"):
                    run_one(services, queue)
            return
        for n in range(4):
            said = {"role": "user", "id": f"{number}-{n}", "content": f"{number} {n} the box goes to Berlin. " * 9}
            memory.append(f"t{number % 10}", [said], resource="r")
            memory.context(f"t{number % 10}", resource="r", wait=False)
        if number == 0:
            stop.wait(0)

    start = threading.Thread(target=lambda: together_then(stop, 32, turn))
    start.start()
    start.join(90)
    stop.set()

    assert not start.is_alive()
    assert sum(memory.get_thread(f"t{n}", resource="r").head_seq for n in range(10)) == 120
    name = database_url.rsplit("@/", 1)[1].split("?", 1)[0]
    admin = servers.admin(name)
    with admin.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert cursor.fetchone() == (0,)
    admin.close()


def together_then(stop: Event, count: int, work: Callable[[int], object]) -> None:
    """Run the callers; the workers among them end when all others have ended."""
    left = threading.Semaphore(0)

    def counted(number: int) -> None:
        try:
            work(number)
        finally:
            left.release()

    def watch() -> None:
        for _ in range(count - 2):
            left.acquire()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    together(count, counted)


@pytest.mark.report("J04")
def test_a_turn_that_waits_for_notes_gets_them_from_a_worker_with_one_slot(
    services_with: Callable[..., Services],
) -> None:
    options = {**SMALL, "observation": {**SMALL["observation"], "block_timeout": 20_000}}
    services = services_with(options)
    memory = Memory(services)
    talk(memory, "t", 30)
    services.store.system.heartbeat(name="w", queues=["observation", "buffering"], slots=1, running=0, version="")
    runner = JobRunner(services)

    def one_slot() -> None:
        eventually(lambda: [job for job in memory.jobs(kind="observe").items if job["awaited"]], what="a turn waits")
        runner.run("observation")

    worker = threading.Thread(target=one_slot)
    worker.start()
    context = memory.context("t", resource="r").context
    worker.join(20)
    runner.close()
    memory.close()

    assert 0 < context.waited_s < 20
    assert context.activated is not None
    assert context.tokens.messages < 1_000


@pytest.mark.report("J07")
@pytest.mark.parametrize("kind", ["observe", "reflect"])
def test_a_job_that_worked_is_completed_in_the_transaction_of_its_result(memory: Memory, kind: str) -> None:
    talk(memory, "t", 10)
    if kind == "reflect":
        settle(memory)
        memory.activate("t", resource="r")
        memory.reflect("t", resource="r")
    assert run_one(memory.services, "reflection" if kind == "reflect" else "buffering") == "ok"

    job = memory.jobs(kind=kind).items[0]
    assert (job["state"], job["error"], job["lease_owner"], job["lease_expires_at"]) == ("completed", None, None, None)
    assert job["finished_at"] is not None
    table = "reflections" if kind == "reflect" else "chunks"
    with raw_session(memory.services.store) as session:
        written = f"SELECT j.xmin = r.xmin FROM jobs j, {table} r WHERE j.kind = %s ORDER BY r.created_at DESC LIMIT 1"
        assert session.hot(written, (kind,)) == [(True,)]


@pytest.mark.report("J09")
def test_a_backlog_of_several_windows_is_worked_off_by_one_trigger(services_with: Callable[..., Services]) -> None:
    model = Tracing()
    memory = Memory(services_with({"model": "openai/instant"}, model=model))
    text = "the blue box goes to the Berlin office on Friday. " * 400
    batch = [{"role": "assistant" if n % 2 else "user", "content": f"TRACE-{n} {text}"} for n in range(160)]
    [job] = memory.append("t", batch, resource="r").jobs
    assert memory.get_thread("t", resource="r").pending_tokens > MILLION / 2

    outcomes = work_off(memory.services)

    assert memory.jobs(limit=1).items[0]["id"] > job.id
    assert set(outcomes) == {"ok"}
    assert len(model.inputs) >= 5
    assert covered(memory)[-1][1] == 160


@pytest.mark.report("J10")
def test_a_thread_whose_turn_was_closed_is_observed_when_it_goes_on(memory: Memory) -> None:
    memory.append("t", [{"role": "user", "content": "bye"}], resource="r", end_of_turn=True)
    memory.flush("t", resource="r", wait_s=0.01)
    settle(memory)
    memory.activate("t", resource="r")
    assert memory.get_thread("t", resource="r").idle_due_at is not None

    talk(memory, "t", 10)
    settle(memory)

    assert memory.get_thread("t", resource="r").buffered_seq > 5


@pytest.mark.report("J14", "J15")
def test_a_job_that_is_delivered_twice_is_done_once(services_with: Callable[..., Services], services: Services) -> None:
    """A broker may deliver a ring again while its job runs, and long after."""
    gated = GatedModel(services)
    memory = Memory(services_with(SMALL, model=gated))
    talk(memory, "t", 5)
    [job] = memory.jobs().items
    runner = JobRunner(memory.services)
    first = threading.Thread(target=runner.run, args=("buffering", job["id"]))
    first.start()
    eventually(lambda: gated.calls == 1, what="the model is asked")

    assert runner.run("buffering", job["id"]) is None
    gated.gate.set()
    first.join(20)
    assert runner.run("buffering", job["id"]) is None
    runner.close()

    assert gated.calls == 1
    assert len(memory.observations("t", resource="r", state="all").items) == 1
    assert memory.job(job["id"])["attempt"] == 1


@pytest.mark.report("J18")
def test_ten_slow_observers_leave_every_connection_of_a_small_pool_free(database_url: str, services: Services) -> None:
    narrow = PostgresStore(database_url, pool_size=5)
    gated = GatedModel(services)
    memory = Memory(build(narrow, SMALL, model=gated))
    for n in range(10):
        talk(memory, f"t{n}", 10)
    runner = JobRunner(memory.services)
    with ThreadPoolExecutor(10) as pool:
        running = [pool.submit(runner.run, "buffering") for _ in range(10)]
        eventually(lambda: gated.calls == 10, what="ten calls are under way")

        assert narrow.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # the pool is a QueuePool
        talk(memory, "t0", 1, start=10)
        assert len(memory.context("t0", resource="r").context.messages) == 11

        gated.gate.set()
        assert [job.result(30) for job in running] == ["ok"] * 10
    runner.close()
    narrow.close()
