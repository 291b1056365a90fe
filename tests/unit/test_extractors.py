"""Extractors as options: what each becomes, and what is said of each mistake."""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

import om_core
from om_core import ExtractionEvent, Extractor
from om_core.domain.errors import PolicyError, SetupError
from om_core.domain.extraction import SHOWN_CHARS, Extraction, values_by_path
from om_core.domain.policy import ExtractorSpec, MemoryPolicy
from om_core.options import policy_from_json, policy_to_json, resolve_policy
from om_core.options.extractors import RESERVED_SLUGS, slug_of
from om_core.options.functions import load
from om_core.services.extraction_event import call_function
from tests.support import extractors

HERE = "tests.support.extractors"


def resolved(*items: Any, phase: str = "observation") -> tuple[ExtractorSpec, ...]:
    policy: MemoryPolicy = resolve_policy({phase: {"extract": list(items)}})
    assert policy_from_json(policy_to_json(policy)) == policy
    return getattr(policy, phase).extract


@pytest.mark.conforms("6.1")
@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Mood", "mood"),
        ('User\'s "Mood"!', "users-mood"),
        ("  Next  steps / plan ", "next-steps-plan"),
        ("a--b__c", "a-b-c"),
        ("Größe 2", "gr-e-2"),
        ("`Code` \\ path", "code-path"),
        ("V2", "v2"),
    ],
)
def test_slugs(name: str, slug: str) -> None:
    assert slug_of(name) == slug
    assert resolved({"name": name, "instructions": "x"})[0].slug == slug


@pytest.mark.conforms("6.1")
@pytest.mark.parametrize("name", [*sorted(RESERVED_SLUGS), "Current Task", "THREAD TITLE"])
def test_reserved_slugs_are_refused(name: str) -> None:
    with pytest.raises(PolicyError, match="none of") as caught:
        resolved({"name": name, "instructions": "x"})
    assert caught.value.option == "observation.extract.0.name"


def test_a_class_and_a_table_become_the_same_data() -> None:
    as_class = Extractor(name="Mood", instructions="How?", schema=extractors.Mood, on_extracted=extractors.note)
    as_table = {
        "name": "Mood",
        "instructions": "How?",
        "schema": extractors.Mood.model_json_schema(),
        "onExtracted": f"{HERE}:note",
    }

    assert resolved(as_class) == resolved(as_table)
    assert om_core.Extractor is Extractor


MODES = {
    "inline": (Extractor("Mood", "How?"), {"is_inline": True, "is_structured": False, "is_late": False}),
    "inline with a function": (
        Extractor("Mood", "How?", on_extracted=extractors.note),
        {"is_inline": True, "is_late": True},
    ),
    "structured": (
        Extractor("Mood", "How?", extractors.Mood),
        {"is_structured": True, "is_inline": False, "is_late": True},
    ),
    "structured by name": (Extractor("Mood", "How?", f"{HERE}:Mood"), {"schema": extractors.Mood.model_json_schema()}),
    "hook": (Extractor("Mood", mode="hook", on_extracted=f"{HERE}:note"), {"is_asked": False, "is_late": True}),
    "functions": (
        Extractor("Mood", extractors.ask_in_french, extractors.mood_schema),
        {"instructions_from": f"{HERE}:ask_in_french", "schema_from": f"{HERE}:mood_schema", "is_structured": True},
    ),
    "functions by name": (
        {"name": "Mood", "instructions_from": f"{HERE}:ask_in_french", "schema_from": f"{HERE}:mood_schema"},
        {"instructions_from": f"{HERE}:ask_in_french", "schema_from": f"{HERE}:mood_schema", "is_asked": True},
    ),
    "kept nowhere": (Extractor("Mood", "How?", metadata_key_path=False), {"metadata_key_path": None}),
    "kept elsewhere": (Extractor("Mood", "How?", metadata_key_path="a.b"), {"metadata_key_path": "a.b"}),
    "defaults": (
        Extractor("Mood", "How?"),
        {"metadata_key_path": "extracted.mood", "include_previous_extraction": True},
    ),
}


