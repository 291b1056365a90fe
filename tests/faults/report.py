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
    parked: int = 0
    """Ranges that only a short extract stands for, and jobs given up: no outage may cost notes."""
    turns_repeated: int = 0
    """Steps that the client sent again because the database was away."""
    slowest_turn_s: float = 0.0
    seconds: float = 0.0
    problems: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        broken = self.turns_failed or self.messages_lost or self.messages_twice or self.parked or self.problems
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
    "turns failed": "turns_failed",
    "lost": "messages_lost",
    "twice": "messages_twice",
    "parked": "parked",
    "model calls": "model_calls",
    "wasted": "model_calls_wasted",
    "leases to recover": "recovery_leases",
    "slowest turn": "slowest_turn_s",
    "seconds": "seconds",
}


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
