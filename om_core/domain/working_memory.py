"""Working memory: one document per thread or resource that is always shown, in versions (behaviour 6.6). Pure.

A document is markdown, replaced as a whole, or a JSON object, into which changes are merged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import unified_diff
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from om_core.domain.message import Json, JsonObject
    from om_core.domain.policy import Scope

MemoryFormat: TypeAlias = Literal["markdown", "json"]
WrittenBy: TypeAlias = Literal["caller", "agent", "observer"]
"""The program that uses memory, its agent by way of the tool, or the Observer."""

VERSIONS_KEPT: Final = 20
"""Versions of one document that are kept; older ones are deleted by the write after."""
DEFAULT_TEMPLATE: Final = """\
# About the user
- Name:
- Location:
- Occupation:
- Interests:

# What matters to them
- Goals:
- Upcoming events:
- Facts to remember:

# Work
- Projects:"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemory:
    """One version of a document. `base_version` is the version it was made from.

    `thread_id`, `chunk_id`, `from_seq` and `to_seq` name the messages that the Observer made it from; an agent's
    version names the thread.
    """

    scope: Scope
    scope_key: str
    version: int
    format: MemoryFormat
    content: str
    source: WrittenBy
    created_at: datetime
    base_version: int | None = None
    thread_id: int | None = None
    job_id: int | None = None
    chunk_id: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None

    @property
    def is_blank(self) -> bool:
        return not self.content.strip() or (self.format == "json" and self.content.strip() == "{}")

    def value(self) -> Json:
        """The content as callers see it: text, or an object."""
        return json.loads(self.content) if self.format == "json" and self.content.strip() else self.content


def same_lines(one: str, other: str) -> bool:
    """Whether two texts differ at most in blanks around their lines, empty lines and the kind of line ends."""

    def lines(text: str) -> list[str]:
        return [line.strip() for line in text.splitlines() if line.strip()]

    return lines(one) == lines(other)


def json_text(value: Json) -> str:
    """A JSON document as it is stored and shown: the same object always has the same text."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def merge(stored: Json, change: Json, schema: Mapping[str, Json] | None = None) -> Json:
    """The document with a change in it: what the change leaves out stays, null deletes, everything else but objects
    replaces.

    Null for a property that the schema neither requires nor allows to be null changes nothing: providers with strict
    schemas send null for every field that the model left alone.
    """
    if not isinstance(change, dict):
        return change
    merged: JsonObject = dict(stored) if isinstance(stored, dict) else {}
    known = (schema or {}).get("properties") or {}
    required = (schema or {}).get("required") or []
    for name, value in change.items():
        declared = known.get(name) if isinstance(known, dict) else None
        if value is None:
            if declared is None or name in required or _allows_null(declared):
                merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value, declared if isinstance(declared, dict) else None)
    return merged


def _allows_null(declared: Json) -> bool:
    if not isinstance(declared, dict):
        return False
    kinds = declared.get("type")
    if kinds == "null" or (isinstance(kinds, list) and "null" in kinds) or declared.get("nullable") is True:
        return True
    if None in (declared.get("enum") or []):
        return True
    return any(_allows_null(option) for word in ("anyOf", "oneOf") for option in declared.get(word) or [])


def cache_key(format: str, content: str) -> str:
    """What tells two states apart: format and trimmed content."""
    return "sha256:" + sha256(f"{format}\0{content.strip()}".encode()).hexdigest()


def state_signal(new: WorkingMemory, old: WorkingMemory | None) -> JsonObject:
    """What a write says to those who follow the state: the whole document (`snapshot`), or for markdown, where that is
    shorter, what changed in it (`delta`: hunks of a unified diff without context).
    """
    signal: JsonObject = {
        "scope": new.scope,
        "version": new.version,
        "format": new.format,
        "source": new.source,
        "cacheKey": cache_key(new.format, new.content),
    }
    if old is not None and old.format == new.format == "markdown" and not old.is_blank:
        lines = unified_diff(old.content.splitlines(), new.content.splitlines(), n=0, lineterm="")
        patch = "\n".join(list(lines)[2:])
        if len(patch) < len(new.content):
            return {**signal, "mode": "delta", "baseVersion": old.version, "patch": patch}
    return {**signal, "mode": "snapshot", "content": new.value()}
