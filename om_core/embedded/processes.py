"""Look at processes by id. A zombie counts as dead, and an id that was reused by another program does not count."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PROC = Path("/proc")


def has_proc() -> bool:
    """Tell whether this system has Linux's /proc; without it, folders of processes cannot be compared."""
    return (_PROC / "self" / "stat").exists()


def runs_in(pid: int, program: str, folder: Path) -> bool:
    """Tell whether the process is alive, is `program`, and works in `folder` (as far as this system can say)."""
    found = _name_and_state(pid)
    if found is None or found[1][:1] in {"Z", "X"} or not found[0].startswith(program):
        return False
    if not has_proc():
        return True
    try:
        return (_PROC / str(pid) / "cwd").readlink() == folder
    except PermissionError:
        return True  # right name, but another user's: rather wait for it than start a second server on its data
    except OSError:
        return False


def running_in(program: str, folder: Path) -> list[int]:
    """Return the live processes of `program` that work in `folder`; empty where /proc is missing."""
    if not has_proc():
        return []
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                same = (entry / "cwd").readlink() == folder
            except OSError:
                continue
            if same and runs_in(int(entry.name), program, folder):
                found.append(int(entry.name))
    return found


def exists(pid: int) -> bool:
    """Tell whether the id is taken, be it by a zombie or by a stranger."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _name_and_state(pid: int) -> tuple[str, str] | None:
    if has_proc():
        try:
            head, rest = (_PROC / str(pid) / "stat").read_text(errors="replace").rsplit(")", 1)
        except OSError:
            return None
        return head.split("(", 1)[1], rest.split()[0]
    shown = subprocess.run(
        ["ps", "-o", "state=,comm=", "-p", str(pid)],
        check=False,
        capture_output=True,
        text=True,
    )
    state, _, command = shown.stdout.strip().partition(" ")
    return (Path(command.strip()).name, state) if command else None
