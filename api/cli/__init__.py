"""The `om` command (API 2). Each command imports what it needs when it runs: `om --help` and reading stay fast."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the script `om`: runs the command line and ends the process with its exit code."""
    from api.cli.run import run

    sys.exit(run(sys.argv[1:]))
