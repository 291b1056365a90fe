"""Worker processes for real: work without Redis, restarts, shutdown, takeover."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from om_core.config import SecretUrl, Settings
from om_core.memory import Memory
from om_core.services.deps import Services
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support.brokers import redis_client, redis_down
from tests.support.processes import environment, worker_process
from tests.support.servers import Servers
from tests.support.services import conversation, scripted_settings, settings_services
from tests.support.waiting import eventually
from workers.dispatch import CeleryDispatcher

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CALLED_S = 40.0
"""The first model call of a process imports LiteLLM, which takes seconds, and more on a busy machine."""
SOON_S = 14.0
"""Far below the usual grace of 25 s, with room for a busy machine."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Sweeps in quick succession, because many tests here wait for one."""
    return replace(settings, sweep_s=0.5)


@contextmanager
def client(settings: Settings) -> Iterator[Memory]:
    """The side of the application: it stores steps and rings."""
    assert settings.redis_url is not None
    dispatcher = CeleryDispatcher(settings.redis_url.reveal())
    with settings_services(settings, dispatcher) as services:
        yield Memory(services)
        dispatcher.close()


def rings(memory: Memory) -> CeleryDispatcher:
    dispatcher = memory.services.dispatcher
    assert isinstance(dispatcher, CeleryDispatcher)
    return dispatcher


def observed(memory: Memory, job: int) -> bool:
    return job_state(memory.services, job) == "completed"


def job_state(services: Services, job: int) -> str:
    return services.store.system.job_states([job])[job]


def append(memory: Memory, thread: str, *, start: int = 1) -> int:
    """Messages that make an observe job due; its id."""
    [job] = memory.append(thread, conversation(8, start=start), resource="user-1").jobs
    return job.id


def test_a_stored_step_is_observed_by_the_worker_that_the_ring_reaches(settings: Settings, tmp_path: Path):
    slow_sweep = replace(settings, sweep_s=600.0)  # only a ring can be this fast
    with worker_process(slow_sweep, tmp_path) as worker, client(settings) as memory:
        worker.wait_connected()
        job = append(memory, "t")
        worker.eventually(lambda: observed(memory, job))
        assert memory.get_thread("t").buffered_seq > 0
        assert worker.stop() == 0
        ended = [line for line in worker.output.splitlines() if '"job ended"' in line]
        assert len(ended) == 1
        assert f'"job": {job}' in ended[0]
        assert '"thread": "t"' in ended[0]
        assert '"attempt": 1' in ended[0]
        assert "TRACE-1" not in worker.output, "logs hold no content"


def test_a_worker_leaves_the_queues_of_others_alone(settings: Settings, tmp_path: Path):
    with worker_process(settings, tmp_path, ["reflection"]) as other, client(settings) as memory:
        other.wait_connected()
        job = append(memory, "t")
        eventually(lambda: rings(memory).stats.sent == 1)
        with worker_process(settings, tmp_path, ["buffering", "observation"]):
            eventually(lambda: observed(memory, job))
        assert "job ended" not in other.output


@pytest.mark.report("J12")
def test_with_redis_away_the_sweep_does_the_work_and_rings_come_back_with_it(
    settings: Settings, servers: Servers, tmp_path: Path
):
    with worker_process(settings, tmp_path) as worker, client(settings) as memory:
        worker.wait_connected()
        with redis_down(servers):
            first = append(memory, "during")
            worker.eventually(lambda: observed(memory, first))
        worker.eventually(lambda: rings(memory).healthy)
        assert "broker away" in worker.output
        connected = worker.output.count("Connected to")
        worker.eventually(lambda: worker.output.count("Connected to") > connected or connected > 1)
        second = append(memory, "after")
        worker.eventually(lambda: observed(memory, second))
        assert worker.alive


@pytest.mark.report("J12")
def test_a_worker_starts_and_works_before_redis_does(settings: Settings, servers: Servers, tmp_path: Path):
    with redis_down(servers), client(settings) as memory:
        job = append(memory, "t")
        with worker_process(settings, tmp_path) as worker:
            worker.eventually(lambda: observed(memory, job))
            assert worker.stop() == 0, worker.output


def test_a_redis_that_hangs_holds_up_neither_work_nor_shutdown(settings: Settings, servers: Servers, tmp_path: Path):
    with worker_process(settings, tmp_path, OM_SHUTDOWN_S="1") as worker, client(settings) as memory:
        worker.wait_connected()
        pid = servers.embedded.status().redis.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            job = append(memory, "t")
            worker.eventually(lambda: observed(memory, job))
            started = time.monotonic()
            worker.stop()
            assert time.monotonic() - started < SOON_S
        finally:
            os.kill(pid, signal.SIGCONT)
            servers.embedded.wait_ready()


@pytest.mark.report("J14")
def test_restart_canary_tasks_in_flight_survive_a_restart_of_redis(
    settings: Settings, servers: Servers, tmp_path: Path
):
    """celery 5.7.0 fails this where acknowledgement is late. Run it before moving to another version."""
    release = Event()

    def script(request, number):
        release.wait(60)
        return Reply(text=answer_reply(request))

    with ScriptedModelServer(script) as server:
        scripted = scripted_settings(replace(settings, lease_s=10.0), server)
        with worker_process(scripted, tmp_path) as worker, client(scripted) as memory:
            worker.wait_connected()
            flying = [append(memory, f"t{number}") for number in range(3)]
            assert server.wait_until(lambda calls: len(calls) == 3, timeout_s=CALLED_S)
            for _ in range(2):
                servers.embedded.kill("redis")
                servers.embedded.wait_ready()
            worker.eventually(lambda: worker.output.count("Connected to") >= 2 or not worker.alive)
            release.set()
            worker.eventually(lambda: all(observed(memory, job) for job in flying))
            later = append(memory, "later")
            worker.eventually(lambda: observed(memory, later))
            assert worker.alive, worker.output
            assert len(server.calls) == 4, "no call was repeated"
            assert worker.stop() == 0


