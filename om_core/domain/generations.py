"""Generations compared: lines that came and went, and which messages stand behind a text. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from typing import Final, Literal, TypeAlias

DiffOp: TypeAlias = Literal["added", "removed", "same", "gap"]
AROUND: Final = 2
"""Equal lines shown around different ones; `gap` stands for the others."""
_OPS: Final[dict[str, DiffOp]] = {"+": "added", "-": "removed", " ": "same", "@": "gap"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a comparison."""

    op: DiffOp
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """Messages of one thread, both ends included, whose notes a generation condenses."""

    thread: str
    from_seq: int
    to_seq: int
    chunks: int


def line_diff(before: str, after: str) -> tuple[DiffLine, ...]:
    """What changed from one text to another, line by line; empty where nothing did."""
    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=AROUND))
    shown = lines[2:]  # after the two lines that name the texts
    return tuple(DiffLine(_OPS[line[0]], "" if line[0] == "@" else line[1:]) for line in shown)
