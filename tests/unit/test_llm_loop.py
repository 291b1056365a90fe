"""The loop thread: deadlines, cancellation, many calls at once, forks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from om_core.llm.loop import CallCancelledError, LoopThread, shared_loop


@pytest.fixture
def loop():
    thread = LoopThread("test-loop")
    yield thread
    thread.close()


async def forever():
    await asyncio.Event().wait()


async def value(result):
    return result


def test_a_result_comes_back(loop):
    assert loop.run(lambda: value(7), timeout_s=5) == 7


def test_an_exception_of_the_coroutine_is_raised_to_the_caller(loop):
    async def fail():
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        loop.run(fail, timeout_s=5)


@pytest.mark.report("K06")
def test_a_call_that_never_ends_is_cancelled_at_its_deadline(loop):
    cancelled = threading.Event()

    async def stubborn():
        try:
            await forever()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        loop.run(stubborn, timeout_s=0.05)
    assert cancelled.wait(5)


def test_the_deadline_holds_when_the_loop_itself_is_blocked(loop):
    release = threading.Event()

    async def blocking():
        release.wait(10)

    started = time.monotonic()
    try:
        with pytest.raises(TimeoutError):
            loop.run(blocking, timeout_s=0.05)
        assert time.monotonic() - started < 5
    finally:
        release.set()


def test_no_time_left_is_a_time_out_without_a_call(loop):
    with pytest.raises(TimeoutError):
        loop.run(lambda: pytest.fail("was called"), timeout_s=0)


def test_setting_the_event_ends_the_call_early(loop):
    running, stop, ended = threading.Event(), threading.Event(), threading.Event()

    async def waiting():
        running.set()
        try:
            await forever()
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(loop.run, waiting, timeout_s=60, cancelled=stop)
        assert running.wait(5)
        stop.set()
        with pytest.raises(CallCancelledError):
            call.result(timeout=5)
    assert ended.wait(5)


def test_an_event_that_is_set_already_prevents_the_call(loop):
    stop = threading.Event()
    stop.set()
    with pytest.raises(CallCancelledError):
        loop.run(lambda: pytest.fail("was called"), timeout_s=5, cancelled=stop)


def test_64_calls_wait_side_by_side(loop):
    barrier = asyncio.Barrier(64)

    async def meet():
        await barrier.wait()
        return barrier.parties

    with ThreadPoolExecutor(64) as pool:
        calls = [pool.submit(loop.run, meet, timeout_s=30) for _ in range(64)]
        assert [call.result(timeout=30) for call in calls] == [64] * 64


def test_closing_ends_running_calls_and_a_later_call_starts_again(loop):
    running = threading.Event()

    async def waiting():
        running.set()
        await forever()

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(loop.run, waiting, timeout_s=60)
        assert running.wait(5)
        loop.close()
        with pytest.raises(CallCancelledError):
            call.result(timeout=5)
    assert loop.run(lambda: value(1), timeout_s=5) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_loop_of_its_own():
    assert shared_loop().run(lambda: value(1), timeout_s=5) == 1
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(shared_loop().run(lambda: value(2), timeout_s=5)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read() == "2"
    os.waitpid(child, 0)
    assert shared_loop().run(lambda: value(3), timeout_s=5) == 3
