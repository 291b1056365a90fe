"""What the measurements say: targets, the report, and the table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table


@dataclass(frozen=True)
class Field:
    """One number of the report. `at_most` or `at_least` is its target; neither: it is only reported."""

    name: str
    meaning: str
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""

    def met(self, value: float) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.at_most is not None:
            return value <= self.at_most
        if self.at_least is not None:
            return value >= self.at_least
        return None

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}{self.unit}"
        if self.at_least is not None:
            return f"≥ {self.at_least:g}{self.unit}"
        return ""


FIELDS: Final = (
    Field("turn_vs_insert", "storing and deciding a step, in bare inserts", at_most=8, unit="×"),
    Field("turn_growth", "a step at 100,000 messages against 1,000", at_most=1.10, unit="×"),
    Field("sql_per_turn", "most statements of a step", at_most=6),
    Field("sql_per_context", "most statements of a context", at_most=4),
    Field("activation_growth", "activation on a log of 40,000 tokens against an empty one", at_most=1.20, unit="×"),
    Field("jobs_vs_noop", "jobs per second against no-op tasks", at_least=0.3, unit="×"),
    Field("tokens_mb_per_s", "counting tokens of a real conversation", unit=" MB/s"),
    Field("concurrent_model_calls", "model calls at once in one worker process", at_least=32),
    Field("worker_rss_mb", "memory of that process", at_most=400, unit=" MB"),
    Field("turns_http_vs_library", "turns per second over HTTP against the library, 8 clients", unit="×"),
    Field("sse_reader_kb", "memory of an idle reader of events, of 2,000", unit=" KB"),
)
"""The report's numbers, in order, with the targets of the project."""

Results = Mapping[str, tuple[float, dict[str, Any]]]
"""Field -> (value, detail); a field that was not measured is missing."""


def document(results: Results, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The report: one number per field, and `detail` with medians and runs of each."""
    found = {field.name: _number(results[field.name][0]) for field in FIELDS if field.name in results}
    detail = {name: _numbers(detail) for name, (_, detail) in results.items()}
    return {**found, "detail": {**detail, "environment": dict(environment)}}


def write(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    """Replace the report; a reader never sees half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)


def missed(results: Results) -> list[str]:
    """Fields that were measured and are not within their target."""
    return [field.name for field in FIELDS if field.name in results and field.met(results[field.name][0]) is False]


def table(results: Results) -> Table:
    """The numbers with the target of each beside it."""
    shown = Table(title="om bench", title_justify="left")
    shown.add_column("measure", no_wrap=True)
    shown.add_column("what it is")
    shown.add_column("found", justify="right", no_wrap=True)
    shown.add_column("target", justify="right", no_wrap=True)
    shown.add_column("", no_wrap=True)
    for field in FIELDS:
        if field.name not in results:
            continue
        value = results[field.name][0]
        verdict = {True: "[green]ok[/green]", False: "[red]missed[/red]", None: ""}[field.met(value)]
        shown.add_row(field.name, field.meaning, f"{_number(value):g}{field.unit}", field.target, verdict)
    return shown


def _number(value: float) -> float:
    return value if isinstance(value, int) else round(value, 3)


def _numbers(value: Any) -> Any:
    """The same with floats rounded to six places, so that the file stays readable."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
