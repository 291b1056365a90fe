"""Removal while workers hold the data, and while everything else goes on (DESIGN 2.8, 3.3)."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.errors import ConflictError, InvalidInputError, NotFoundError
from om_core.services.run_jobs import JobRunner
from tests.integration.test_removal import MARKER, SECRET, Repeating, fill, holds, memory, model, settle, shared
from tests.support.everywhere import places_of
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.memory import Memory
    from om_core.ports import ModelRequest

__all__ = ["memory", "model"]


@pytest.mark.report("P03")
@pytest.mark.parametrize("phase", ["observe", "reflect", "rebuild"])
@pytest.mark.parametrize("how", ["delete_message", "rewind", "delete_thread", "delete_resource"])
def test_a_worker_that_holds_the_data_writes_nothing(
    memory: Memory, model: Repeating, database_url: str, how: str, phase: str
) -> None:
    memory.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    fill(memory, 0, 12)
    if phase != "observe":
        settle(memory)
    if phase == "reflect":
        memory.reflect("t", resource="r")
    elif phase == "rebuild":
        memory.delete_message("t", "m0", resource="r")  # of the same chunk: its notes are being made again
    asked, go_on = threading.Event(), threading.Event()

    def hold(request: ModelRequest) -> None:
        if request.phase == ("reflect" if phase == "reflect" else "observe"):
            asked.set()
            assert go_on.wait(30)

    model.before = hold
    runner = JobRunner(memory.services)
    queues = ("reflection",) if phase == "reflect" else ("observation", "buffering")
    outcomes: list[str | None] = []
    worker = threading.Thread(target=lambda: outcomes.extend(runner.run(queue) for queue in queues))
    worker.start()
    assert asked.wait(30)
    remove: dict[str, Callable[[], Any]] = {
        "delete_message": lambda: memory.delete_message("t", "secret", resource="r"),
        "rewind": lambda: memory.rewind("t", 0, resource="r"),
        "delete_thread": lambda: memory.delete_thread("t", resource="r"),
        "delete_resource": lambda: memory.delete_resource("r"),
    }
    remove[how]()
    model.before = lambda _: None
    go_on.set()
    worker.join(30)
    runner.close()

    assert "lost" in outcomes
    assert places_of(MARKER, database_url) == []
    if how in {"delete_message", "rewind"}:
        settle(memory)
        holds(memory)
    else:
        assert memory.threads().items == ()
    assert places_of(MARKER, database_url) == []


def test_removals_and_work_of_all_kinds_at_once_end_without_deadlock_and_with_every_promise_kept(
    memory: Memory, database_url: str
) -> None:
    shared(memory)
    faults: list[BaseException] = []

    def run(steps: Sequence[Callable[[], object]]) -> None:
        for step in steps:
            try:
                step()
            except (NotFoundError, ConflictError, InvalidInputError):
                pass
            except BaseException as error:
                faults.append(error)

    def talk(thread: str) -> list[Callable[[], object]]:
        return [partial(fill, memory, n, 1, thread) for n in range(200, 212)]

    work: list[Callable[[], object]] = [partial(work_off, memory.services)] * 6
    remove: list[Callable[[], object]] = [
        partial(memory.delete_message, "t", f"m{n}", resource="r") for n in range(0, 24, 3)
    ]
    back: list[Callable[[], object]] = [partial(memory.rewind, "other", 40, resource="r")] * 3
    look: list[Callable[[], object]] = [partial(memory.context, "other", resource="r")] * 12
    plans = (talk("t"), talk("other"), work, work, remove, back, look)
    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert faults == []
    for name in ("t", "other"):
        settle(memory, name)
        holds(memory, name)
    memory.delete_message("t", "secret", resource="r")
    assert places_of(MARKER, database_url) == []
