"""Many at once: processes at one thread, turns in threads of one resource, slow observers beside a small pool."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

import pytest

from om_core.services.coverage import examine
from om_core.services.run_jobs import JobRunner
from om_core.store.engine import PostgresStore
from om_core.testing.scripted_replies import traces
from tests.fuzz.world import message_traces
from tests.integration.api_server import api_of, say
from tests.integration.one_thread import MESSAGES, OPTIONS, TracedModel, worked
from tests.integration.test_waiting import GatedModel
from tests.support.fixtures import build, raw_session
from tests.support.processes import ROOT
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.memory import Memory
    from om_core.services.deps import Services
    from tests.integration.api_server import ApiClient

RUNS: Final = int(os.environ.get("OM_TEST_PROCESS_RUNS", "1"))
"""Runs of two processes at one thread; 20 show more."""
TURNS: Final = int(os.environ.get("OM_TEST_PARALLEL_TURNS", "600"))
"""Turns in threads of one resource; 10,000 show more."""
AT_ONCE, THREADS = 30, 10
OBSERVERS: Final = 10
POOL: Final = 5
CALLS: Final = 25
SLOWER_AT_MOST: Final = 4.0
"""Medians of the same calls: one that waits for an observer's connection takes as long as the observer does."""
DRAIN_S: Final = 120.0
LIMIT_S: Final = 900.0
"""For the long versions."""


class Drivers:
    """Two processes that drive the same threads."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "tests.integration.one_thread", url]
        self._running = [
            subprocess.Popen([*command, str(who)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for who in range(2)
        ]
        self._expect("ready")

    def drive(self, resource: str, thread: str) -> None:
        """Both drive the thread; returns when both have."""
        for process in self._running:
            assert process.stdin is not None
            process.stdin.write(f"{resource} {thread}\n")
            process.stdin.flush()
        self._expect("done")

    def end(self) -> list[str]:
        """Let them end by themselves; the traces that their models were asked about."""
        told = [process.communicate(timeout=60)[0] for process in self._running]
        assert [process.returncode for process in self._running] == [0, 0]
        return [line.removeprefix("observed ") for out in told for line in out.splitlines()]

    def kill(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()  # closes the pipes

    def _expect(self, word: str) -> None:
        for process in self._running:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == word


@pytest.fixture
def drivers(database_url: str, store: PostgresStore) -> Iterator[Drivers]:
    started = Drivers(database_url)
    yield started
    started.kill()


def noted(services: Services, thread_id: int) -> tuple[list[str], list[str]]:
    """The traces of a thread's rows and of its chunks."""
    with services.store.reading("default") as tx:
        rows = tx.messages.between(thread_id, 0, None, limit=10_000)
        chunks = tx.chunks.page(thread_id, state="all", cursor=None, limit=10_000).items
    return message_traces(rows), [trace for chunk in chunks for trace in traces(chunk.text)]


def covered(memory: Memory, resource: str, thread: str) -> bool:
    """Whether everything is noted and nothing is under way; asks for what is still below the thresholds."""
    state = memory.get_thread(thread, resource=resource)
    if state.buffered_seq < state.head_seq:
        memory.observe(thread, resource=resource)
        return False
    return not memory.status(thread, resource=resource)["live_jobs"]


