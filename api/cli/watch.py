"""`om watch`: token bars against their thresholds, and events as they come."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from api.cli.options import Resource, Tenant, Thread
from om_core.services.event_text import event_line

if TYPE_CHECKING:
    from rich.console import Group

    from om_core.memory import Memory
    from om_core.ports import EventRow

PERIOD_S: Final = 0.5
EVENTS_SHOWN: Final = 12
FIRST_EVENTS: Final = 5


def watch(
    thread: Thread,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0, help="End after so long (for scripts).")
    ] = None,
    resource: Resource = None,
    tenant: Tenant = None,
) -> None:
    """Watch a thread live until Ctrl-C: token bars and events. Without a terminal it prints lines."""
    from api.cli.connect import open_memory

    with open_memory(tenant) as memory:
        view = _Live(memory, thread, resource)
        deadline = None if seconds is None else time.monotonic() + seconds
        (_draw if sys.stdout.isatty() else _print_lines)(view, deadline)


class _Live:
    """What changed since the last look."""

    def __init__(self, memory: Memory, thread: str, resource: str | None) -> None:
        self._memory, self._thread, self._resource = memory, thread, resource
        self._last_id: str | None = None
        self._started = False
        self.status: dict[str, Any] = {}

    def look(self) -> list[EventRow]:
        """Read the status, and the events since the last look (at first the newest few)."""
        self.status = self._memory.status(self._thread, resource=self._resource)
        limit = 200 if self._started else FIRST_EVENTS
        rows = self._memory.events(self._thread, resource=self._resource, last_id=self._last_id, limit=limit)
        self._started = True
        if rows:
            self._last_id = rows[-1].id
        elif self._last_id is None:
            self._started = False
        return list(rows)


def _pause(pause: threading.Event, deadline: float | None) -> bool:
    """Wait for the next look; False when it is time to end."""
    left = PERIOD_S if deadline is None else min(PERIOD_S, deadline - time.monotonic())
    if left <= 0:
        return False
    pause.wait(left)
    return True


def _draw(view: _Live, deadline: float | None) -> None:
    from rich.live import Live

    from api.cli.output import console

    shown: deque[str] = deque(maxlen=EVENTS_SHOWN)
    shown.extend(event_line(row) for row in view.look())
    with Live(_frame(view, shown), console=console(), auto_refresh=False) as live:
        while _pause(threading.Event(), deadline):
            shown.extend(event_line(row) for row in view.look())
            live.update(_frame(view, shown), refresh=True)


def _frame(view: _Live, events: deque[str]) -> Group:
    from rich.console import Group
    from rich.text import Text

    from api.cli.reading import status_lines

    lines = [line if isinstance(line, Text) else Text(line) for line in status_lines(view.status)]
    return Group(*lines, Text(), *(Text(line, style="dim") for line in events))


def _print_lines(view: _Live, deadline: float | None) -> None:
    from api.cli.output import say

    before = ""
    while True:
        for row in view.look():
            say(event_line(row))
        if (line := _status_line(view.status)) != before:
            say(line)
            before = line
        if not _pause(threading.Event(), deadline):
            return


def _status_line(status: dict[str, Any]) -> str:
    active = status["windows"]["active"]
    messages, notes = active["messages"], active["observations"]
    running = ", ".join(job["kind"] for job in status["running"]) or "nothing"
    return (
        f"messages {messages['tokens']:,}/{messages['threshold']:,}  notes {notes['tokens']:,}/{notes['threshold']:,}  "
        f"buffered {status['windows']['buffered']['observations']['chunks']}  running {running}"
    )
