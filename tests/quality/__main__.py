"""`make quality`: shorten dialogues by each method, look for their answers, write `.om/reports/quality.json`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from om_core.bootstrap import Located, build_services
from om_core.config import SecretUrl, Settings
from om_core.memory import Memory
from om_core.services.deps import Policies
from tests.benchmarks.report import write
from tests.quality.baselines import METHODS
from tests.quality.dialogues import Dialogue, load
from tests.quality.pipeline import Observed, options
from tests.quality.score import Judge, Row
from tests.support.data import data_folder
from tests.support.processes import ROOT
from tests.support.servers import running_servers

REPORT: Final = ROOT / ".om" / "reports" / "quality.json"
COMPRESSIONS: Final = (3.0, 5.0, 10.0)
SHOWN_COMPRESSION: Final = 5.0
WIDTH: Final = 120
"""Of the table where the output is no terminal."""

MemoryFor: TypeAlias = Callable[[float], Memory]


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit code is 2 when there is no test data."""
    given = _parse(arguments)
    console = Console(stderr=True)
    folder = data_folder()
    dialogues = [one for one in load(folder) if not given.only or one.name in given.only]
    if not dialogues:
        console.print(f"no dialogues under {folder}: set OM_TEST_DATA to a folder that holds locomo/ or longmemeval/")
        return 2
    rows: dict[tuple[str, str, float], Row] = {}
    sample: Observed | None = None
    with _progress(console) as bar, _memories() as memory_for:
        steps = len(given.compressions) * (len(METHODS) + 1) + 1
        task = bar.add_task("", total=steps * sum(len(one.turns) for one in dialogues))
        for dialogue in dialogues:
            for row, observed in _measure(dialogue, given.compressions, memory_for, bar, task):
                key = (row.dataset, row.method, row.compression)
                rows.setdefault(key, Row(*key)).add(row)
                if sample is None and row.compression == SHOWN_COMPRESSION:
                    sample = observed
    found = [rows[key] for key in sorted(rows, key=lambda key: (key[0], key[2], key[1]))]
    write(given.report, [row.to_json() for row in found])
    out = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    out.print(_table(found))
    if sample is not None and given.notes:
        out.print(f"\n{given.notes} notes of {dialogues[0].name} at {SHOWN_COMPRESSION:g}×:", style="bold")
        for line in _some(sample.lines(), given.notes):
            out.print(line, soft_wrap=True, markup=False, highlight=False)
    out.print(f"report: {given.report}", soft_wrap=True)
    return 0


def _measure(
    dialogue: Dialogue, compressions: Sequence[float], memory_for: MemoryFor, bar: Progress, task: TaskID
) -> Iterator[tuple[Row, Observed | None]]:
    """One dialogue by each method at each compression, the bar moved on."""
    judge = Judge.of(dialogue)
    bar.update(task, description=f"{dialogue.name} full")
    yield judge.full(), None
    bar.advance(task, len(dialogue.turns))
    for compression in compressions:
        bar.update(task, description=f"{dialogue.name} offline {compression:g}×")
        yield judge.offline(memory_for(compression), compression, lambda messages: bar.advance(task, messages))
        for name in METHODS:
            bar.update(task, description=f"{dialogue.name} {name} {compression:g}×")
            yield judge.baseline(name, compression), None
            bar.advance(task, len(dialogue.turns))


@contextmanager
def _memories() -> Iterator[MemoryFor]:
    """Memory on embedded servers for each compression, with the offline model and nobody else at work."""
    with running_servers() as servers, servers.new_database() as url:
        settings = Settings(database_url=SecretUrl(url), model="offline/extractive", auth="off")
        services = build_services(settings, Located(database_url=url, redis_url=None, embedded=False))
        try:
            yield lambda compression: Memory(replace(services, policies=Policies(options(compression))))
        finally:
            services.store.close()


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        yield bar


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="om quality", title_justify="left")
    for name in ("dataset", "method"):
        table.add_column(name, no_wrap=True)
    for name in ("asked", "reached", "tokens", "answers", "vs ceiling", "evidence", "cacheable"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        shown = row.to_json()
        table.add_row(
            row.dataset,
            row.method,
            f"{row.compression:g}×",
            f"{shown['compression_reached']:.2f}×",
            f"{row.tokens:,}",
            *(
                f"{shown[name]:.3f}"
                for name in ("answer_share", "answer_vs_ceiling", "evidence_share", "cacheable_share")
            ),
        )
    return table


def _some(lines: Sequence[str], number: int) -> list[str]:
    """So many of the lines, at equal distances."""
    number = min(number, len(lines))
    return [lines[index * len(lines) // number] for index in range(number)]


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.quality", description="Measure what notes keep.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the dialogues, such as conv-26")
    parser.add_argument("--compressions", nargs="+", type=float, default=list(COMPRESSIONS), metavar="X")
    parser.add_argument("--notes", type=int, default=10, metavar="N", help="notes to print; default 10")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the report goes")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
