"""Tools that an agent is offered under a configuration, in the form of its provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.working_memory import DEFAULT_TEMPLATE

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.domain.policy import MemoryPolicy, WorkingMemoryPolicy

WORKING_MEMORY_TOOL: Final = "update_working_memory"
TOOL_FORMATS: Final = ("openai", "anthropic")

_ABOUT: Final = (
    "Keep what will matter in later turns about the user and their work. What is kept is shown to you after the newest "
    'message, in a block whose tag is "om-working-memory". Call this when something in it has changed or is missing; '
    "keep only what the user said or decided, no passwords or keys. "
)
_TEXT: Final = (
    "The text you give replaces all of it: repeat what still holds. Keep the headings of this template:\n\n{template}"
)
_OBJECT: Final = (
    "The object you give is merged into it: what you leave out stays, null deletes a field, a list replaces the list."
)


def tools(policy: MemoryPolicy, format: str) -> list[JsonObject]:
    """The tools' schemas.

    Raises:
        InvalidInputError: an unknown format.
    """
    if format not in TOOL_FORMATS:
        raise InvalidInputError(f"{format[:40]!r} is unknown; known are {', '.join(TOOL_FORMATS)}", path="format")
    options = policy.working_memory
    if not (options.enabled and options.agent_managed):
        return []
    how = _OBJECT if options.schema is not None else _TEXT.format(template=options.template or DEFAULT_TEMPLATE)
    parameters = {
        "type": "object",
        "properties": {"memory": _parameter(options)},
        "required": ["memory"],
        "additionalProperties": False,
    }
    about = _ABOUT + how
    if format == "anthropic":
        return [{"name": WORKING_MEMORY_TOOL, "description": about, "input_schema": parameters}]
    function = {"name": WORKING_MEMORY_TOOL, "description": about, "parameters": parameters}
    return [{"type": "function", "function": function}]


def _parameter(options: WorkingMemoryPolicy) -> JsonObject:
    """A change need not name every field, so nothing is required of it."""
    if options.schema is None:
        return {"type": "string", "description": "The whole document, in markdown."}
    return {name: value for name, value in options.schema.items() if name != "required"}
