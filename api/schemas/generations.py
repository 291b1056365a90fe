"""Answers about generations, for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from api.schemas.answers import Answer


class ReflectionItem(Answer):
    """A generation of the condensed log."""

    extracted: dict[str, Any]

    generation: int
    base_generation: int
    through_position: int
    state: str
    text: str
    tokens: int
    model: str | None
    cost: float | None
    created_at: datetime | None
    activated_at: datetime | None


class Source(Answer):
    """Messages of one thread, both ends included, whose notes a generation condenses."""

    thread: str
    from_seq: int
    to_seq: int
    chunks: int


class DiffLine(Answer):
    """One line of a comparison; a gap stands for equal lines."""

    op: Literal["added", "removed", "same", "gap"]
    text: str


class Generation(ReflectionItem):
    """One generation, the messages behind it, and its changes against another one."""

    sources: list[Source]
    new_sources: list[Source]
    against: int
    diff: list[DiffLine]
