"""Values extracted beside the notes (behaviour 6): what is kept of each, and where it comes from. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from om_core.domain.message import Json, JsonObject
    from om_core.domain.policy import ExtractorSpec

Source: TypeAlias = Literal["observer", "reflector"]

SHOWN_CHARS: Final = 2_000
"""Of a stored value, what the Observer and the actor are shown."""
ERROR_CHARS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The newest value of one extractor, and the newest failure since; either may be None.

    The value was made from `from_seq..to_seq` of one thread, or from a generation of the log.
    """

    slug: str = ""
    value: Json = None
    signal: str | None = None
    """What its hook tells the actor in place of the value."""
    error: str | None = None
    thread_id: int | None = None
    chunk_id: int | None = None
    generation: int | None = None
    job_id: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    updated_at: datetime | None = None

    @property
    def shown(self) -> str:
        """The text for the actor and the Observer."""
        return bounded(self.signal if self.signal is not None else value_text(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run gave for one extractor: a value, or a failure. None and None: nothing was said, the old stays."""

    slug: str
    value: Json = None
    signal: str | None = None
    error: str | None = None

    @property
    def says_something(self) -> bool:
        return not (self.value is None and self.signal is None and self.error is None)


def value_text(value: Json) -> str:
    """A value in words: texts as they are, everything else as JSON; nothing for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def bounded(text: str) -> str:
    """The text, cut where it is longer than what is shown."""
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 6]} [cut]"


def values_by_path(specs: Iterable[ExtractorSpec], found: Iterable[Extraction]) -> JsonObject:
    """The values of configured extractors as one tree, each at its `metadata_key_path`."""
    values = {extraction.slug: extraction.value for extraction in found if extraction.value is not None}
    tree: JsonObject = {}
    for spec in specs:
        if spec.metadata_key_path is None or spec.slug not in values:
            continue
        *parents, name = spec.metadata_key_path.split(".")
        node: Json = tree
        for parent in parents:
            node = node.setdefault(parent, {}) if isinstance(node, dict) else None
        if isinstance(node, dict):  # else a value of the other phase stands where a branch would be
            node[name] = values[spec.slug]
    return tree
