"""Ringing: job ids go into a bounded queue, and a background thread sends them to Celery.

A turn never waits for the broker. A lost ring is harmless, since the sweep of any worker finds the job.
"""

from __future__ import annotations

import contextlib
import os
import random  # jitter of the pauses between probes
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from om_core.metrics import RING_FAILURES
from om_core.telemetry import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from om_core.domain.job import JobRef

log = get_logger("om.rings")

CAPACITY: Final = 10_000
KEEP_S: Final = 10.0
"""Rings that are older when the broker is back are dropped: the sweep has done their jobs, or rings them itself."""
SOCKET_TIMEOUT_S: Final = 1.0
PAUSES_S: Final = (0.5, 10.0)
"""First and longest pause before the broker is tried again."""


@dataclass(frozen=True, slots=True)
class RingStats:
    """Counts since the dispatcher was made. `failures` are attempts to reach the broker, `dropped` are rings."""

    sent: int
    dropped: int
    failures: int
    waiting: int


class CeleryDispatcher:
    """Implements `ports.JobDispatcher`. The thread and the connection come with the first ring, and again after a fork.

    Args:
        redis_url: the broker's address, as in OM_REDIS_URL.
        capacity: rings that may wait; of more, the oldest are dropped.
        pauses_s: first and longest pause between attempts while the broker is away.
    """

    def __init__(self, redis_url: str, *, capacity: int = CAPACITY, pauses_s: tuple[float, float] = PAUSES_S) -> None:
        self._redis_url = redis_url
        self._capacity = capacity
        self._pauses_s = pauses_s
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, JobRef]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._healthy = True
        self._sent = self._dropped = self._failures = 0
        self._probing = threading.Lock()
        self._probe: _Line | None = None

    @property
    def healthy(self) -> bool:
        """False from a failure until the broker takes something again; the sweep then does the work itself."""
        return self._healthy

    @property
    def stats(self) -> RingStats:
        with self._changed:
            return RingStats(self._sent, self._dropped, self._failures, len(self._waiting))

    def ring(self, jobs: Iterable[JobRef]) -> None:
        """Hand over and return at once."""
        if self._pid != os.getpid():
            self._reset()  # a forked child has neither the thread nor a right to the parent's connection
        now = time.monotonic()
        with self._changed:
            for job in jobs:
                self._put(now, job)
            if self._waiting and self._thread is None:
                self._start()
            self._changed.notify_all()

    def ping(self, timeout_s: float) -> None:
        """Write to the broker on a connection of its own, for a readiness probe.

        Args:
            timeout_s: most to wait for the connection and for each answer, as the first caller gives it.

        Raises:
            Exception: whatever the transport raises when the broker does not take a write.
        """
        with self._probing:
            if self._probe is None:
                self._probe = _Line(self._redis_url, timeout_s=min(timeout_s, SOCKET_TIMEOUT_S))
            try:
                self._probe.probe()
            finally:
                self._probe.hang_up()

    def close(self) -> None:
        """Send what waits, for at most a second, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and self._pid == os.getpid():
            thread.join(timeout=1.0)

    def _put(self, now: float, job: JobRef) -> None:
        if self._closed:
            self._dropped += 1
            return
        if len(self._waiting) >= self._capacity:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append((now, job))

    def _start(self) -> None:
        thread = threading.Thread(target=self._publish, name="om-rings", daemon=True)
        with contextlib.suppress(RuntimeError):  # the interpreter is ending: the sweep of a worker rings instead
            thread.start()
            self._thread = thread

    def _publish(self) -> None:
        line = _Line(self._redis_url)
        while (job := self._next()) is not None:
            try:
                line.send(job)
            except Exception as error:  # whatever the transport raises, a ring is lost, never the publisher
                line.hang_up()
                self._broke(error, lost=1)
                self._wait_for_broker(line)
            else:
                self._worked(sent=1)
        line.hang_up()

    def _next(self) -> JobRef | None:
        """The oldest ring, as soon as there is one; None when it is time to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting or (self._closed and not self._healthy):
                return None
            return self._waiting.popleft()[1]

    def _wait_for_broker(self, line: _Line) -> None:
        """Try again with growing pauses until the broker takes a write; then forget what waited for too long."""
        pause_s, longest_s = self._pauses_s
        while not self._pause(pause_s * random.uniform(0.75, 1.25)):
            try:
                line.probe()
            except Exception as error:  # as above: any failure means that the broker is still away
                line.hang_up()
                self._broke(error)
                pause_s = min(longest_s, pause_s * 2)
            else:
                self._worked(sent=0)
                self._forget(time.monotonic() - KEEP_S)
                return

    def _pause(self, seconds: float) -> bool:
        """Wait, unless closed; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, timeout=seconds)

    def _broke(self, error: Exception, *, lost: int = 0) -> None:
        with self._changed:
            first, self._healthy = self._healthy, False
            self._failures += 1
            RING_FAILURES.inc()
            self._dropped += lost
        if first:
            log.warning(
                "broker away: workers find the jobs by themselves", error=f"{type(error).__name__}: {error}"[:300]
            )

    def _worked(self, *, sent: int) -> None:
        with self._changed:
            back, self._healthy = not self._healthy, True
            self._sent += sent
            dropped = self._dropped
        if back:
            log.info("broker back", dropped=dropped)

    def _forget(self, before: float) -> None:
        with self._changed:
            while self._waiting and self._waiting[0][0] < before:
                self._waiting.popleft()
                self._dropped += 1


class _Line:
    """The publisher's own connection: used by one thread at a time, opened when needed, never retried."""

    def __init__(self, redis_url: str, *, timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        self._redis_url = redis_url
        self._timeout_s = timeout_s
        self._app: Any = None
        self._connection: Any = None
        self._channel: Any = None

    def send(self, job: JobRef) -> None:
        """Put one ring into its queue."""
        from workers.tasks import TASK_OF

        if self._channel is None:
            self._open()
        self._app.send_task(
            TASK_OF[job.kind],
            kwargs={
                "job": job.id,
                "kind": job.kind.value,
                "thread": job.thread,
                "attempt": job.attempt,
                "tenant": job.tenant_id,
            },
            queue=job.queue.value,
            producer=self._app.amqp.Producer(self._channel, auto_declare=False),
            ignore_result=True,
            retry=False,
        )

    def probe(self) -> None:
        """Write something: a full Redis, or a replica, still answers pings."""
        self._open()
        self._channel.client.set("probe", 1, ex=60)

    def hang_up(self) -> None:
        """Drop the connection, in whatever state it is."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _open(self) -> None:
        if self._app is None:
            from workers.app import build_app  # Celery takes 0.1 s to import, here in the background

            self._app = build_app(self._redis_url, socket_timeout_s=self._timeout_s)
        self._connection = self._app.connection_for_write()
        self._connection.ensure_connection(max_retries=0)
        self._channel = self._connection.channel()


def build_dispatcher(redis_url: str) -> CeleryDispatcher:
    """The entry point `om.dispatcher`."""
    return CeleryDispatcher(redis_url)