@pytest.mark.conforms("6.1")
@pytest.mark.parametrize(("item", "expected"), MODES.values(), ids=MODES)
@pytest.mark.parametrize("phase", ["observation", "reflection"])
def test_modes(item: Any, expected: dict[str, Any], phase: str) -> None:
    [spec] = resolved(item, phase=phase)

    assert {name: getattr(spec, name) for name in expected} == expected


def inner_function() -> Any:
    def inside(event: object) -> None:
        """Nowhere to be imported from."""

    return inside


MISTAKES: list[tuple[Any, str, str]] = [
    (lambda: 1, "0", "functions cannot be stored"),
    (3, "0", "an Extractor"),
    ({"instructions": "x"}, "0.name", "not blank"),
    ({"name": " ", "instructions": "x"}, "0.name", "not blank"),
    ({"name": "a"}, "0.instructions", "not blank"),
    ({"name": "a", "instructions": "  "}, "0.instructions", "not blank"),
    ({"name": "a", "instructions": 3}, "0.instructions", "not blank"),
    ({"name": "a", "instructions": "x" * 8_001}, "0.instructions", "8,000 characters"),
    ({"name": "1st", "instructions": "x"}, "0.name", "starts with a letter"),
    ({"name": "日本", "instructions": "x"}, "0.name", "starts with a letter"),
    ({"name": "a", "instructions": "x", "schema": 3}, "0.schema", "Pydantic model"),
    ({"name": "a", "instructions": "x", "schema": {"type": "blob"}}, "0.schema", "a valid JSON Schema"),
    ({"name": "a", "instructions": "x", "schema": "no path"}, "0.schema", "my_app.memory:remember"),
    ({"name": "a", "instructions": "x", "mode": "inline"}, "0.mode", "'hook'"),
    ({"name": "a", "mode": "hook"}, "0.on_extracted", "a function: mode is 'hook'"),
    ({"name": "a", "mode": "hook", "instructions": "x", "on_extracted": f"{HERE}:note"}, "0.instructions", "no model is asked"),
    ({"name": "a", "mode": "hook", "schema": {}, "on_extracted": f"{HERE}:note"}, "0.schema", "no model is asked"),
    ({"name": "a", "instructions": "x", "metadata_key_path": "a.__proto__"}, "0.metadata_key_path", "names joined by dots"),
    ({"name": "a", "instructions": "x", "metadata_key_path": "constructor"}, "0.metadata_key_path", "names joined by dots"),
    ({"name": "a", "instructions": "x", "metadata_key_path": "a..b"}, "0.metadata_key_path", "names joined by dots"),
    ({"name": "a", "instructions": "x", "previous": True}, "0.previous", "unknown option"),
    ({"name": "a", "instructions": "x", "include_previous_extraction": 1}, "0.include_previous_extraction", "True or False"),
    # Functions have to be found by every worker.
    ({"name": "a", "instructions": "x", "on_extracted": lambda event: 1}, "0.on_extracted", "cannot import a lambda"),
    ({"name": "a", "instructions": "x", "on_extracted": inner_function()}, "0.on_extracted", "a function within another"),
    ({"name": "a", "instructions": lambda request: "x"}, "0.instructions", "cannot import a lambda"),
    ({"name": "a", "instructions": "x", "on_extracted": 3}, "0.on_extracted", "importable module"),
    ({"name": "a", "instructions": "x", "on_extracted": "tests.support.extractors.note"}, "0.on_extracted", "as in 'my_app.memory:remember'"),
    ({"name": "a", "instructions": "x", "on_extracted": "no_such_package.memory:note"}, "0.on_extracted", "install its package where the workers run"),
    ({"name": "a", "instructions": "x", "on_extracted": f"{HERE}:nothing"}, "0.on_extracted", "has no attribute 'nothing'"),
    ({"name": "a", "instructions": "x", "on_extracted": f"{HERE}:NOT_CALLABLE"}, "0.on_extracted", "this is no function"),
]  # fmt: skip