def one_run(drivers: Drivers, memory: Memory, resource: str, thread: str) -> list[str]:
    """Both processes drive one thread until all is noted, once; its traces."""
    drivers.drive(resource, thread)
    eventually(lambda: covered(memory, resource, thread), what="everything is noted")
    state = memory.get_thread(thread, resource=resource)
    rows, notes = noted(memory.services, state.id)
    assert len(rows) == 2 * MESSAGES
    assert Counter(rows) == Counter(notes) == Counter(set(rows))
    assert examine(memory.services, "default", state.id)[0] == ()
    return rows


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_two_processes_at_one_thread_observe_every_message_once(drivers: Drivers, store: PostgresStore) -> None:
    model = TracedModel("rest")
    stored: list[str] = []
    with worked(store, model) as memory:
        for run in range(RUNS):
            stored += one_run(drivers, memory, f"r{run}", f"t{run}")
            with raw_session(store) as session:
                [(memories,)] = session.hot("SELECT count(*) FROM memories", ())
            assert memories == run + 1
        asked = drivers.end()
    assert Counter([*asked, *model.observed]) == Counter(stored)  # no model was asked about a message twice


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_parallel_turns_in_threads_of_one_resource_are_stored_once_and_counted_right(database_url: str) -> None:
    with ExitStack() as stack:
        store = PostgresStore(database_url, pool_size=20)
        stack.callback(store.close)
        memory = stack.enter_context(worked(store, TracedModel("turns"), scope="resource"))
        names = [f"t{number}" for number in range(THREADS)]

        def turn(number: int) -> None:
            with memory.turn(names[number % THREADS], "r") as turn:
                turn.start([{"id": f"u-{number}", "role": "user", "content": f"TRACE-{number}-u hello"}])
                answer = {"id": f"a-{number}", "role": "assistant", "content": f"TRACE-{number}-a " + "so it is " * 6}
                turn.step([answer])

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(turn, range(TURNS)))  # whatever a turn raises is raised here
        eventually(lambda: all(covered(memory, "r", name) for name in names), seconds=DRAIN_S, what="all is noted")

        found: list[str] = []
        for name in names:
            state = memory.get_thread(name, resource="r")
            rows, notes = noted(memory.services, state.id)
            assert Counter(rows) == Counter(notes)
            assert examine(memory.services, "default", state.id)[0] == ()
            found += rows
        assert Counter(found) == Counter(f"TRACE-{number}-{who}" for number in range(TURNS) for who in "ua")
        assert [job for job in memory.jobs(limit=200).items if job["error"]] == []


@contextmanager
def observing(services: Services, gated: GatedModel) -> Iterator[None]:
    """Ten observers in the middle of their call of the model, until the end of the block."""
    runner = JobRunner(services)
    with ThreadPoolExecutor(OBSERVERS) as pool:
        try:
            done = [pool.submit(runner.run, "buffering") for _ in range(OBSERVERS)]
            eventually(lambda: gated.calls == OBSERVERS, what="ten observers have called the model")
            yield
            assert not any(future.done() for future in done)
        finally:
            gated.gate.set()
            outcomes = [future.result(60) for future in done]
            runner.close()
    assert outcomes == ["ok"] * OBSERVERS


def medians(client: ApiClient, thread: str) -> dict[str, float]:
    """Seconds of the calls that an agent makes at every turn; each of them many times."""
    calls: dict[str, Callable[[int], object]] = {
        "append": lambda number: say(client, thread, f"{number} the blue box goes to Berlin"),
        "context": lambda number: client.ok("POST", f"/v1/threads/{thread}/context", json={}),
        "status": lambda number: client.ok("GET", f"/v1/threads/{thread}/status"),
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(CALLS):
        for name, make in calls.items():
            started = perf_counter()
            make(number)
            taken[name].append(perf_counter() - started)
    return {name: median(seconds) for name, seconds in taken.items()}


def test_ten_slow_observers_on_a_pool_of_five_leave_the_api_as_quick_as_it_was(database_url: str) -> None:
    store = PostgresStore(database_url, pool_size=POOL)
    gated = GatedModel(build(store, OPTIONS))
    services = build(store, OPTIONS, model=gated, lease_s=60.0)
    try:
        with api_of(services) as client:
            for number in range(OBSERVERS):
                say(client, f"observed-{number}", *["the blue box goes to Berlin " * 8] * 4)
            medians(client, "warm")
            alone = medians(client, "alone")
            with observing(services, gated):
                beside = medians(client, "beside")
    finally:
        store.close()

    assert all(beside[name] < SLOWER_AT_MOST * alone[name] for name in alone), (alone, beside)
