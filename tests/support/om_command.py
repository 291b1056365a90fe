"""The `om` command as a user runs it: a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OM = [sys.executable, "-m", "api.cli"]


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout, which has to be one JSON document."""
        return json.loads(self.out)


def run_om(*arguments: str, environment: Mapping[str, str], folder: Path, timeout_s: float = 60) -> Ran:
    """Run `om ARGUMENTS…` in a folder with exactly these variables."""
    done = subprocess.run(
        [*OM, *arguments],
        env=dict(environment),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
