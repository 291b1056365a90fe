"""`python -m workers [--queues a,b] [--concurrency N]`: one worker, as `om worker` starts it."""

from __future__ import annotations

import argparse
import sys

from om_core.config import load_settings
from om_core.domain.errors import OmError
from workers.main import run_worker


def main() -> int:
    """The exit code: 0 after SIGTERM, 2 for a setting that is missing or wrong."""
    parser = argparse.ArgumentParser(prog="python -m workers", description="Work on the jobs of some queues.")
    parser.add_argument("--queues", default="", help="names, separated by commas; default: all")
    parser.add_argument("--concurrency", type=int, default=None, help="jobs at a time")
    options = parser.parse_args()
    queues = [name.strip() for name in options.queues.split(",") if name.strip()]
    try:
        return run_worker(load_settings(), queues=queues, concurrency=options.concurrency)
    except OmError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
