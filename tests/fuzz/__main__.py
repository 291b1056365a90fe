"""`make fuzz`: play seeds, hunt the mutants, write `.om/reports/fuzz.json`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz.campaign import MUTANT_SEEDS, PROCESS_EVERY, Report, arena, hunt, run
from tests.fuzz.quiet import silence
from tests.support.processes import ROOT
from tests.support.servers import running_servers

REPORT: Final = ROOT / ".om" / "reports" / "fuzz.json"


def main(arguments: list[str] | None = None) -> int:
    """Play; the exit code is 1 if anything did not hold, or if a mutant was not caught."""
    options = _parse(arguments)
    silence()
    console = Console()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with running_servers() as servers, arena(servers) as place:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("seeds", total=len(seeds))

            def done(report: Report) -> None:
                progress.advance(task)
                if options.seed is None and report.seeds % 20 == 0:
                    _write(options.report, report)  # what a long run has found so far

            report = run(
                place,
                seeds,
                process_every=options.process_every,
                told=lambda line: console.print(line, markup=False),
                done=done,
            )
        if options.seed is None and options.mutants:
            with console.status("mutants"):
                report.mutants = hunt(place)
    if options.seed is None:
        _write(options.report, report)
    _tell(console, report)
    return 1 if report.violations or None in report.mutants.values() else 0


def _tell(console: Console, report: Report) -> None:
    console.print(
        f"{report.seeds} seeds, {report.operations} operations, {report.process_runs} runs of two processes,"
        f" {report.violations} violations, {report.seconds:.0f} s"
    )
    for name, seeds in report.mutants.items():
        console.print(
            f"without {name}: " + (f"caught after {seeds} seeds" if seeds else f"not in {MUTANT_SEEDS} seeds")
        )


def _write(path: Path, report: Report) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n")
    fresh.replace(path)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Interleave everything, from seeds.")
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds; default 50")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, again; no report")
    parser.add_argument(
        "--process-every",
        type=int,
        default=PROCESS_EVERY,
        help="every how many seeds two real processes play; 0: never",
    )
    parser.add_argument("--no-mutants", dest="mutants", action="store_false", help="do not hunt the mutants")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the report goes")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