@pytest.mark.conforms("6.1")
@pytest.mark.parametrize(("item", "field", "allowed"), MISTAKES, ids=[f"{n}-{m[1]}" for n, m in enumerate(MISTAKES)])
def test_a_wrong_extractor_names_its_field(item: Any, field: str, allowed: str) -> None:
    with pytest.raises(PolicyError, match=allowed) as caught:
        resolved(item)
    assert caught.value.option == f"observation.extract.{field}"


@pytest.mark.conforms("6.1")
@pytest.mark.parametrize(
    ("items", "option", "allowed"),
    [
        ([Extractor("A b", "x"), Extractor("a-b", "y")], "1.name", "a-b is taken"),
        (
            [Extractor("a", "x", metadata_key_path="p"), Extractor("b", "y", metadata_key_path="p.q")],
            "1.metadata_key_path",
            "a path apart from 'p'",
        ),
        (
            [Extractor("a", "x", metadata_key_path="p"), Extractor("b", "y", metadata_key_path="p")],
            "1.metadata_key_path",
            "a path apart from 'p'",
        ),
    ],
)
def test_two_extractors_may_not_meet(items: list[Any], option: str, allowed: str) -> None:
    with pytest.raises(PolicyError, match=allowed) as caught:
        resolved(*items)
    assert caught.value.option == f"observation.extract.{option}"


def test_there_are_at_most_32() -> None:
    with pytest.raises(PolicyError, match="at most 32"):
        resolved(*[Extractor(f"v{n}", "x") for n in range(33)])


def test_a_worker_that_cannot_import_a_function_says_what_to_do() -> None:
    with pytest.raises(SetupError, match=r"cannot import elsewhere.memory:note .* PYTHONPATH"):
        load("elsewhere.memory:note")


EVENT = ExtractionEvent(
    source="observer", slug="mood", name="Mood", tenant="t", thread="x", resource="r", previous=None, current="calm"
)


def test_a_function_that_takes_too_long_is_left_alone() -> None:
    ended = threading.Event()
    try:
        with pytest.raises(TimeoutError, match=r"longer than 0\.05 s"):
            call_function(lambda event: ended.wait(30), EVENT, timeout_s=0.05)
    finally:
        ended.set()


def test_a_coroutine_that_takes_too_long_is_stopped() -> None:
    async def forever(event: ExtractionEvent) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        call_function(forever, EVENT, timeout_s=0.05)


def test_a_function_that_wants_to_end_the_process_only_fails() -> None:
    with pytest.raises(RuntimeError, match="it raised SystemExit"):
        call_function(lambda event: sys.exit(3), EVENT, timeout_s=5)


def test_a_function_may_not_send_signals_without_end() -> None:
    event = replace(EVENT, signals=[])
    for number in range(20):
        event.send_signal("n", {"number": number, "password": "hunter2hunter2"})
    with pytest.raises(ValueError, match="more than 20 signals"):
        event.send_signal("n")
    assert "hunter2" not in repr(event.signals)


def test_values_stand_at_their_paths() -> None:
    specs = resolved(
        Extractor("mood", "x"),
        Extractor("plan", "x", metadata_key_path="work.plan"),
        Extractor("secret", "x", metadata_key_path=False),
        Extractor("unknown", "x"),
    )
    found = [Extraction(slug=slug, value=f"{slug}!") for slug in ("mood", "plan", "secret", "gone")]

    assert values_by_path(specs, found) == {"extracted": {"mood": "mood!"}, "work": {"plan": "plan!"}}


@pytest.mark.parametrize(
    ("value", "signal", "shown"),
    [
        ("calm", None, "calm"),
        ({"word": "calm"}, None, '{"word": "calm"}'),
        ("calm", "Take care.", "Take care."),
        ("x" * 5_000, None, "x" * (SHOWN_CHARS - 6) + " [cut]"),
        (None, None, ""),
    ],
)
def test_what_is_shown_of_a_value(value: Any, signal: str | None, shown: str) -> None:
    assert Extraction(slug="mood", value=value, signal=signal).shown == shown
