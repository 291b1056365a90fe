"""The files of deploy/, read as their tools read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?::?(?P<operator>[-?])(?P<rest>[^}]*))?\}")
"""`${NAME}`, `${NAME:-default}` or `${NAME:?message}`; `$$` is an escaped dollar."""


def compose() -> dict[str, Any]:
    """compose.yaml with its anchors resolved and its variables as they stand."""
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def example() -> dict[str, str]:
    """The variables of env.example."""
    lines = (DEPLOY / "env.example").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value for name, _, value in pairs}


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """A part of the file with its variables replaced.

    Raises:
        KeyError: a variable that has to be set is missing or empty.
    """

    def replace(match: re.Match[str]) -> str:
        given = variables.get(match["name"], "")
        if not given and match["operator"] == "?":
            raise KeyError(match["name"])
        return given or match["rest"] or ""

    text = VARIABLE.sub(replace, json.dumps(value))
    return json.loads(text.replace("$$", "$"))


def dockerfile_stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage as (NAME, rest), from its FROM on; comments are gone, continued lines joined."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    stages: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, text.splitlines()):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest.strip()))
    return stages
