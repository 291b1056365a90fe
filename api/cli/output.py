"""What commands print: JSON, tables, token bars. Content is printed as it is, never read as markup."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.text import Text

WIDEST = 240
"""Columns of a pipe: a line for people is not cut at the 80 that rich assumes."""


def emit_json(value: Any) -> None:
    """The one document of a `--json` command."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def say(text: str = "") -> None:
    """A line on stdout."""
    print(text, flush=True)


def note(text: str) -> None:
    """A line on stderr: progress and notices, which are not the result."""
    print(text, file=sys.stderr, flush=True)


def console(*, stderr: bool = False) -> Console:
    """A terminal with colours where it has some."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - rich calls this from its handler; `run` decides what a closed pipe means

    made = Quiet(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = WIDEST
    return made


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> None:
    """A plain table; `right` names the columns of numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    numbers = set(right)
    for header in headers:
        table.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_cell(cell)) for cell in row))
    console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def bar(label: str, value: int, limit: int, *, width: int = 30) -> Text:
    """`messages  ██████░░░░  12,000 / 30,000`; red from the limit on."""
    from rich.text import Text

    share = min(1.0, value / limit) if limit else 0.0
    full = round(share * width)
    colour = "red" if value >= limit > 0 else "yellow" if share >= 0.8 else "green"
    return Text.assemble(
        f"{label:<13}", ("█" * full, colour), ("░" * (width - full), "dim"), f"  {value:,} / {limit:,} tokens"
    )


def ago(seconds: float | None) -> str:
    """`42 s`, `3 min`, `5 h`, `2 d`."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
