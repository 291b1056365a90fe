"""JSON Schemas that a user gives: as a table, or as a Pydantic model; and values held against them.

References are resolved within the schema alone: nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import PolicyError
from om_core.options import values

if TYPE_CHECKING:
    from om_core.domain.message import Json, JsonObject

SCHEMA_BYTES: Final = 16_384
"""Most bytes of a schema: it is stored with every job."""
_PROBLEM_CHARS: Final = 300


def resolve_schema(value: object, option: str) -> JsonObject:
    """The schema as data.

    Raises:
        PolicyError: neither a table nor a Pydantic model, no valid JSON Schema, or larger than 16,384 bytes.
    """
    made = getattr(value, "model_json_schema", None)
    if isinstance(value, type) and callable(made):
        value = made()
    if not isinstance(value, Mapping):
        raise PolicyError(option, value, "a table (JSON Schema) or a Pydantic model class")
    schema = values.json_object(value, option)
    if len(json.dumps(schema).encode()) > SCHEMA_BYTES:
        raise PolicyError(option, "…", f"at most {SCHEMA_BYTES:,} bytes")
    problem = _invalid(json.dumps(schema))
    if problem is not None:
        raise PolicyError(option, schema, f"a valid JSON Schema: {problem}")
    return schema


@lru_cache(maxsize=256)
def _invalid(text: str) -> str | None:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(json.loads(text))
    except SchemaError as error:
        return _brief(f"{error.message} at {error.json_path}")
    return None


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    return Draft202012Validator(json.loads(text), registry=Registry())


def mismatch(value: Json, schema: Mapping[str, Any]) -> str | None:
    """Where and how a value differs from a schema, in one line; None: it fits."""
    from referencing.exceptions import Unresolvable

    try:
        first = next(iter(_validator(json.dumps(schema)).iter_errors(value)), None)
    except Unresolvable as error:
        return _brief(f"the schema refers to {error.ref!r}, which is not part of it")
    except RecursionError:
        return "the schema refers to itself without end"
    return None if first is None else _brief(f"{first.json_path}: {first.message}")


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _PROBLEM_CHARS else f"{line[: _PROBLEM_CHARS - 1]}…"
