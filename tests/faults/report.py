"""What the faults came to: one row per fault, the table, and the report (API 1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from tests.support.processes import ROOT

REPORT: Final = ROOT / ".om" / "reports" / "faults.json"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault.

    `recovery_leases` is the slowest recovery, in leases: of a dead or frozen worker's job until another has claimed
    it, of an outage until every job that was live at its end is done; None where nothing had to recover.
    `model_calls_wasted` are answers that were asked for more than once, or whose notes were never stored.
    """

    fault: str
    injected: int
    turns: int
    turns_failed: int
    messages_lost: int
    messages_twice: int
    model_calls_wasted: int
    recovery_leases: float | None
    recovery_leases_median: float | None = None
    model_calls: int = 0
    messages: int = 0
    given_up: int = 0
    """Ranges halved or parked and jobs that counted a failure or were discarded: an outage is not the input's fault."""
    turns_repeated: int = 0
    """Steps that the client sent again because the database was away."""
    slowest_turn_s: float = 0.0
    seconds: float = 0.0
    problems: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        broken = self.turns_failed or self.messages_lost or self.messages_twice or self.given_up or self.problems
        return not broken and self.injected > 0


def document(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The report: a list of objects, numbers as numbers."""
    return [{**asdict(row), "problems": list(row.problems)} for row in rows]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Replace the report; a reader never sees half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(document(rows), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)


COLUMNS: Final = {
    "times": "injected",
    "turns": "turns",
    "turns\nfailed": "turns_failed",
    "messages": "messages",
    "lost": "messages_lost",
    "covered\ntwice": "messages_twice",
    "given\nup": "given_up",
    "model\ncalls": "model_calls",
    "calls\nwasted": "model_calls_wasted",
    "leases to\nrecover": "recovery_leases",
    "slowest\nturn, s": "slowest_turn_s",
}
WIDTH: Final = 140
"""The table is readable from here on; a file or a pipe has no width of its own."""


def table(rows: Sequence[Row]) -> Table:
    shown = Table(title="om faults", title_justify="left")
    shown.add_column("fault", no_wrap=True)
    for title in COLUMNS:
        shown.add_column(title, justify="right")
    shown.add_column("", no_wrap=True)
    for row in rows:
        values = [_number(getattr(row, name)) for name in COLUMNS.values()]
        shown.add_row(row.fault, *values, "[green]ok[/green]" if row.holds else "[red]broken[/red]")
    return shown


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.1f}"
