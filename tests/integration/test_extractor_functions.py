"""Functions of extractors: made when they are asked for, told a value before it is kept, imported by name."""

from __future__ import annotations

from typing import Any

import pytest

from om_core import Extractor
from om_core.services.run_jobs import JobRunner
from tests.support import extractors
from tests.support.extracting import KEY, Stage, section, stage

__all__ = ["stage"]

MOOD = Extractor("Mood", "How does the user feel?")


@pytest.mark.conforms("6.4")
def test_run_time_functions_are_called_when_the_value_is_asked_for(stage: Stage) -> None:
    stage.open(
        Extractor("Mood", extractors.ask_in_french), Extractor("Form", extractors.ask_in_french, extractors.mood_schema)
    )
    stage.sections = section("mood", "calme")
    stage.objects = [{"form": {"word": "calme"}}]
    stage.turn()
    stage.turn(start=6)

    assert "Humeur de r dans t? Avant: None." in stage.prompts()[0][0]
    assert "Humeur de r dans t? Avant: calme." in stage.prompts()[1][0]
    assert "JSON Schema" in stage.prompts(extraction=True)[0][0]
    assert stage.status()["extracted"]["extracted"] == {"mood": "calme", "form": {"word": "calme"}}


def test_a_run_time_function_that_fails_fails_its_value_alone(stage: Stage) -> None:
    stage.open(Extractor("Bad", extractors.no_text), MOOD, Extractor("Form", extractors.no_text, extractors.Mood))
    stage.sections = section("mood", "calm")
    stage.turn()

    [chunk] = stage.chunks()
    assert (chunk["kind"], chunk["extracted"]) == ("observed", {"mood": "calm"})
    errors = {found["slug"]: found["error"] for found in stage.status()["extractions"] if found["error"]}
    assert set(errors) == {"bad", "form"}
    assert all("tests.support.extractors:no_text: gave no text" in error for error in errors.values())
    assert stage.prompts(extraction=True) == [], "nothing is left to ask for"


HOOKS = {
    "keeps": (Extractor("Mood", "How?", on_extracted=extractors.note), "calm", None),
    "replaces": (Extractor("Mood", "How?", on_extracted=extractors.shout), "CALM", None),
    "asynchronous": (Extractor("Mood", "How?", on_extracted=extractors.later), "later calm", None),
    "a model of Pydantic's": (
        Extractor("Mood", "How?", on_extracted=extractors.as_model),
        {"word": "calm", "strength": 2},
        None,
    ),
    "raises": (
        Extractor("Mood", "How?", on_extracted=extractors.fail),
        None,
        "on_extracted: ValueError: nothing there, password=[redacted]",
    ),
    "not JSON": (Extractor("Mood", "How?", on_extracted=extractors.not_json), None, "on_extracted: "),
}


@pytest.mark.parametrize(("extractor", "value", "error"), HOOKS.values(), ids=HOOKS)
def test_a_function_sees_an_inline_value_before_it_is_kept(
    stage: Stage, extractor: Extractor, value: Any, error: str | None
) -> None:
    stage.open(extractor)
    stage.sections = section("mood", "calm")
    stage.turn()

    status = stage.status()
    assert status["extracted"] == ({} if value is None else {"extracted": {"mood": value}})
    assert stage.chunks()[0]["extracted"] == ({} if value is None else {"mood": value})
    [found] = status["extractions"]
    assert found["error"] is None if error is None else str(found["error"]).startswith(error)


def test_a_function_s_value_is_held_against_the_schema(stage: Stage) -> None:
    stage.open(Extractor("Mood", "How?", extractors.Mood, on_extracted=extractors.of_another_kind))
    stage.objects = [{"mood": {"word": "calm"}}]
    stage.turn()

    assert stage.status()["extracted"] == {}
    assert "does not fit its schema" in stage.status()["extractions"][0]["error"]


