"""`make bench`: measure, print the ratios with their targets, write `.om/reports/bench.json`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from rich.console import Console

from tests.benchmarks.activation import activation_growth
from tests.benchmarks.calls import concurrent_model_calls
from tests.benchmarks.http import http_costs
from tests.benchmarks.jobs import jobs_vs_noop
from tests.benchmarks.report import document, missed, table, write
from tests.benchmarks.stage import QUICK, Effort, durable_servers
from tests.benchmarks.tokens import tokens_mb_per_s
from tests.benchmarks.turns import sql_counts, turn_growth, turn_vs_insert
from tests.support.servers import Servers

REPORT: Final = Path(".om/reports/bench.json")

Found: TypeAlias = tuple[float, dict[str, Any]]
Measurement: TypeAlias = Callable[[Servers, Effort], dict[str, Found]]


def _one(name: str, measure: Callable[[Servers, Effort], Found]) -> Measurement:
    return lambda servers, effort: {name: measure(servers, effort)}


MEASUREMENTS: Final[dict[str, Measurement]] = {
    "turn": _one("turn_vs_insert", turn_vs_insert),
    "growth": _one("turn_growth", turn_growth),
    "sql": sql_counts,
    "activation": _one("activation_growth", activation_growth),
    "jobs": _one("jobs_vs_noop", jobs_vs_noop),
    "tokens": _one("tokens_mb_per_s", lambda servers, effort: tokens_mb_per_s(effort)),
    "calls": concurrent_model_calls,
    "http": http_costs,
}


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit code is 1 with `--check` and a missed target, else 0."""
    options = _parse(arguments)
    console = Console()
    results: dict[str, Found] = {}
    seconds: dict[str, float] = {}
    with durable_servers() as servers:
        for name in options.only or MEASUREMENTS:
            with console.status(f"measuring: {name}"):
                started = time.monotonic()
                results |= MEASUREMENTS[name](servers, QUICK if options.quick else Effort())
                seconds[name] = time.monotonic() - started
            console.print(f"measured: {name} ({seconds[name]:.0f} s)", style="dim")
    write(options.report, document(results, _environment(seconds, quick=options.quick)))
    console.print(table(results))
    console.print(f"report: {options.report}", soft_wrap=True)
    late = missed(results)
    if late:
        console.print(f"missed: {', '.join(late)}", style="red")
    return 1 if late and options.check else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure what memory costs.")
    parser.add_argument("--only", nargs="+", choices=list(MEASUREMENTS), help="some of the measurements")
    parser.add_argument("--quick", action="store_true", help="few samples: shows that it works, not how fast it is")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--report", type=Path, default=REPORT, help=f"where the report goes; default {REPORT}")
    return parser.parse_args(arguments)


def _environment(seconds: dict[str, float], *, quick: bool) -> dict[str, Any]:
    """What the numbers depend on: compare ratios of one machine with each other, never absolute times of two."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load_1m_5m_15m": list(os.getloadavg()),
        "quick": quick,
        "seconds": seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
