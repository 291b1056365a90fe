"""Progress of a replay: a bar on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_EVERY_S = 5.0


class Advance(Protocol):
    """Called after each step: messages of the step, activations so far."""

    def __call__(self, messages: int, activations: int, /) -> None: ...


@contextmanager
def progress(label: str, total: int) -> Iterator[Advance]:
    """Show how far a replay of `total` messages is."""
    if sys.stderr.isatty():
        with _bar(label, total) as advance:
            yield advance
    else:
        yield _Lines(label, total)


@contextmanager
def _bar(label: str, total: int) -> Iterator[Advance]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from api.cli.output import console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[activations]} activations"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total, activations=0)
        yield lambda messages, activations: shown.update(task, advance=messages, activations=activations)


class _Lines:
    """A quiet line every few seconds."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._done = 0
        self._last = time.monotonic()

    def __call__(self, messages: int, activations: int, /) -> None:
        self._done += messages
        if time.monotonic() - self._last >= LINE_EVERY_S or self._done >= self._total:
            self._last = time.monotonic()
            print(
                f"{self._label}: {self._done:,} of {self._total:,} messages, {activations} activations",
                file=sys.stderr,
                flush=True,
            )
