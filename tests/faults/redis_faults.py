"""A broker that forgets, restarts, is away or hangs. Rings are lost; work and turns go on."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from tests.faults.stage import LEASE_S
from tests.support.brokers import redis_client, redis_down

if TYPE_CHECKING:
    from tests.faults.fleet import Worker
    from tests.faults.stage import Stage

AWAY_S = 60.0
"""How long Redis is away in the long run."""
SHORT_AWAY_S = 2.0


def flush(stage: Stage, times: int) -> None:
    """FLUSHALL: queues, bindings and what was not acknowledged are gone."""
    for _ in range(times):
        stage.pause(0.3, 1.5)
        with redis_client(stage.redis_url) as client:
            client.flushall()
        stage.injected += 1
        stage.caught_up(time.monotonic())


def restart(stage: Stage, times: int) -> None:
    """SIGKILL of Redis; it comes back at once."""
    for _ in range(times):
        stage.pause(0.3, 1.5)
        stage.servers.embedded.kill("redis")
        stage.injected += 1
        stage.servers.embedded.wait_ready()
        stage.caught_up(time.monotonic())


def away(stage: Stage, times: int) -> None:
    """No Redis for a while: the sweeps do the work meanwhile."""
    for number in range(times):
        with redis_down(stage.servers):
            stage.injected += 1
            ends = time.monotonic() + (AWAY_S if number == 0 and times > 1 else SHORT_AWAY_S)
            _goes_on(stage)
            threading.Event().wait(max(0.0, ends - time.monotonic()))
        stage.caught_up(time.monotonic())


def slow(stage: Stage, times: int) -> None:
    """A Redis that accepts and does not answer: for whole seconds, then in short fits."""
    pid = stage.servers.embedded.status().redis.pid
    assert pid is not None
    for number in range(times):
        stage.injected += 1
        try:
            for _ in range(1 if number % 2 == 0 else 6):
                os.kill(pid, signal.SIGSTOP)
                if number % 2 == 0:
                    _goes_on(stage)
                else:
                    stage.pause(0.2, 0.6)
                os.kill(pid, signal.SIGCONT)
                stage.pause(0.05, 0.2)
        finally:
            os.kill(pid, signal.SIGCONT)
            stage.servers.embedded.wait_ready()
        stage.caught_up(time.monotonic())


def canary(stage: Stage, times: int) -> None:
    """Redis restarts, and every connection is cut, with tasks in flight: workers live, finish, and take new rings.

    celery 5.7.0 dies of this where acknowledgement is late. Run it before moving to another version.
    """
    for _ in range(times):
        workers = stage.fleet.alive
        stage.wait(lambda: all("ready." in worker.output for worker in workers), "workers are connected")  # noqa: B023
        stage.in_a_call()
        stage.servers.embedded.kill("redis")
        stage.servers.embedded.wait_ready()
        stage.in_a_call()
        with redis_client(stage.redis_url) as client:
            client.execute_command("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal")
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        stage.injected += 1
        since = time.monotonic()
        stage.caught_up(since)
        _takes_rings(stage, workers)
        for worker in workers:
            if not worker.alive:
                stage.problems.append(f"worker {worker.pid} died:\n{worker.output[-1000:]}")


def _takes_rings(stage: Stage, workers: list[Worker]) -> None:
    """Wait until rings are sent and taken again: nothing waits in the broker's lists."""

    def look() -> bool:
        with redis_client(stage.redis_url) as client:
            consumers = [line for line in client.client_list() if line["cmd"].lower() in {"brpop", "blmove", "blpop"}]
        return len(consumers) >= len([worker for worker in workers if worker.alive])

    stage.wait(look, "every worker listens for rings again")


def slow_tasks(stage: Stage, times: int) -> None:
    """Tasks longer than the broker's visibility timeout: with late acknowledgement each would come again and again."""
    for _ in range(times):
        stage.in_a_call()
        stage.injected += 1
        stage.pause(LEASE_S, LEASE_S * 1.5)


def _goes_on(stage: Stage) -> None:
    """Wait until more notes are stored than were at this moment."""
    before = _observed(stage)
    stage.wait(lambda: _observed(stage) > before, "work goes on without Redis")


def _observed(stage: Stage) -> int:
    [(count,)] = stage.sql("SELECT count(*) FROM chunks")
    return int(count)
