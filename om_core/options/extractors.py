"""`extract`: the list of values to extract besides the notes, checked and turned into data (behaviour 6.1)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

from om_core.domain.errors import PolicyError
from om_core.domain.policy import ExtractorSpec
from om_core.options import values
from om_core.options.schema import Kind, Leaf, normalise

RESERVED_SLUGS: Final = frozenset(
    {
        "observations", "observation", "extracted-values", "thread", "message", "messages", "conversation", "history",
        "system", "user", "assistant", "tool", "current-task", "suggested-response", "thread-title",
    }
)  # fmt: skip
_KEYS: Final = {
    name: Leaf(Kind.OBJECT)
    for name in (
        "name", "slug", "instructions", "schema", "include_previous_extraction", "metadata_key_path",
        "retry_structured_extraction_on_empty_object",
    )
}  # fmt: skip
_FORBIDDEN_SEGMENTS: Final = frozenset({"", "__proto__", "constructor", "prototype"})
_SLUG: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


def slug_of(name: str) -> str:
    """`Favourite "colour"` is `favourite-colour`: lower case, quotes dropped, other runs one dash."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"['\"`\\]", "", name.lower())).strip("-")


def resolve_extractors(value: object, option: str) -> tuple[ExtractorSpec, ...]:
    """The list as data.

    Raises:
        PolicyError: an entry that is no extractor, or two with one slug.
    """
    if not isinstance(value, list | tuple):
        raise PolicyError(option, value, "a list of extractors, each {'name', 'instructions', 'schema'?, ...}")
    specs: list[ExtractorSpec] = []
    for index, item in enumerate(value):
        spec = _spec(item, f"{option}.{index}")
        if any(spec.slug == other.slug for other in specs):
            raise PolicyError(f"{option}.{index}.name", spec.name, f"each slug once in a list; {spec.slug} is taken")
        specs.append(spec)
    return tuple(specs)


def _spec(item: object, option: str) -> ExtractorSpec:
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        fields = ((entry.name, getattr(item, entry.name)) for entry in dataclasses.fields(item))
        item = {name: value for name, value in fields if value is not None}
    if not isinstance(item, Mapping):
        raise PolicyError(option, item, "a table with name and instructions; functions cannot be stored with a job")
    given = normalise(item, _KEYS, f"{option}.")
    name = _filled(given.get("name"), f"{option}.name")
    slug = slug_of(values.text(given.get("slug", name), f"{option}.slug"))
    if not _SLUG.fullmatch(slug) or slug in RESERVED_SLUGS:
        allowed = f"a name whose slug starts with a letter and is none of {', '.join(sorted(RESERVED_SLUGS))}"
        raise PolicyError(f"{option}.name", name, allowed)
    again = "retry_structured_extraction_on_empty_object"
    previous = "include_previous_extraction"
    return ExtractorSpec(
        slug=slug,
        name=name,
        instructions=_filled(given.get("instructions"), f"{option}.instructions"),
        schema=values.json_object(given["schema"], f"{option}.schema") if "schema" in given else None,
        include_previous_extraction=values.flag(given.get(previous, True), f"{option}.{previous}"),
        metadata_key_path=_key_path(given.get("metadata_key_path", f"extracted.{slug}"), f"{option}.metadata_key_path"),
        retry_structured_extraction_on_empty_object=values.flag(given.get(again, False), f"{option}.{again}"),
    )


def _filled(value: Any, option: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PolicyError(option, value, "a text that is not blank")
    return values.text(value, option).strip()


def _key_path(value: object, option: str) -> str | None:
    if value is False:
        return None
    path = values.text(value, option)
    if _FORBIDDEN_SEGMENTS.intersection(path.split(".")):
        raise PolicyError(option, value, "False, or names joined by dots; not __proto__, constructor or prototype")
    return path
