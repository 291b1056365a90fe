"""`working_memory`: the document that is always shown, and who keeps it (behaviour 6.6)."""

from __future__ import annotations

from typing import Any, cast

from om_core.domain.errors import PolicyError
from om_core.domain.policy import Scope, WorkingMemoryPolicy
from om_core.options import values
from om_core.options.json_schema import resolve_schema
from om_core.options.schema import Options, option_value


def resolve_working_memory(tree: Options, *, managed: bool) -> WorkingMemoryPolicy:
    """The branch of a normalised tree. `managed`: the Observer keeps it, which switches it on, and the agent's tool off
    unless that is asked for.

    Raises:
        PolicyError: naming the option's dotted path, its value and what is allowed.
    """

    def get(name: str) -> Any:
        return option_value(tree, f"working_memory.{name}")

    enabled, agent = get("enabled"), get("agent_managed")
    if enabled is False and managed:
        raise PolicyError("working_memory.enabled", False, "True while observation.manage_working_memory is True")
    template = values.optional_text(get("template"), "working_memory.template")
    schema = get("schema")
    if schema is not None and template is not None:
        raise PolicyError("working_memory.template", template, "a template or a schema, not both")
    return WorkingMemoryPolicy(
        enabled=managed if enabled is None else values.flag(enabled, "working_memory.enabled"),
        scope=cast("Scope", values.choice(get("scope"), "working_memory.scope", ("thread", "resource"))),
        template=template,
        schema=None if schema is None else resolve_schema(schema, "working_memory.schema"),
        agent_managed=not managed if agent is None else values.flag(agent, "working_memory.agent_managed"),
    )
