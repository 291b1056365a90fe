"""Every option does something: what it resolves to is read by who acts on it, not only by the code that resolves it."""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

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
from om_core.options.schema import OPTIONS, leaves

ROOT: Final = Path(__file__).parents[2]
RESOLVING: Final = ("om_core/options/", "om_core/domain/policy.py")
"""Code that makes policies, and does not count as acting on them."""
HOLDERS: Final[dict[type, frozenset[str]]] = {
    MemoryPolicy: frozenset({"policy", "given", "resolve()"}),
    ObservationPolicy: frozenset({"observation"}),
    ReflectionPolicy: frozenset({"reflection", "phase"}),
    PhaseModel: frozenset({"model", "phase"}),
    JobPolicy: frozenset({"job", "limits", "policy"}),
    LimitsPolicy: frozenset({"limits"}),
    RetrievalPolicy: frozenset({"retrieval"}),
    WorkingMemoryPolicy: frozenset({"working_memory", "options"}),
    ExtractorSpec: frozenset({"spec"}),
}
"""What the code calls a policy of each class: two classes may have fields of one name."""
RENAMED: Final = {
    "hooks": "",  # functions of one process: in no policy
    "observation.model_settings": "settings",
    "observation.buffer_activation": "retention_tokens",
    "observation.continuation_hints": "current_task",
    "reflection.model_settings": "settings",
    "reflection.buffer_activation": "buffer_at_tokens",
    "reflection.continuation_hints": "current_task",
    "job.breaker_pause": "breaker_base_s",
    "job.breaker_longest_pause": "breaker_cap_s",
}
"""Options whose field does not begin with their name."""
IDLE: Final = {
    "MemoryPolicy.hook_execution": "hooks are checked, and not called yet",
    "ReflectionPolicy.current_task": "reflections run in the background, where the reference asks for no hints either",
    "ReflectionPolicy.suggested_response": "likewise",
    "RetrievalPolicy.vector": "there is no index of vectors yet",
}
"""Fields that nobody acts on, and why. Whoever makes one work takes it off here."""


@cache
def reads() -> frozenset[tuple[str, str]]:
    """(holder, attribute) of every attribute that the product reads; a call's result is `name()`."""
    found: set[tuple[str, str]] = set()
    for folder in ("om_core", "api", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            if str(path.relative_to(ROOT)).startswith(RESOLVING):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add((_holder(node.value), node.attr))
    return frozenset(found)


def _holder(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return f"{_holder(node.func)}()"
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def idle_fields(policy: type[Any]) -> set[str]:
    """Fields of a policy class that nobody reads from a policy of that class."""
    names = [field.name for field in fields(policy)]
    shared = {field.name for other in HOLDERS if other is not policy for field in fields(other)}
    anywhere = {attribute for _, attribute in reads()}
    return {
        f"{policy.__name__}.{name}"
        for name in names
        if not (any((holder, name) in reads() for holder in HOLDERS[policy]) if name in shared else name in anywhere)
    }


@pytest.mark.parametrize("policy", HOLDERS, ids=lambda policy: policy.__name__)
def test_every_field_of_a_policy_is_read_by_who_acts_on_it(policy: type[Any]):
    listed = {name for name in IDLE if name.startswith(f"{policy.__name__}.")}
    found = idle_fields(policy)
    assert found - listed == set(), "read nowhere: act on them, or they are options that do nothing"
    assert listed - found == set(), "read by now: take them off IDLE"


def test_every_option_resolves_to_one_of_these_fields():
    """A guard for the test above: an option that resolves to no field would not be looked at."""
    named = [field.name for policy in HOLDERS for field in fields(policy)]
    lost = [
        path
        for path, _ in leaves(OPTIONS)
        if not any(name.startswith(RENAMED.get(path, path.rpartition(".")[2])) for name in named)
    ]
    assert lost == []