@pytest.mark.report("J19")
def test_sigterm_lets_running_jobs_finish(settings: Settings, tmp_path: Path):
    with ScriptedModelServer(delay_s=1.5) as server:
        scripted = scripted_settings(settings, server)
        with worker_process(scripted, tmp_path) as worker, client(scripted) as memory:
            worker.wait_connected()
            job = append(memory, "t")
            assert server.wait_until(lambda calls: len(calls) == 1, timeout_s=CALLED_S)
            waiting = append(memory, "claimed by nobody")
            worker.send(signal.SIGTERM)
            assert worker.process.wait(30) == 0
            assert observed(memory, job)
            assert job_state(memory.services, waiting) in {"available", "completed"}
            assert memory.services.store.system.workers(max_age_s=60) == ()


@pytest.mark.report("J19")
def test_sigterm_hands_back_what_does_not_finish_in_time(settings: Settings, tmp_path: Path):
    with ScriptedModelServer(lambda request, number: Reply(hang=True)) as server:
        scripted = scripted_settings(replace(settings, lease_s=60.0), server)
        with worker_process(scripted, tmp_path, OM_SHUTDOWN_S="0.5") as worker, client(scripted) as memory:
            worker.wait_connected()
            job = append(memory, "t")
            assert server.wait_until(lambda calls: len(calls) == 1, timeout_s=CALLED_S)
            started = time.monotonic()
            assert worker.stop() == 0
            assert time.monotonic() - started < SOON_S
            assert job_state(memory.services, job) in {"available", "retryable"}


@pytest.mark.report("J02", "J05")
def test_a_killed_worker_is_replaced_when_its_lease_ends(settings: Settings, tmp_path: Path):
    def script(request, number):
        return Reply(hang=True) if number == 1 else Reply(text=answer_reply(request))

    with ScriptedModelServer(script) as server:
        scripted = scripted_settings(settings, server)
        with client(scripted) as memory:
            with worker_process(scripted, tmp_path) as first:
                first.wait_connected()
                job = append(memory, "t")
                assert server.wait_until(lambda calls: len(calls) == 1, timeout_s=CALLED_S)
                first.kill()
            with worker_process(scripted, tmp_path):
                eventually(lambda: observed(memory, job))
            assert memory.job(job)["attempt"] == 2


@pytest.mark.report("J12")
def test_lost_rings_are_rung_again(settings: Settings, redis_url: str, tmp_path: Path):
    with client(settings) as memory:
        job = append(memory, "t")
        eventually(lambda: rings(memory).stats.sent == 1)
        with redis_client(redis_url) as broker:
            broker.flushdb()
        with worker_process(settings, tmp_path) as worker:
            worker.eventually(lambda: observed(memory, job))


@pytest.mark.parametrize(
    ("changes", "more", "names"),
    [
        (
            {"database_url": SecretUrl("postgresql+psycopg2://x@127.0.0.1:1/om?connect_timeout=2")},
            {},
            "OM_DATABASE_URL",
        ),
        ({"redis_url": None}, {}, "OM_REDIS_URL"),
        ({"model": "openai/gpt-5-mini"}, {"OPENAI_API_KEY": ""}, "OPENAI_API_KEY"),
    ],
)
def test_a_worker_that_cannot_work_says_what_to_set_and_exits_with_2(settings, changes, more, names, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "workers"],
        env=environment(replace(settings, **changes), **more),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2, done.stderr
    assert names in done.stderr


def test_an_unknown_queue_is_named_with_those_there_are(settings, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "workers", "--queues", "observation,misspelt"],
        env=environment(settings),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert "misspelt" in done.stderr
    assert "buffering" in done.stderr


def test_celerys_own_command_line_starts_the_same_worker(settings: Settings, tmp_path: Path):
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--without-gossip", "--without-mingle"]
    with client(settings) as memory:
        job = append(memory, "t")
        process = subprocess.Popen(
            command, env=environment(settings), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            eventually(lambda: observed(memory, job))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("numbers", "grace"),
    [
        ([signal.SIGQUIT], "25"),
        ([signal.SIGINT, signal.SIGINT], "25"),
        ([signal.SIGINT], "0.5"),
        ([signal.SIGHUP], "0.5"),
    ],
)
def test_other_signals_end_a_worker_and_hand_back_its_job(settings, tmp_path, numbers, grace):
    with ScriptedModelServer(lambda request, number: Reply(hang=True)) as server:
        scripted = scripted_settings(replace(settings, lease_s=60.0), server)
        with worker_process(scripted, tmp_path, OM_SHUTDOWN_S=grace) as worker, client(scripted) as memory:
            worker.wait_connected()
            job = append(memory, "t")
            assert server.wait_until(lambda calls: len(calls) == 1, timeout_s=CALLED_S)
            started = time.monotonic()
            for number in numbers:
                worker.send(number)
                worker.eventually(lambda: "worker stopping" in worker.output)
            assert worker.process.wait(30) == 0
            assert time.monotonic() - started < SOON_S
            assert job_state(memory.services, job) in {"available", "retryable"}, worker.output