@pytest.mark.conforms("6.4")
def test_what_a_function_is_given(stage: Stage) -> None:
    stage.open(Extractor("Mood", "How?", on_extracted=extractors.note))
    stage.sections = section("mood", "calm")
    stage.turn()
    stage.sections = section("mood", f"glad {KEY}")
    stage.turn(start=6)

    first, second = extractors.seen
    assert (first.source, first.slug, first.thread, first.resource, first.tenant) == (
        "observer", "mood", "t", "r", "default",
    )  # fmt: skip
    assert (first.previous, first.current, second.previous, second.current) == (
        None, "calm", "calm", "glad [redacted]",
    )  # fmt: skip
    assert "Noted TRACE-0" in str(first.observations)
    assert first.messages[0]["texts"][0].startswith("TRACE-0 ")
    assert first.chunk_range == (1, stage.chunks()[0]["to_seq"])


@pytest.mark.conforms("6.4")
def test_a_hook_makes_a_value_that_no_model_is_asked_for(stage: Stage) -> None:
    stage.open(Extractor("Tally", mode="hook", on_extracted=extractors.count_notes))
    stage.turn()
    stage.turn(start=6)

    assert stage.prompts(extraction=True) == []
    first, second = [chunk["extracted"]["tally"] for chunk in stage.chunks()]
    assert first["notes"] > 0
    assert (first["before"], second["before"]) == (None, first)


@pytest.mark.conforms("6.4")
def test_signals_reach_followers_and_the_actor(stage: Stage) -> None:
    stage.open(Extractor("Mood", "How?", on_extracted=extractors.signal))
    stage.sections = section("mood", "calm")
    stage.turn()

    [event] = stage.events("signal")
    assert (event["slug"], event["name"], event["data"]) == ("mood", "mood", {"now": "calm"})
    assert stage.tail() == {"mood": "Take care: calm"}
    assert stage.status()["extracted"] == {"extracted": {"mood": "calm"}}


def test_a_value_that_is_kept_nowhere_is_only_told(stage: Stage) -> None:
    stage.open(Extractor("Mood", "How?", metadata_key_path=False, on_extracted=extractors.note))
    stage.sections = section("mood", "calm")
    stage.turn()
    stage.turn(start=6)

    assert [event.current for event in extractors.seen] == ["calm", "calm"]
    assert (stage.status()["extracted"], stage.tail()) == ({}, {})
    assert "mood:\ncalm" not in stage.prompts()[1][1]


def test_a_job_runs_the_functions_it_was_made_with_and_waits_for_those_it_cannot_import(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.open(Extractor("Mood", "How?", on_extracted=extractors.note))
    stage.sections = section("mood", "calm")
    stage.talk()
    runner = JobRunner(stage.memory.services)
    assert runner.run("buffering") == "ok"
    with monkeypatch.context() as gone:
        gone.delattr(extractors, "note")
        assert runner.run("observation") == "retry_later"
    runner.close()

    [job] = stage.memory.jobs(kind="extract").items
    assert (job["state"], job["failures"], job["error"]["code"]) == ("retryable", 0, "setup")
    assert "cannot import tests.support.extractors:note" in stage.status()["last_error"]["message"]
    stage.run()
    assert stage.status()["extracted"] == {"extracted": {"mood": "calm"}}


@pytest.mark.report("H07", "I02")
def test_work_and_turns_within_another_turn_keep_their_own_identity(stage: Stage) -> None:
    memory = stage.open(Extractor("Mood", "How?", on_extracted=extractors.note))
    stage.sections = section("mood", "calm")
    before = len(extractors.seen)
    with memory.turn("parent", "boss") as parent:
        parent.start([{"role": "user", "content": "TRACE-parent ask somebody"}])
        with memory.turn("child", "helper") as child:
            child.start([{"role": "user", "content": "TRACE-child what is it?"}])
            child.step([{"role": "assistant", "content": "TRACE-child it is blue"}])
        stage.turn()
        parent.step([{"role": "assistant", "content": "TRACE-parent it is blue"}])

    assert {(event.thread, event.resource) for event in extractors.seen[before:]} == {("t", "r")}
    for thread, resource in (("parent", "boss"), ("child", "helper")):
        memory.observe(thread, resource=resource)
        stage.run()
        [chunk] = memory.observations(thread, resource=resource, state="all").items
        assert (chunk["from_seq"], chunk["to_seq"]) == (1, 2)
        assert f"TRACE-{thread}" in chunk["text"]
        assert (extractors.seen[-1].thread, extractors.seen[-1].resource) == (thread, resource)
    assert not memory.get_thread("parent", resource="boss").turn_open
