"""The demo session: one real Claude Code transcript, and facts to look for in memory.

The transcript (``session.jsonl.gz``) is third-party data under the MIT licence,
see ``LICENSE.spotter``. The facts (``facts.json``) were written by reading it
from beginning to end, before any scorer or summariser was run on it.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal, cast, get_args

__all__ = ["FACT_WINDOW_LINES", "Fact", "FactCategory", "fact_found", "load_facts", "open_session"]

FactCategory = Literal["user_request", "decision", "identifier", "result", "error", "number"]

FACT_WINDOW_LINES: Final = 3
"""How many consecutive non-empty lines may together state a fact."""

_CATEGORIES: Final[frozenset[str]] = frozenset(get_args(FactCategory))


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing a careful reader of the demo session would remember.

    Attributes:
        id: Short unique name, such as ``f01``.
        fact: The fact as one English sentence.
        terms: Groups of alternative spellings; see :func:`fact_found`.
        message_ids: ``uuid`` values of the transcript records it comes from.
        category: What kind of fact it is.
    """

    id: str
    fact: str
    terms: tuple[tuple[str, ...], ...]
    message_ids: tuple[str, ...]
    category: FactCategory


def open_session() -> Iterator[str]:
    """Yield the transcript's JSONL records in file order, without line ends.

    Lines are split at line feeds only, so a record is never cut at one of the
    other characters that Unicode treats as a line end.
    """
    with (
        files(__name__).joinpath("session.jsonl.gz").open("rb") as packed,
        gzip.GzipFile(fileobj=packed, mode="rb") as unpacked,
        io.TextIOWrapper(unpacked, encoding="utf-8", newline="\n") as lines,
    ):
        for line in lines:
            yield line.removesuffix("\n")


def load_facts() -> tuple[Fact, ...]:
    """Read ``facts.json`` and check its shape.

    Raises:
        ValueError: If an entry is malformed (naming the entry).
    """
    raw = json.loads(files(__name__).joinpath("facts.json").read_text(encoding="utf-8"))
    if not isinstance(raw, list):
        raise ValueError("facts.json: a list is expected")
    return tuple(_parse_fact(entry) for entry in raw)


def fact_found(fact: Fact, text: str) -> bool:
    """Say whether ``text`` states ``fact``.

    It does when one window of three consecutive non-empty lines contains, for
    every group of terms, at least one of its alternatives (ignoring case).
    """
    groups = [[term.casefold() for term in group] for group in fact.terms]
    lines = [line for line in text.casefold().splitlines() if line.strip()]
    last_start = max(len(lines) - FACT_WINDOW_LINES, 0)
    for start in range(last_start + 1):
        window = "\n".join(lines[start : start + FACT_WINDOW_LINES])
        if all(any(term in window for term in group) for group in groups):
            return True
    return False


def _parse_fact(entry: Any) -> Fact:
    """Turn one object of ``facts.json`` into a :class:`Fact`."""
    if not isinstance(entry, dict):
        raise ValueError(f"facts.json: an object is expected, not {entry!r}")
    name = entry.get("id")
    if not isinstance(name, str) or not name:
        raise ValueError(f"facts.json: an entry without an id: {entry!r}")
    sentence = entry.get("fact")
    if not isinstance(sentence, str) or not sentence:
        raise ValueError(f"facts.json: {name}: 'fact' must be a sentence")
    groups = entry.get("terms")
    if not isinstance(groups, list) or not groups:
        raise ValueError(f"facts.json: {name}: 'terms' must be a list of lists")
    category = entry.get("category")
    if category not in _CATEGORIES:
        raise ValueError(f"facts.json: {name}: unknown category {category!r}")
    return Fact(
        id=name,
        fact=sentence,
        terms=tuple(_strings(group, name, "terms") for group in groups),
        message_ids=_strings(entry.get("message_ids"), name, "message_ids"),
        category=cast(FactCategory, category),
    )


def _strings(value: Any, name: str, field: str) -> tuple[str, ...]:
    """Return ``value`` as a non-empty tuple of non-empty strings."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"facts.json: {name}: {field!r} must hold non-empty lists of strings")
    if not all(isinstance(item, str) and item.strip() for item in value):
        raise ValueError(f"facts.json: {name}: {field!r} must hold non-empty strings")
    return tuple(value)
