"""Working memory as data: how changes are merged, what a write says to its followers, and its options."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from om_core.domain.errors import InvalidInputError, PolicyError
from om_core.domain.policy import MemoryPolicy, WorkingMemoryPolicy
from om_core.domain.working_memory import WorkingMemory, cache_key, merge, state_signal
from om_core.options import policy_from_json, policy_to_json, resolve_policy
from om_core.services.tools import tools

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "city": {"type": ["string", "null"]},
        "pet": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "home": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "floor": {"type": ["integer", "null"]}},
        },
    },
    "required": ["name"],
}


@pytest.mark.conforms("6.6")
@pytest.mark.report("H05")
@pytest.mark.parametrize(
    ("stored", "change", "schema", "merged"),
    [
        ({}, {"a": 1}, None, {"a": 1}),
        ({"a": 1, "b": 2}, {"b": 3}, None, {"a": 1, "b": 3}),
        ({"a": 1, "b": 2}, {"b": None}, None, {"a": 1}),
        ({"a": 1}, {"b": None}, None, {"a": 1}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": None, "z": 3}}, None, {"a": {"x": 1, "z": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, None, {"a": [3]}),
        ({"a": [1, 2]}, {"a": []}, None, {"a": []}),
        ({"a": {"x": 1}}, {"a": "text"}, None, {"a": "text"}),
        ({"a": "text"}, {"a": {"x": 1}}, None, {"a": {"x": 1}}),
        ({"a": 1}, {}, None, {"a": 1}),
        ({"a": 1}, {"a": False}, None, {"a": False}),
        # Strict providers send null for every optional field: only where null has a meaning does it delete.
        ({"home": {"street": "x", "floor": 2}}, {"home": {"street": None, "floor": None}}, PERSON, {"home": {"street": "x"}}),
        ({"name": "Eve", "city": "Lyon"}, {"city": None}, PERSON, {"name": "Eve"}),
        ({"name": "Eve", "pet": "cat"}, {"pet": None}, PERSON, {"name": "Eve"}),
        ({"name": "Eve"}, {"name": None}, PERSON, {}),
        ({"name": "Eve", "other": 1}, {"other": None}, PERSON, {"name": "Eve"}),
        ({"name": "Eve", "home": {"street": "x"}}, {"name": "Eva", "home": None}, PERSON, {"name": "Eva", "home": {"street": "x"}}),
    ],
)  # fmt: skip
def test_a_change_is_merged(stored: Any, change: Any, schema: Any, merged: Any) -> None:
    before = repr(stored)

    assert merge(stored, change, schema) == merged
    assert repr(stored) == before


START = datetime(2026, 3, 1, tzinfo=UTC)


def version(number: int, content: str, format: Any = "markdown") -> WorkingMemory:
    return WorkingMemory(
        scope="resource",
        scope_key="r",
        version=number,
        format=format,
        content=content,
        source="agent",
        created_at=START,
    )


LONG = "\n".join(f"- fact {number} about the user" for number in range(20))


@pytest.mark.conforms("6.6")
@pytest.mark.parametrize(
    ("old", "new", "mode", "payload"),
    [
        (None, version(1, "- Name: Eve"), "snapshot", {"content": "- Name: Eve"}),
        (
            version(1, LONG),
            version(2, LONG.replace("fact 7", "thing 7")),
            "delta",
            {"patch": "@@ -8 +8 @@\n-- fact 7 about the user\n+- thing 7 about the user", "baseVersion": 1},
        ),
        (version(1, "a"), version(2, "b"), "snapshot", {"content": "b"}),
        (version(1, ""), version(2, LONG), "snapshot", {"content": LONG}),
        (version(1, '{"a": 1}', "json"), version(2, '{"a": 2}', "json"), "snapshot", {"content": {"a": 2}}),
    ],
    ids=["first", "small change of a long text", "shorter than its patch", "after an empty one", "json"],
)
def test_a_write_says_all_of_it_or_what_changed(
    old: WorkingMemory | None, new: WorkingMemory, mode: str, payload: dict[str, Any]
) -> None:
    signal = state_signal(new, old)

    assert signal["mode"] == mode
    assert {name: signal[name] for name in payload} == payload
    assert signal["cacheKey"] == cache_key(new.format, new.content)


@pytest.mark.conforms("6.6")
def test_the_cache_key_tells_form_and_trimmed_content_apart() -> None:
    assert cache_key("markdown", " a\n") == cache_key("markdown", "a")
    assert len({cache_key("markdown", "a"), cache_key("json", "a"), cache_key("markdown", "b")}) == 3


class Person(BaseModel):
    """Not compared: the schema is."""

    name: str
    age: int | None = None


@pytest.mark.conforms("6.6")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, WorkingMemoryPolicy()),
        ({"working_memory": {"enabled": True}}, WorkingMemoryPolicy(enabled=True)),
        ({"workingMemory": {"agentManaged": False}}, WorkingMemoryPolicy(agent_managed=False)),
        ({"working_memory": {"enabled": True, "scope": "thread"}}, WorkingMemoryPolicy(enabled=True, scope="thread")),
        ({"working_memory": {"template": "# Me"}}, WorkingMemoryPolicy(template="# Me")),
        ({"working_memory": {"schema": PERSON}}, WorkingMemoryPolicy(schema=PERSON)),
        ({"working_memory": {"schema": Person}}, WorkingMemoryPolicy(schema=Person.model_json_schema())),
        ({"observation": {"manage_working_memory": True}}, WorkingMemoryPolicy(enabled=True, agent_managed=False)),
        (
            {"observation": {"manage_working_memory": True}, "working_memory": {"agent_managed": True}},
            WorkingMemoryPolicy(enabled=True, agent_managed=True),
        ),
    ],
)
def test_options_of_working_memory(options: dict[str, Any], expected: WorkingMemoryPolicy) -> None:
    policy = resolve_policy(options)

    assert policy.working_memory == expected
    assert policy_from_json(policy_to_json(policy)) == policy


@pytest.mark.parametrize(
    ("options", "option", "allowed"),
    [
        ({"working_memory": {"scope": "tenant"}}, "working_memory.scope", "'thread', 'resource'"),
        ({"working_memory": {"enabled": "yes"}}, "working_memory.enabled", "True or False"),
        ({"working_memory": {"schema": 3}}, "working_memory.schema", "Pydantic model"),
        ({"working_memory": {"schema": {"type": "nothing"}}}, "working_memory.schema", "a valid JSON Schema"),
        ({"working_memory": {"schema": {"title": "x" * 20_000}}}, "working_memory.schema", "16,384 bytes"),
        ({"working_memory": {"schema": PERSON, "template": "x"}}, "working_memory.template", "not both"),
        (
            {"observation": {"manage_working_memory": True}, "working_memory": {"enabled": False}},
            "working_memory.enabled",
            "manage_working_memory",
        ),
        ({"limits": {"working_memory_bytes": 0}}, "limits.working_memory_bytes", "from 1"),
        ({"limits": {"extracted_bytes": 1.5}}, "limits.extracted_bytes", "whole number"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], option: str, allowed: str) -> None:
    with pytest.raises(PolicyError, match=allowed) as caught:
        resolve_policy(options)
    assert caught.value.option == option


def offered(**options: Any) -> MemoryPolicy:
    return resolve_policy({"working_memory": {"enabled": True, **options}})


@pytest.mark.parametrize("format", ["openai", "anthropic"])
def test_the_tool_has_one_parameter_in_either_form(format: str) -> None:
    [tool] = tools(offered(template="# Only this"), format)
    inner = tool["function"] if format == "openai" else tool
    schema = inner["parameters" if format == "openai" else "input_schema"]

    assert inner["name"] == "update_working_memory"
    assert "# Only this" in inner["description"]
    assert list(schema["properties"]) == schema["required"] == ["memory"]
    assert schema["properties"]["memory"]["type"] == "string"


def test_a_change_by_the_tool_need_not_name_every_field() -> None:
    [tool] = tools(offered(schema=PERSON), "anthropic")

    assert tool["input_schema"]["properties"]["memory"] == {k: v for k, v in PERSON.items() if k != "required"}


@pytest.mark.parametrize("options", [{}, {"agent_managed": False, "enabled": True}, {"enabled": False}])
def test_the_tool_is_offered_only_to_an_agent_that_keeps_the_memory(options: dict[str, Any]) -> None:
    assert tools(resolve_policy({"working_memory": options}), "openai") == []


def test_an_unknown_form_of_tools_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="format"):
        tools(MemoryPolicy(), "cohere")
