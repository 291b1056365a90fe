"""The wait at `block_after` (DESIGN 6.4): only where it can help, never longer than allowed, not twice in vain."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.services.local import LocalDispatcher, LocalWorker
from tests.support.fixtures import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.ports import ModelReply, ModelRequest
    from om_core.services.deps import Services

BLOCK_S = 20.0
OPTIONS = {**SMALL, "observation": {**SMALL["observation"], "buffer_tokens": 0.9, "block_timeout": BLOCK_S * 1000}}
TEXT = "the blue box goes to the Berlin office on Friday and Maria calls them " * 4


class GatedModel:
    """The offline model behind a gate: calls wait until the test opens it."""

    def __init__(self, services: Services) -> None:
        self._model = services.model
        self.gate = threading.Event()
        self.calls = 0

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: threading.Event | None) -> ModelReply:
        self.calls += 1
        assert self.gate.wait(60)
        return self._model.complete(request, timeout_s=timeout_s, cancelled=cancelled)

    def window_tokens(self, model: str) -> int | None:
        return self._model.window_tokens(model)


@pytest.fixture
def gated(services: Services) -> GatedModel:
    return GatedModel(services)


@pytest.fixture
def worked(services_with: Callable[..., Services], gated: GatedModel) -> Iterator[Memory]:
    """Memory with a worker beside it, whose model waits at the gate."""
    local = LocalDispatcher()
    services = services_with(OPTIONS, dispatcher=local, model=gated)
    worker = LocalWorker(services, local, period_s=0.2)
    worker.start()
    memory = Memory(services)
    yield memory
    gated.gate.set()
    memory.close()
    worker.stop()


def fill(memory: Memory, count: int) -> None:
    """Messages of about 65 tokens; twenty reach `block_after` (1,200)."""
    for n in range(count):
        memory.append("t", [{"role": "assistant" if n % 2 else "user", "content": f"{n} {TEXT}"}], resource="r")


@pytest.mark.report("A04")
def test_below_block_after_nobody_waits(worked: Memory) -> None:
    fill(worked, 17)
    thread = worked.get_thread("t", resource="r")
    assert 1000 <= thread.pending_tokens < 1200

    assert worked.context("t", resource="r").context.waited_s == 0


@pytest.mark.conforms("11.25")
@pytest.mark.report("A03")
def test_at_block_after_a_context_waits_for_the_chunk_and_comes_back_smaller(worked: Memory, gated: GatedModel) -> None:
    fill(worked, 25)
    threading.Timer(0.3, gated.gate.set).start()

    context = worked.context("t", resource="r").context

    assert 0 < context.waited_s < BLOCK_S
    assert context.activated is not None
    assert context.tokens.messages < 1200
    assert check_coverage(worked.services, "default", "t", "r").holds


def test_the_job_waited_for_is_raised_to_the_queue_of_those_waited_for(worked: Memory, gated: GatedModel) -> None:
    fill(worked, 25)
    threading.Timer(0.3, gated.gate.set).start()
    worked.context("t", resource="r")

    [job] = [job for job in worked.jobs(kind="observe").items if job["awaited"]]
    assert job["queue"] == "observation"


@pytest.mark.conforms("11.22")
@pytest.mark.report("K01")
@pytest.mark.parametrize("wait", ["threads", "event loop"])
def test_a_wait_in_vain_ends_in_time_and_is_not_repeated(
    services_with: Callable[..., Services], gated: GatedModel, wait: str
) -> None:
    options = {**OPTIONS, "observation": {**OPTIONS["observation"], "block_timeout": 300}}
    local = LocalDispatcher()
    services = services_with(options, dispatcher=local, model=gated)
    worker = LocalWorker(services, local, period_s=0.2)
    worker.start()
    memory = Memory(services)
    fill(memory, 25)

    def context() -> float:
        if wait == "threads":
            return memory.context("t", resource="r").context.waited_s
        return asyncio.run(memory.context_async("t", resource="r")).context.waited_s

    try:
        first, second = context(), context()
    finally:
        gated.gate.set()
        memory.close()
        worker.stop()

    assert first >= 0.29
    assert second == 0


def test_without_a_worker_nobody_waits_and_the_larger_window_is_returned(
    services_with: Callable[..., Services],
) -> None:
    memory = Memory(services_with(OPTIONS))
    fill(memory, 25)

    context = memory.context("t", resource="r").context

    assert context.waited_s == 0
    assert context.over_budget
    assert len(context.messages) == 25
    memory.close()


def test_a_read_only_context_changes_nothing_and_never_waits(worked: Memory, gated: GatedModel) -> None:
    fill(worked, 25)
    before = worked.get_thread("t", resource="r")

    context = worked.context("t", resource="r", read_only=True).context

    assert context.waited_s == 0
    after = worked.get_thread("t", resource="r")
    assert (after.observed_seq, after.prefix_version) == (before.observed_seq, before.prefix_version)


def test_the_cap_leaves_out_the_oldest_turns_and_they_are_observed_later(worked: Memory, gated: GatedModel) -> None:
    fill(worked, 25)

    context = worked.context("t", resource="r", max_tokens=1100, wait=False).context

    assert context.trimmed is not None
    assert context.tokens.total <= 1100
    assert worked.get_thread("t", resource="r").shown_from_seq > 1
    gated.gate.set()
    assert worked.flush("t", resource="r", wait_s=30)["observe"]["state"] == "completed"
    assert check_coverage(worked.services, "default", "t", "r").holds
