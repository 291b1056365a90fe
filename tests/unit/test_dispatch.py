"""The publisher never makes anyone wait: no broker, a hung broker, too many rings, a fork, the end."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time

import pytest

from om_core.domain.job import JobKind, JobRef, Queue
from tests.support.waiting import eventually
from workers.dispatch import CeleryDispatcher

NOBODY = "redis://127.0.0.1:1/0"
"""A port on which nobody listens: refused at once."""


def jobs(count: int) -> list[JobRef]:
    return [
        JobRef(id=number, tenant_id="t", kind=JobKind.OBSERVE, queue=Queue.BUFFERING, thread="thread")
        for number in range(count)
    ]


@pytest.fixture
def away():
    dispatcher = CeleryDispatcher(NOBODY, pauses_s=(60.0, 60.0))
    yield dispatcher
    dispatcher.close()


def test_a_thousand_rings_without_broker_return_within_milliseconds(away):
    started = time.monotonic()
    for job in jobs(1000):
        away.ring([job])
    took = time.monotonic() - started

    assert took < 0.25
    eventually(lambda: not away.healthy)
    assert (away.stats.sent, away.stats.failures) == (0, 1)


def test_an_outage_is_logged_once(caplog):
    dispatcher = CeleryDispatcher(NOBODY, pauses_s=(0.01, 0.02))
    with caplog.at_level(logging.INFO, logger="om.rings"):
        dispatcher.ring(jobs(50))
        eventually(lambda: dispatcher.stats.failures >= 5)
    dispatcher.close()

    assert len([record for record in caplog.records if record.name == "om.rings"]) == 1


@pytest.mark.report("Q07")
def test_of_too_many_rings_the_oldest_are_dropped_and_counted(away):
    away.ring(jobs(1))
    eventually(lambda: not away.healthy)
    away._capacity = 10
    away.ring(jobs(25))

    assert away.stats.waiting == 10
    assert away.stats.dropped == 1 + 15
    assert [job.id for _, job in away._waiting] == list(range(15, 25))


def test_a_broker_that_never_answers_holds_nobody_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dispatcher = CeleryDispatcher(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        started = time.monotonic()
        dispatcher.ring(jobs(100))
        assert time.monotonic() - started < 0.25
        eventually(lambda: not dispatcher.healthy, seconds=10)
        started = time.monotonic()
        dispatcher.close()
        assert time.monotonic() - started < 1.5


def test_closing_an_idle_or_unreachable_dispatcher_takes_no_time(away):
    idle = CeleryDispatcher(NOBODY)
    away.ring(jobs(10))
    eventually(lambda: not away.healthy)
    started = time.monotonic()
    idle.close()
    away.close()
    away.close()

    assert time.monotonic() - started < 0.5
    assert not [thread for thread in threading.enumerate() if thread.name == "om-rings"]


@pytest.mark.report("P05")
def test_a_ring_after_the_end_is_dropped(away):
    away.close()
    away.ring(jobs(3))

    assert (away.stats.waiting, away.stats.dropped) == (0, 3)


def test_no_thread_before_the_first_ring(away):
    away.ring([])

    assert away._thread is None


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
from om_core.domain.job import JobKind, JobRef, Queue
from workers.dispatch import CeleryDispatcher
job = JobRef(id=1, tenant_id="t", kind=JobKind.OBSERVE, queue=Queue.BUFFERING, thread="x")
dispatcher = CeleryDispatcher("redis://127.0.0.1:1/0", pauses_s=(60.0, 60.0))
dispatcher.ring([job])
while dispatcher.healthy:
    pass
held = dispatcher._changed
held.acquire()  # the worst moment to fork: the lock is taken, and its owner does not exist in the child
child = os.fork()
if child == 0:
    fresh = dispatcher._thread
    dispatcher.ring([job])
    alive = dispatcher._thread is not None and dispatcher._thread is not fresh and dispatcher._thread.is_alive()
    os._exit(0 if alive else 1)
held.release()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_rings_with_a_thread_of_its_own():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 0, done.stderr


def test_a_ping_tells_at_once_that_nothing_listens() -> None:
    dispatcher = CeleryDispatcher("redis://127.0.0.1:1/0")

    with pytest.raises(Exception, match=r"(?i)refused|connect"):
        dispatcher.ping(0.5)
    dispatcher.close()
