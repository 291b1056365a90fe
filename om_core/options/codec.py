"""The resolved policy as JSON: it is stored with each job, so that a job runs under the policy it was made for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from om_core.domain.errors import PolicyError
from om_core.domain.message import JsonObject
from om_core.domain.policy import (
    ExtractorSpec,
    JobPolicy,
    LimitsPolicy,
    MemoryPolicy,
    ObservationPolicy,
    PhaseModel,
    ReflectionPolicy,
    RetrievalPolicy,
    WorkingMemoryPolicy,
)

_NESTED: Final[dict[str, type]] = {
    "observation": ObservationPolicy,
    "reflection": ReflectionPolicy,
    "job": JobPolicy,
    "limits": LimitsPolicy,
    "retrieval": RetrievalPolicy,
    "model": PhaseModel,
    "extract": ExtractorSpec,
    "working_memory": WorkingMemoryPolicy,
}
"""Fields that hold (tuples of) values of their own; no other field of a policy has one of these names."""


def policy_to_json(policy: MemoryPolicy) -> JsonObject:
    """Plain JSON values; `policy_from_json` gives the same policy back."""
    encoded = _encode(policy)
    assert isinstance(encoded, dict)
    return encoded


def policy_from_json(stored: Mapping[str, Any]) -> MemoryPolicy:
    """The stored policy. Fields that newer code added are ignored, fields that older code lacked get their default.

    Raises:
        PolicyError: the stored value has another shape.
    """
    policy = _decode(stored, MemoryPolicy, "policy")
    assert isinstance(policy, MemoryPolicy)
    return policy


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _encode(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    return value


def _decode(stored: object, cls: type, path: str) -> Any:
    if not isinstance(stored, Mapping):
        raise PolicyError(path, stored, "a table, as policy_to_json writes it")
    known = {entry.name: entry for entry in dataclasses.fields(cls)}
    given = {name: _decode_field(stored[name], name, f"{path}.{name}") for name in known if name in stored}
    try:
        return cls(**given)
    except TypeError as error:  # a field without default is missing
        raise PolicyError(path, dict(stored), f"a table, as policy_to_json writes it ({error})") from error


def _decode_field(value: Any, name: str, path: str) -> Any:
    nested = _NESTED.get(name)
    if nested is ExtractorSpec and isinstance(value, list):
        return tuple(_decode(item, nested, f"{path}.{index}") for index, item in enumerate(value))
    if nested is not None:
        return _decode(value, nested, path)
    return _tuples(value)


def _tuples(value: Any) -> Any:
    """Lists of a policy are tuples; tables (settings, provider options, schemas) are kept as they are."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
