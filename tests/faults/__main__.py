"""`make faults`: inject every fault, print the table, write `.om/reports/faults.json`."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tests.faults.catalogue import FAULTS, run
from tests.faults.fleet import Starter
from tests.faults.report import REPORT, WIDTH, table, write
from tests.support.servers import running_servers

if TYPE_CHECKING:
    from tests.faults.report import Row


def main(arguments: list[str] | None = None) -> int:
    """Run the faults; the exit code is 1 if a promise was broken."""
    options = _parse(arguments)
    logging.getLogger("om").setLevel(logging.ERROR)  # that the broker is away is no news here
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    rows: list[Row] = []
    starter = Starter()
    with running_servers() as servers:
        for name in options.only or FAULTS:
            fault = FAULTS[name]
            times = options.times or (fault.short if options.short else fault.long)
            with console.status(f"{name}, {times} times"):
                row = run(fault, servers, starter, times=times, seed=options.seed)
            rows.append(row)
            console.print(f"{name}: {row.injected} times, {row.seconds:.0f} s", style="dim" if row.holds else "red")
            for problem in row.problems:
                console.print(f"  {problem}", style="red", markup=False)
            write(options.report, rows)
    starter.close()
    console.print(table(rows))
    console.print(f"report: {options.report}", soft_wrap=True)
    return 0 if all(row.holds for row in rows) else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Inject faults while turns go on.")
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), metavar="FAULT", help=f"among {', '.join(FAULTS)}")
    parser.add_argument("--times", type=int, default=None, help="how often each is injected; default: of the fault")
    parser.add_argument("--short", action="store_true", help="as often as `make test` does")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments and pauses")
    parser.add_argument(
        "--report", type=Path, default=REPORT, help="where the report goes; default .om/reports/faults.json"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
