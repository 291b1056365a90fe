"""Telling streams that there are new events: one poller per process, one statement for all its readers (API 4).

A reader holds no connection and no thread while nothing happens. It is only woken here; the events themselves it reads
as its own tenant, after the last id it has sent, so that a wake too many or too few costs a look and loses nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.ports import EventRow, News, Store

POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Watch:
    """One reader: of a thread, of a resource, or (both None) of a whole tenant."""

    tenant: str
    thread_id: int | None
    resource_id: str | None
    wake: Callable[[], None]

    def concerns(self, target: tuple[str, int, str]) -> bool:
        tenant, thread_id, resource_id = target
        return (
            tenant == self.tenant
            and self.thread_id in {None, thread_id}
            and (self.thread_id is not None or self.resource_id in {None, resource_id})
        )


class EventFeed:
    """Wakes readers. Its thread runs while somebody watches."""

    def __init__(self, store: Store, *, poll_s: float = POLL_S) -> None:
        self._store = store
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._watches: dict[str, set[Watch]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        """Whether streams should end: the process stops."""
        return self._closed.is_set()

    def watch(
        self, tenant: str, wake: Callable[[], None], *, thread_id: int | None = None, resource_id: str | None = None
    ) -> Watch:
        """Have `wake` called, from the feed's thread, whenever the target may have new events. End it with `forget`."""
        watch = Watch(tenant=tenant, thread_id=thread_id, resource_id=resource_id, wake=wake)
        with self._lock:
            self._watches.setdefault(tenant, set()).add(watch)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="om-event-feed", daemon=True)
                self._thread.start()
        return watch

    def forget(self, watch: Watch) -> None:
        with self._lock:
            left = self._watches.get(watch.tenant, set())
            left.discard(watch)
            if not left:
                self._watches.pop(watch.tenant, None)

    def stop(self) -> None:
        """Have every stream woken to see `closed` and end. Takes no lock: a signal handler may call it."""
        self._closed.set()

    def close(self) -> None:
        """`stop`, and wait for the thread."""
        self.stop()
        if (thread := self._thread) is not None:
            thread.join(timeout=5)

    def _run(self) -> None:
        position: str | None = None
        while not self._closed.is_set():
            news = self._ask(position)
            if news is None:
                position = None
            elif position is None:
                position = news.position
                self._wake(None)  # what happened before the first look, or while the database was away
            else:
                position = news.position
                self._wake(news.targets)
            if news is None or not news.more:
                self._closed.wait(self._poll_s)
            with self._lock:
                if not self._watches:
                    self._thread = None
                    return
        self._wake(None)

    def _ask(self, position: str | None) -> News | None:
        try:
            return self._store.system.news(position)
        except Exception:  # the database is away: begin anew when it is back
            return None

    def _wake(self, targets: frozenset[tuple[str, int, str]] | None) -> None:
        """Wake the readers of these targets; None: all."""
        with self._lock:
            if targets is None:
                found = [watch for watches in self._watches.values() for watch in watches]
            else:
                found = [
                    watch for target in targets for watch in self._watches.get(target[0], ()) if watch.concerns(target)
                ]
        for watch in set(found):
            watch.wake()


def first_position(store: Store, tenant: str) -> str:
    """Where a stream begins that asks for nothing older than now."""
    with store.reading(tenant) as tx:
        return tx.events.position()


def read_events(store: Store, watch: Watch, last_id: str, *, limit: int) -> tuple[EventRow, ...]:
    """A reader's next events, oldest first.

    Raises:
        InvalidInputError: `last_id` is no event id.
    """
    with store.reading(watch.tenant) as tx:
        return tx.events.after(thread_id=watch.thread_id, resource_id=watch.resource_id, last_id=last_id, limit=limit)
