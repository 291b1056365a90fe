"""Workers that die, are asked to stop, or freeze."""

from __future__ import annotations

import signal
import time
from itertools import cycle
from typing import TYPE_CHECKING, Final

from om_core.testing.failpoints import VARIABLE, points
from tests.faults.stage import LEASE_S

if TYPE_CHECKING:
    from tests.faults.fleet import Worker
    from tests.faults.stage import Stage

UNAVAILABLE: Final = 503
"""What the model answers so that a worker has a failure to record; few of them, or the breaker opens."""
REACHED_S: Final = 20.0
"""A point that is not reached in this time is passed over: a worker may have no reflection to do."""


def kill_in_call(stage: Stage, times: int) -> None:
    """SIGKILL at a random moment of a model call; the worker is replaced once its jobs are taken over."""
    for _ in range(times):
        worker, _ = stage.in_a_call()
        stage.pause(0.0, stage.setup.model_s[1])
        worker.freeze()  # so that what it holds is known at the moment of its death
        held = stage.holders().get(worker, {})
        worker.kill()
        since = time.monotonic()
        stage.injected += 1
        stage.start_worker()
        stage.taken_over(held, since)


def kill_at_points(stage: Stage, times: int) -> None:
    """SIGKILL at named points: before each statement, before and after each COMMIT, around the model call."""
    names = cycle(sorted(points(), key=lambda _: stage.rng.random()))
    for _ in range(2 * times):
        if stage.injected < times:
            kill_at(stage, next(names))


def kill_at(stage: Stage, point: str) -> bool:
    """Start a worker that dies at this point, and replace it; whether it was reached."""
    worker = stage.start_worker(more={VARIABLE: f"{point}=kill"})
    others = [other for other in stage.fleet.alive if other is not worker]
    if point.startswith("failure"):
        stage.refusals.extend([UNAVAILABLE] * 6)
    if point.startswith("rescue"):
        _orphan_a_job(stage, [*others])
    elif len(others) > 1 and not point.startswith(("renew", "ring")):
        others[0].kill()  # fewer workers, so that the armed one is the one to come there
        others = others[1:]
    reached = worker.ends(REACHED_S)
    since = time.monotonic()
    if reached:
        stage.injected += 1
        rows = stage.sql(
            "SELECT id, attempt FROM jobs WHERE state = 'running' AND lease_owner LIKE %s", f"%{worker.owner}%"
        )
    else:
        worker.kill()
        rows = []
    stage.refusals.clear()
    while len(stage.fleet.alive) < stage.setup.workers:
        stage.start_worker()
    stage.taken_over(dict(rows), since)
    return reached


def _orphan_a_job(stage: Stage, others: list[Worker]) -> None:
    """Kill every other worker while one holds a job: the armed one has to rescue it."""
    holder, _ = stage.in_a_call()
    if holder in others:
        holder.kill()


def stop_and_drain(stage: Stage, times: int) -> None:
    """SIGTERM during a model call: the call is finished, its notes are stored, the exit code is 0."""
    for _ in range(times):
        worker, _ = stage.in_a_call()
        worker.send(signal.SIGTERM)
        since = time.monotonic()
        stage.injected += 1
        stage.start_worker()
        code = worker.wait()
        stage.recoveries.append((time.monotonic() - since) / LEASE_S)
        if code != 0:
            stage.problems.append(f"a worker told to stop ended with {code}")
        left = stage.sql("SELECT id FROM jobs WHERE state = 'running' AND lease_owner LIKE %s", f"%{worker.owner}%")
        if left:
            stage.problems.append(f"a worker that was told to stop kept {left}")


def freeze_past_lease(stage: Stage, times: int) -> None:
    """SIGSTOP during a model call until another worker has its job; then it wakes and tries to go on."""
    for _ in range(times):
        worker, _ = stage.in_a_call()
        worker.freeze()
        held = stage.holders().get(worker, {})
        since = time.monotonic()
        stage.injected += 1
        stage.taken_over(held, since)
        stage.pause(0.0, 0.5)
        worker.wake()
        stage.pause(0.5, 1.0)
        if not worker.alive:
            stage.problems.append(f"a worker that was frozen ended:\n{worker.output[-500:]}")
