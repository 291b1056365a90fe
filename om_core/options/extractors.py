"""`extract`: the list of values to extract besides the notes, checked and turned into data (behaviour 6.1)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from om_core.domain.errors import PolicyError
from om_core.domain.policy import ExtractorSpec
from om_core.options import values
from om_core.options.functions import function_path, load
from om_core.options.json_schema import resolve_schema
from om_core.options.schema import Kind, Leaf, normalise

RESERVED_SLUGS: Final = frozenset(
    {
        "observations", "observation", "extracted-values", "thread", "message", "messages", "conversation", "history",
        "system", "user", "assistant", "tool", "current-task", "suggested-response", "thread-title",
    }
)  # fmt: skip
MOST_EXTRACTORS: Final = 32
"""Of one phase: each is part of every prompt."""
INSTRUCTION_CHARS: Final = 8_000
_KEYS: Final = {
    name: Leaf(Kind.OBJECT)
    for name in (
        "name", "slug", "instructions", "instructions_from", "schema", "schema_from", "mode", "on_extracted",
        "include_previous_extraction", "metadata_key_path", "retry_structured_extraction_on_empty_object",
    )
}  # fmt: skip
_FORBIDDEN_SEGMENTS: Final = frozenset({"", "__proto__", "constructor", "prototype"})
_SLUG: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Extractor:
    """A value to extract besides the notes: `options={"observation": {"extract": [Extractor(...)]}}`.

    Functions have to be importable by the workers: defined at the top of a module, or given by name
    (`my_app.memory:remember`).

    Args:
        name: for people; its slug names the value in prompts, events and contexts.
        instructions: what to extract, or a function of an `ExtractionRequest` that says it when it is needed.
        schema: a Pydantic model or a JSON Schema, or a function of an `ExtractionRequest` that gives one: the value
            then takes a call of its own. Without it, it is a text in the same answer as the notes.
        mode: `hook`: no model is asked, `on_extracted` makes the value.
        include_previous_extraction: whether the Observer and the actor are shown the value.
        metadata_key_path: where `status` shows it; by default `extracted.<slug>`. False: it is not kept.
        on_extracted: a function of an `ExtractionEvent`, also a coroutine function. What it returns replaces the value,
            None keeps it.
        retry_structured_extraction_on_empty_object: ask once more where the model gave none of the values.
    """

    name: str
    instructions: str | Callable[..., str] | None = None
    schema: Any = None
    mode: Literal["hook"] | None = None
    include_previous_extraction: bool = True
    metadata_key_path: str | Literal[False] | None = None
    on_extracted: Callable[..., Any] | str | None = None
    retry_structured_extraction_on_empty_object: bool = False


def slug_of(name: str) -> str:
    """`Favourite "colour"` is `favourite-colour`: lower case, quotes dropped, other runs one dash."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"['\"`\\]", "", name.lower())).strip("-")


def resolve_extractors(value: object, option: str) -> tuple[ExtractorSpec, ...]:
    """The list as data.

    Raises:
        PolicyError: an entry that is no extractor, or two with one slug or with paths of which one is in the other.
    """
    if not isinstance(value, list | tuple):
        raise PolicyError(option, value, "a list of extractors, each {'name', 'instructions', 'schema'?, ...}")
    if len(value) > MOST_EXTRACTORS:
        raise PolicyError(option, f"{len(value)} extractors", f"at most {MOST_EXTRACTORS}")
    specs: list[ExtractorSpec] = []
    for index, item in enumerate(value):
        spec = _spec(item, f"{option}.{index}")
        if any(spec.slug == other.slug for other in specs):
            raise PolicyError(f"{option}.{index}.name", spec.name, f"each slug once in a list; {spec.slug} is taken")
        if taken := next((other for other in specs if _overlap(spec, other)), None):
            path = f"{option}.{index}.metadata_key_path"
            raise PolicyError(path, spec.metadata_key_path, f"a path apart from {taken.metadata_key_path!r}")
        specs.append(spec)
    return tuple(specs)


def _overlap(one: ExtractorSpec, other: ExtractorSpec) -> bool:
    if one.metadata_key_path is None or other.metadata_key_path is None:
        return False
    short, long = sorted((f"{one.metadata_key_path}.", f"{other.metadata_key_path}."), key=len)
    return long.startswith(short)


def _spec(item: object, option: str) -> ExtractorSpec:
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        fields = ((entry.name, getattr(item, entry.name)) for entry in dataclasses.fields(item))
        item = {name: value for name, value in fields if value is not None}
    if not isinstance(item, Mapping):
        raise PolicyError(
            option, item, "an Extractor, or a table with its fields; functions cannot be stored with a job"
        )
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
        include_previous_extraction=values.flag(given.get(previous, True), f"{option}.{previous}"),
        metadata_key_path=_key_path(given.get("metadata_key_path", f"extracted.{slug}"), f"{option}.metadata_key_path"),
        retry_structured_extraction_on_empty_object=values.flag(given.get(again, False), f"{option}.{again}"),
        on_extracted=_function(given, "on_extracted", option),
        **_how(given, option),
    )


def _how(given: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Instructions and schema, as text and data or as names of functions; neither for a hook."""
    mode = given.get("mode")
    if mode not in (None, "hook"):
        raise PolicyError(f"{option}.mode", mode, "'hook', or nothing: with a schema the value takes a call of its own")
    if mode == "hook":
        for name in ("instructions", "instructions_from", "schema", "schema_from"):
            if name in given:
                raise PolicyError(f"{option}.{name}", given[name], "nothing for a hook: no model is asked")
        if "on_extracted" not in given:
            raise PolicyError(f"{option}.on_extracted", None, "a function: mode is 'hook'")
        return {}
    instructions, schema = given.get("instructions"), given.get("schema")
    found: dict[str, Any] = {"instructions_from": _function(given, "instructions_from", option)}
    if callable(instructions):
        found["instructions_from"] = function_path(instructions, f"{option}.instructions")
    elif instructions is not None or found["instructions_from"] is None:
        found["instructions"] = _filled(instructions, f"{option}.instructions")
        if len(found["instructions"]) > INSTRUCTION_CHARS:
            raise PolicyError(f"{option}.instructions", "…", f"at most {INSTRUCTION_CHARS:,} characters")
    found["schema_from"] = _function(given, "schema_from", option)
    if isinstance(schema, str):
        schema = load(function_path(schema, f"{option}.schema"))
    if callable(schema) and not hasattr(schema, "model_json_schema"):
        found["schema_from"] = function_path(schema, f"{option}.schema")
    elif schema is not None:
        found["schema"] = resolve_schema(schema, f"{option}.schema")
    return found


def _function(given: Mapping[str, Any], name: str, option: str) -> str | None:
    return function_path(given[name], f"{option}.{name}") if name in given else None


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
