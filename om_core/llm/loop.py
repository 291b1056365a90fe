"""One asyncio loop in one daemon thread per process: model calls wait there, callers wait for them with a deadline.

Worker threads have no time limits of their own, and a read timeout does not bound an answer that drips in; a total
deadline on the coroutine does (DESIGN 5).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, TypeVar

from om_core.llm.library import close_clients

T = TypeVar("T")
CoroutineFactory: TypeAlias = Callable[[], Coroutine[Any, Any, T]]

CANCEL_CHECK_S: Final = 0.05
"""How often a waiting caller looks at its `cancelled` event: an Event cannot call back."""
GRACE_S: Final = 1.0
"""How much longer than the deadline a caller waits for a loop that is itself blocked."""
EXECUTOR_THREADS: Final = 64
"""LiteLLM prepares each call in the loop's thread pool; some providers block there while they fetch a credential."""


class CallCancelledError(Exception):
    """The caller's `cancelled` event was set before the call had an answer."""


class LoopThread:
    """Runs coroutines for synchronous callers. The thread starts with the first call, and again after a fork."""

    def __init__(self, name: str = "om-model-calls") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._forked_from: list[asyncio.AbstractEventLoop] = []
        _instances.add(self)

    def run(
        self, coro_factory: CoroutineFactory[T], *, timeout_s: float, cancelled: threading.Event | None = None
    ) -> T:
        """Run a coroutine on the loop and return its result; on time-out or cancellation the coroutine is cancelled.

        Args:
            coro_factory: makes the coroutine; called on the loop, inside the deadline.
            timeout_s: total deadline in seconds, whatever the coroutine waits for.
            cancelled: gives the call up early once it is set.

        Raises:
            TimeoutError: no result within `timeout_s`.
            CallCancelledError: `cancelled` was set.
        """
        if cancelled is not None and cancelled.is_set():
            raise CallCancelledError("cancelled before it started")
        if timeout_s <= 0:
            raise TimeoutError("no time left")
        future = asyncio.run_coroutine_threadsafe(_within(coro_factory, timeout_s), self._running_loop())
        try:
            _wait(future, timeout_s + GRACE_S, cancelled)
            return future.result(timeout=0)
        except concurrent.futures.CancelledError:
            raise CallCancelledError("the loop was closed") from None
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel what runs and stop the thread. A later call starts a new one."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=5.0)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                loop.set_default_executor(ThreadPoolExecutor(EXECUTOR_THREADS, thread_name_prefix=self._name))
                self._thread = threading.Thread(target=_serve, args=(loop,), name=self._name, daemon=True)
                self._thread.start()
                self._loop = loop
            return self._loop

    def _forget(self) -> None:
        """In a forked child: the thread did not survive, the lock may be held by nobody, the loop is the parent's."""
        self._lock = threading.Lock()
        if self._loop is not None:
            self._forked_from.append(self._loop)  # kept, so that its destructor does not touch shared sockets
        self._loop = self._thread = None


async def _within(coro_factory: CoroutineFactory[T], timeout_s: float) -> T:
    return await asyncio.wait_for(coro_factory(), timeout_s)


def _wait(future: concurrent.futures.Future[T], timeout_s: float, cancelled: threading.Event | None) -> None:
    """Return when the future is done; raise when `cancelled` is set or the time is up."""
    deadline = time.monotonic() + timeout_s
    while not future.done():
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the loop of model calls did not answer within {timeout_s:g} s")
        concurrent.futures.wait([future], timeout=left if cancelled is None else min(left, CANCEL_CHECK_S))
        if cancelled is not None and cancelled.is_set() and not future.done():
            raise CallCancelledError("cancelled while it waited for an answer")


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(close_clients())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


_instances: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


def _forget_all() -> None:
    for instance in list(_instances):
        instance._forget()  # noqa: SLF001  # same module; not for callers


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)

_shared: Final = LoopThread()


def shared_loop() -> LoopThread:
    """The loop thread of this process."""
    return _shared
