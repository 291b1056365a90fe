"""Removal follows what was said by every way it goes: tasks, titles, values, documents, copies (DESIGN 3.3)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from tests.integration.test_removal import MARKER, SECRET, fill, holds, memory, model, settle
from tests.support.everywhere import places_of, redis_places_of
from tests.support.fixtures import raw_session
from tests.support.jobs import work_off
from tests.support.services import settings_services
from tests.support.waiting import eventually
from workers.dispatch import build_dispatcher

if TYPE_CHECKING:
    from om_core.config import Settings

__all__ = ["memory", "model"]


def sql(memory: Memory, statement: str, *params: object) -> list[Any]:
    """A statement that no service makes."""
    with raw_session(memory.services.store, memory.tenant) as session:
        found: list[Any] = session.hot(statement, params)
    return found


def chunks(memory: Memory, thread: str = "t") -> list[Any]:
    return list(memory.observations(thread, resource="r", state="all", limit=200).items)


@pytest.fixture
def noted(memory: Memory) -> Memory:
    """A thread of several chunks, all in the log; the secret was said in the first."""
    memory.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    for first in range(0, 15, 5):
        fill(memory, first, 5)
        work_off(memory.services)
        memory.activate("t", resource="r")
    assert len(chunks(memory)) >= 3
    return memory


def plant(memory: Memory, number: int, text: str) -> int:
    """Make one chunk of the thread say something, as if its Observer had been told of it by another way than notes."""
    found = chunks(memory)[number]
    sql(memory, "UPDATE chunks SET text = %s, shown_chunks = '{}' WHERE id = %s RETURNING id", text, found["id"])
    with raw_session(memory.services.store, memory.tenant) as session:
        session.hot(
            "UPDATE chunks SET tokens = %s WHERE id = %s RETURNING id",
            (memory.services.counter.count_text(text), found["id"]),
        )
    total = "SELECT coalesce(sum(tokens), 0) FROM chunks WHERE position IS NOT NULL"
    sql(memory, f"UPDATE memories SET log_tokens = ({total}) RETURNING id")
    return int(found["id"])


def test_a_task_carried_from_chunk_to_chunk_carries_the_removal_with_it(noted: Memory, database_url: str) -> None:
    last = plant(noted, -1, f"* 🔴 (10:00) Goes on with the {MARKER} vault")
    noted.delete_message("t", "secret", resource="r")
    assert places_of(MARKER, database_url) == []
    assert next(one for one in chunks(noted) if one["id"] == last)["stale"]
    settle(noted)
    holds(noted)


def test_notes_without_a_word_of_it_stay_as_they_are(noted: Memory) -> None:
    plant(noted, -1, "* 🔴 (10:00) Would say more about this")
    before = {one["id"]: one["text"] for one in chunks(noted)}
    noted.delete_message("t", "secret", resource="r")
    last = chunks(noted)[-1]
    assert (last["text"], last["stale"]) == (before[last["id"]], False)
    holds(noted)


@pytest.mark.parametrize("column", ["hints", "extracted"])
def test_a_chunk_whose_task_or_values_tell_of_it_goes_with_it(noted: Memory, database_url: str, column: str) -> None:
    said = {"hints": {"current_task": f"open the {MARKER} vault", "seen_seq": 3}, "extracted": {"place": MARKER}}
    last = plant(noted, -1, "* 🔴 (10:00) Goes on")
    sql(noted, f"UPDATE chunks SET {column} = %s WHERE id = %s RETURNING id", json.dumps(said[column]), last)
    noted.delete_message("t", "secret", resource="r")
    assert places_of(MARKER, database_url) == []


def test_the_task_before_it_is_known_again_and_a_title_of_the_caller_stays(noted: Memory) -> None:
    first, second = [one["id"] for one in chunks(noted)[1:3]]
    for chunk, task in ((first, "count the boxes"), (second, f"open the {MARKER} vault")):
        hints = json.dumps({"current_task": task, "suggested_response": None, "seen_seq": 1})
        sql(noted, "UPDATE chunks SET text = '* 🔴 Goes on', hints = %s WHERE id = %s RETURNING id", hints, chunk)
    sql(noted, "UPDATE threads SET hints = %s RETURNING id", json.dumps({"current_task": MARKER, "seen_seq": 1}))
    noted.put_thread("t", resource="r", title="Boxes for Berlin")
    noted.delete_message("t", "secret", resource="r")
    thread = noted.get_thread("t", resource="r")
    assert thread.hints.current_task == "count the boxes"
    assert thread.title == "Boxes for Berlin"


def test_a_title_that_memory_gave_goes_with_the_chunk_that_gave_it(noted: Memory, database_url: str) -> None:
    last = chunks(noted)[-1]
    plant(noted, -1, "* 🔴 (10:00) Goes on")
    sql(noted, "UPDATE threads SET title = %s, title_seq = %s RETURNING id", f"The {MARKER} vault", last["to_seq"])
    noted.delete_message("t", "secret", resource="r")
    assert places_of(MARKER, database_url) == []
    assert noted.get_thread("t", resource="r").title is None


def test_values_go_with_what_they_were_made_from_and_others_stay(noted: Memory, database_url: str) -> None:
    made, kept = chunks(noted)[0]["id"], plant(noted, -1, "* 🔴 (10:00) Goes on")
    for slug, value, chunk, error in (
        ("secret", MARKER, made, None),
        ("paraphrased", "the place of the key", made, None),
        ("unknown", f"by the {MARKER}", None, None),
        ("failing", "fine", kept, f"does not fit: {MARKER}"),
        ("other", "forty boxes", kept, None),
    ):
        sql(
            noted,
            "INSERT INTO extractions (tenant_id, memory_id, slug, value, chunk_id, error)"
            " SELECT tenant_id, id, %s, %s, %s, %s FROM memories RETURNING slug",
            *(slug, json.dumps(value), chunk, error),
        )
    noted.delete_message("t", "secret", resource="r")
    assert places_of(MARKER, database_url) == []
    assert sql(noted, "SELECT slug FROM extractions") == [("other",)]


def test_a_document_of_the_person_tells_no_other_conversation_of_it(memory: Memory, database_url: str) -> None:
    """Two conversations with a memory each, and one working memory: what one Observer writes, the other is shown."""
    memory.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    for thread in ("t", "other"):
        fill(memory, 0, 6, thread=thread)
        work_off(memory.services)
        memory.activate(thread, resource="r")
    [(told, number)] = sql(memory, "SELECT id, chunk_id FROM (SELECT t.id, min(c.id) AS chunk_id FROM threads t"
                           " JOIN chunks c ON c.thread_id = t.id WHERE external_id = 't' GROUP BY t.id) k")  # fmt: skip
    sql(
        memory,
        "INSERT INTO working_memory (tenant_id, scope, scope_key, version, format, content, source, thread_id, chunk_id)"
        " VALUES ('default', 'resource', 'r', 1, 'markdown', %s, 'observer', %s, %s) RETURNING version",
        *(f"# Vault: {MARKER}", told, number),
    )
    shown = "UPDATE chunks SET text = %s, shown_chunks = %s WHERE id = %s RETURNING id"
    last = chunks(memory, "other")[-1]["id"]
    sql(memory, shown, f"* 🔴 (10:00) Has a {MARKER} vault", [number], last)
    event = "INSERT INTO events (tenant_id, thread_id, resource_id, type, payload) SELECT tenant_id, id, resource_id,"
    payload = json.dumps({"content": MARKER, "threadId": "other"})
    sql(memory, f"{event} 'data-om-working-memory', %s FROM threads WHERE external_id = 'other' RETURNING id", payload)

    memory.delete_message("t", "secret", resource="r")

    assert places_of(MARKER, database_url) == []
    assert memory.working_memory(resource="r")["content"] is None
    assert [one["stale"] for one in chunks(memory, "other")][-1:] == [True]
    settle(memory, "other")
    assert check_coverage(memory.services, memory.tenant, "other", "r").holds


@pytest.mark.parametrize("how", ["delete_message", "delete_thread", "delete_resource"])
def test_the_broker_holds_nothing_of_it(settings: Settings, database_url: str, redis_url: str, how: str) -> None:
    dispatcher = build_dispatcher(redis_url)
    with settings_services(settings, dispatcher) as services:
        opened = Memory(services)
        opened.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
        fill(opened, 0, 12)
        eventually(lambda: redis_places_of('"thread": "t"', redis_url))  # rings tell people the thread
        settle(opened)
        assert places_of(MARKER, database_url)
        {
            "delete_message": lambda: opened.delete_message("t", "secret", resource="r"),
            "delete_thread": lambda: opened.delete_thread("t", resource="r"),
            "delete_resource": lambda: opened.delete_resource("r"),
        }[how]()
        dispatcher.close()
        assert redis_places_of(MARKER, redis_url) == []
        assert places_of(MARKER, database_url) == []
