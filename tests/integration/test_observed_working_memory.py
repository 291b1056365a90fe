"""Working memory that the Observer keeps: written with a chunk or after it, merged, refused apart from the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from om_core import Extractor
from om_core.testing.scripted_server import Reply
from tests.support.extracting import KEY, Stage, section, stage
from tests.support.fixtures import raw_session

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.memory import Memory

__all__ = ["stage"]

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"type": ["string", "null"]}, "pets": {"type": "array"}},
    "required": ["name"],
}


LONG = " ".join(f"fact{number * number}" for number in range(2_000))


def managed(stage: Stage, *extract: Extractor, **working_memory: Any) -> Memory:
    return stage.open(
        *extract, observation={"manage_working_memory": True}, working_memory={"template": "# Name:", **working_memory}
    )


def as_object(stage: Stage) -> Memory:
    return stage.open(observation={"manage_working_memory": True}, working_memory={"schema": PERSON})


def document(stage: Stage) -> JsonObject:
    return stage.memory.working_memory(resource="r")


@pytest.mark.conforms("6.6")
def test_the_observer_writes_the_text_anew_from_the_template_and_what_it_was(stage: Stage) -> None:
    memory = managed(stage)
    stage.sections = section("working-memory", "# Name: Eve")
    stage.turn()
    stage.sections = section("working-memory", "# Name: Eve\n- lives in Lyon")
    stage.turn(start=6)

    first, second = stage.prompts()
    assert "# Name:" in first[0]
    assert "working-memory:\n# Name: Eve" in second[1]
    found = document(stage)
    assert (found["content"], found["version"], found["source"]) == ("# Name: Eve\n- lives in Lyon", 2, "observer")
    blocks = memory.context("t", resource="r").context.volatile
    assert [(block.kind, block.name) for block in blocks] == [("working_memory", "resource")]
    assert [event["version"] for event in stage.events("working-memory")] == [1, 2]
    assert all(chunk["extracted"] == {} for chunk in stage.chunks()), "it is kept in one place"
    assert memory.tools() == []


@pytest.mark.conforms("6.6")
@pytest.mark.parametrize("said", ["", section("working-memory", ""), section("working-memory", "none")])
def test_silence_is_no_write(stage: Stage, said: str) -> None:
    managed(stage)
    stage.sections = section("working-memory", "# Name: Eve")
    stage.turn()
    stage.sections = said
    stage.turn(start=6)

    assert (document(stage)["content"], document(stage)["version"]) == ("# Name: Eve", 1)


@pytest.mark.conforms("6.6")
def test_an_object_is_merged_by_a_call_of_its_own(stage: Stage) -> None:
    as_object(stage)
    stage.objects = [
        {"working-memory": {"name": "Eve", "city": "Lyon", "pets": ["cat"]}},
        {"working-memory": {"city": None, "pets": ["dog"]}},
    ]
    stage.turn()
    stage.turn(start=6)

    assert document(stage)["content"] == {"name": "Eve", "pets": ["dog"]}
    assert '"city": "Lyon"' in stage.prompts(extraction=True)[1][1], "it is shown whole"
    assert "working-memory" not in stage.prompts()[0][0]


def test_an_empty_object_is_asked_for_again(stage: Stage) -> None:
    as_object(stage)
    stage.objects = [{}, {"working-memory": {"name": "Eve"}}]
    stage.turn()

    assert document(stage)["content"] == {"name": "Eve"}
    assert "Look again" in stage.prompts(extraction=True)[1][1]


@pytest.mark.parametrize(
    ("options", "said", "error"),
    [
        ({}, section("working-memory", LONG), "limits.working_memory_bytes allows 16,384"),
        ({}, section("working-memory", "Eve likes tea and Eve likes tea. " * 200), "degenerate: "),
        ({"schema": PERSON, "template": None}, {"working-memory": {"name": 3}}, "$.name: 3 is not of type"),
        ({"schema": PERSON, "template": None}, {"working-memory": {"city": "Lyon"}}, "'name' is a required property"),
        ({"schema": PERSON, "template": None}, {"working-memory": "Eve"}, "not JSON"),
    ],
)
def test_what_cannot_be_kept_fails_alone_and_is_visible_until_the_next_write(
    stage: Stage, options: dict[str, Any], said: Any, error: str
) -> None:
    managed(stage, **options)
    good: Any = {"working-memory": {"name": "Eve"}} if "schema" in options else section("working-memory", "Eve")
    for number, answer in enumerate((said, good)):
        stage.sections = answer if isinstance(answer, str) else ""
        stage.objects = [answer] if isinstance(answer, dict) else []
        stage.turn(start=6 * number)
        [found] = stage.status()["extractions"]
        if number == 0:
            assert error in found["error"]
            assert document(stage)["version"] == 0
            assert stage.chunks()[0]["kind"] == "observed"
        else:
            assert found["error"] is None
            assert document(stage)["version"] == 1


def test_secrets_do_not_get_into_it(stage: Stage) -> None:
    managed(stage)
    stage.sections = section("working-memory", f"# Key: {KEY}")
    stage.turn()

    assert document(stage)["content"] == "# Key: [redacted]"


def test_the_document_of_a_thread_is_its_own(stage: Stage) -> None:
    managed(stage, scope="thread")
    stage.sections = section("working-memory", "# Name: Eve")
    stage.turn()

    assert stage.memory.working_memory("t", resource="r")["content"] == "# Name: Eve"
    assert document(stage)["version"] == 0


def test_an_extractor_of_that_name_takes_its_place(stage: Stage) -> None:
    managed(stage, Extractor("Working Memory", "My own."))
    stage.sections = section("working-memory", "mine")
    stage.turn()

    assert document(stage)["version"] == 0
    assert stage.status()["extracted"] == {"extracted": {"working-memory": "mine"}}


def test_where_a_version_comes_from_can_be_followed(stage: Stage) -> None:
    managed(stage)
    stage.sections = section("working-memory", "# Name: Eve")
    stage.turn()
    stage.sections = section("working-memory", "# Name: Eva")
    stage.turn(start=6)

    first, second = stage.chunks()
    with raw_session(stage.memory.services.store) as session:
        rows = session.hot(
            "SELECT version, base_version, chunk_id, thread_id, from_seq, to_seq, job_id IS NOT NULL"
            " FROM working_memory ORDER BY version"
        )
        [(shown,)] = session.hot("SELECT shown_chunks FROM chunks WHERE id = %s", (second["id"],))
    assert [tuple(row) for row in rows] == [
        (1, None, first["id"], 1, first["from_seq"], first["to_seq"], True),
        (2, 1, second["id"], 1, second["from_seq"], second["to_seq"], True),
    ]
    assert first["id"] in shown


def test_a_write_by_the_caller_in_between_is_what_the_observer_is_shown_next(stage: Stage) -> None:
    memory = managed(stage)
    stage.sections = section("working-memory", "# Name: Eve")
    stage.turn()
    memory.set_working_memory("# Name: Eve Smith", resource="r", version=1)
    stage.turn(start=6)

    assert "working-memory:\n# Name: Eve Smith" in stage.prompts()[1][1]


def test_a_range_that_is_redriven_late_does_not_put_the_document_back(stage: Stage) -> None:
    memory = as_object(stage)
    stage.objects = [Reply(text="no"), Reply(text="no"), {"working-memory": {"name": "Eve", "city": "Paris"}}]
    stage.turn()
    stage.turn(start=6)
    [job] = memory.jobs(state="discarded").items
    stage.objects = [{"working-memory": {"name": "Eve", "city": "Lyon"}}]
    memory.retry_job(job["id"])
    stage.run()

    assert document(stage)["content"] == {"name": "Eve", "city": "Paris"}
