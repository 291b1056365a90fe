"""Waiting for a job: one poller per process asks for all awaited jobs in one statement (DESIGN 6.4).

No connection and no pool thread is held: a waiter gets a future, to be awaited by a thread or by an event loop.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from om_core.domain.job import LIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from om_core.ports import Store

POLL_S = 0.05
CLOSED: Final = "closed"
"""The result of a wait that ended with its poller: what became of the job is not known here."""


class JobWaiter:
    """Futures of jobs, each resolved with the job's final state."""

    def __init__(self, store: Store, *, poll_s: float = POLL_S) -> None:
        self._store = store
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._waiting: dict[int, list[Future[str]]] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._closed = False

    def watch(self, job_id: int) -> Future[str]:
        """A future of the state in which the job stops being live; `gone` when it does not exist, `closed` when this
        poller ends first.
        """
        future: Future[str] = Future()
        with self._lock:
            if self._closed:
                future.set_result(CLOSED)
                return future
            self._waiting.setdefault(job_id, []).append(future)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="om-job-waiter", daemon=True)
                self._thread.start()
        self._wake.set()
        return future

    def close(self) -> None:
        """Stop polling; open futures end with `closed`."""
        with self._lock:
            self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        with self._lock:
            left = [future for futures in self._waiting.values() for future in futures]
            self._waiting.clear()
        _resolve(left, CLOSED)

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                ids = list(self._waiting)
            if ids:
                self._ask(ids)
                self._wake.wait(self._poll_s)
                self._wake.clear()
            else:
                self._wake.wait()
                self._wake.clear()

    def _ask(self, ids: list[int]) -> None:
        try:
            states = self._store.system.job_states(ids)
        except Exception:  # the database is away: ask again; each waiter has its own time limit
            return
        for job_id in ids:
            state = states.get(job_id, "gone")
            if state in LIVE_STATES:
                self._forget_cancelled(job_id)
                continue
            with self._lock:
                futures = self._waiting.pop(job_id, [])
            _resolve(futures, state)

    def _forget_cancelled(self, job_id: int) -> None:
        with self._lock:
            left = [future for future in self._waiting.get(job_id, ()) if not future.cancelled()]
            if left:
                self._waiting[job_id] = left
            else:
                self._waiting.pop(job_id, None)


def _resolve(futures: Iterable[Future[str]], state: str) -> None:
    """End the futures that nobody has cancelled; no lock is held, as their callbacks are run."""
    for future in futures:
        if future.set_running_or_notify_cancel():
            future.set_result(state)
