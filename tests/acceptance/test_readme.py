"""The README's first program works when it is pasted, and its commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
def test_the_first_program_runs_as_it_stands(tmp_path: Path) -> None:
    program, *_ = blocks("python")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OM_")}

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**clean, "OM_EMBEDDED_FAST": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "My favourite colour is blue." in done.stdout
    assert "tokens are waiting to be observed" in done.stdout


def test_every_make_target_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z-]+)", README))

    assert named >= {"demo", "test", "up", "help"}
    assert {target for target in named if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)} == set()


def test_every_om_command_it_names_exists() -> None:
    named = set(re.findall(r"\bom ([a-z]+)\b", "\n".join([*blocks("sh"), *re.findall(r"`([^`\n]+)`", README)])))

    for command in sorted(named):
        done = subprocess.run(
            [sys.executable, "-m", "api.cli", command, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"om {command}: {done.stderr}"


def test_every_file_it_names_exists() -> None:
    named = set(re.findall(r"`((?:om_core|tests|deploy|api|workers)/[^`\s]+)`", README))

    assert named
    assert {name for name in named if not (ROOT / name).exists()} == set()
