"""Rows that a clone has copied: deleting a message or a person reaches them, everything else leaves them (DESIGN 3.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import exc as sa_exc

from om_core.domain.errors import NotFoundError
from om_core.memory import Memory
from om_core.services.coverage import examine
from om_core.store.engine import PostgresStore
from tests.integration.test_removal import MARKER, SECRET, fill, holds, memory, model, settle
from tests.support.everywhere import places_of
from tests.support.fixtures import raw_session
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.message import JsonObject

__all__ = ["memory", "model"]

LINK = """
UPDATE messages c SET copied_thread_id = s.thread_id, copied_seq = s.seq,
                      copied_resource_id = coalesce(s.copied_resource_id, o.resource_id)
  FROM threads t, threads o, messages s
 WHERE t.external_id = %s AND c.thread_id = t.id
   AND o.external_id = %s AND s.thread_id = o.id AND s.seq = c.seq
RETURNING c.seq
"""
"""What copying rows records of where they come from."""


def said(memory: Memory, thread: str, owner: str, *, copied_from: str | None = None) -> None:
    """The same talk in a thread, as a clone holds it: the secret, then small talk; with notes in its log."""
    memory.append(thread, [{"id": "secret", "role": "user", "content": SECRET}], resource=owner)
    for n in range(8):
        talk: JsonObject = {"id": f"m{n}", "role": "user", "content": f"Box {n} goes to the Berlin office. " * 20}
        memory.append(thread, [talk], resource=owner)
    if copied_from is not None:
        with raw_session(memory.services.store) as session:
            assert len(session.hot(LINK, (thread, copied_from))) == 9
    work_off(memory.services)
    memory.activate(thread, resource=owner)


@pytest.fixture
def family(memory: Memory) -> Memory:
    """A thread of one person, a clone of it for another, and a clone of that for a third."""
    said(memory, "first", "a")
    said(memory, "second", "b", copied_from="first")
    said(memory, "third", "c", copied_from="second")
    return memory


def live(memory: Memory, thread: str, owner: str) -> list[str | None]:
    return [row.message.id for row in memory.messages(thread, resource=owner)]


OTHERS = [f"m{n}" for n in range(8)]
ALL = ["secret", *OTHERS]


def test_a_deleted_message_goes_from_every_clone_with_what_was_made_from_it(family: Memory, database_url: str) -> None:
    assert family.delete_message("first", "secret", resource="a")["messages"] == 3
    assert places_of(MARKER, database_url) == []
    for thread, owner in (("first", "a"), ("second", "b"), ("third", "c")):
        assert live(family, thread, owner) == OTHERS
        again = family.append(thread, [{"id": "secret", "role": "user", "content": SECRET}], resource=owner)
        assert again.deleted == ("secret",)
        assert family.observations(thread, resource=owner).items[0]["stale"]
    work_off(family.services)
    for thread, owner in (("first", "a"), ("second", "b"), ("third", "c")):
        assert not family.observations(thread, resource=owner).items[0]["stale"]
        holds_of(family, thread, owner)


def holds_of(memory: Memory, thread: str, owner: str) -> None:
    found = memory.get_thread(thread, resource=owner)
    assert examine(memory.services, memory.tenant, found.id)[0] == ()


def test_deleting_a_copy_leaves_the_row_it_was_copied_from(family: Memory) -> None:
    assert family.delete_message("second", "secret", resource="b")["messages"] == 2
    assert live(family, "first", "a") == ALL
    assert live(family, "third", "c") == OTHERS


@pytest.mark.parametrize(
    "take",
    [
        lambda memory: memory.rewind("first", 0, resource="a"),
        lambda memory: memory.delete_thread("first", resource="a"),
    ],
    ids=["rewind", "delete_thread"],
)
def test_a_clone_is_a_thread_of_its_own(family: Memory, take: Callable[[Memory], object]) -> None:
    take(family)
    assert live(family, "second", "b") == ALL
    assert live(family, "third", "c") == ALL
    holds_of(family, "second", "b")


def test_copies_of_a_clone_that_is_gone_count_as_copied_from_where_it_had_them(family: Memory) -> None:
    family.delete_thread("second", resource="b")
    assert family.delete_message("first", "secret", resource="a")["messages"] == 2
    assert live(family, "third", "c") == OTHERS


def test_all_of_a_person_goes_from_clones_of_others_also_from_threads_that_are_gone(
    family: Memory, database_url: str
) -> None:
    family.append("third", [{"id": "own", "role": "user", "content": "My own words"}], resource="c")
    family.delete_thread("first", resource="a")
    family.append("later", [{"id": "x", "role": "user", "content": "hello"}], resource="a")
    family.delete_resource("a")
    assert places_of(MARKER, database_url) == []
    assert live(family, "second", "b") == []
    assert live(family, "third", "c") == ["own"]
    work_off(family.services)
    holds_of(family, "third", "c")


def test_a_person_is_gone_in_one_transaction_or_not_at_all(memory: Memory, database_url: str) -> None:
    for thread in ("t", "u"):
        memory.append(thread, [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    fill(memory, 0, 6)
    settle(memory)
    with raw_session(memory.services.store) as session:
        session.hot("SELECT id FROM threads WHERE external_id = 'u' FOR NO KEY UPDATE")
        before = places_of(MARKER, database_url)
        store = PostgresStore(database_url, statement_timeout_s=0.5)
        with pytest.raises(sa_exc.OperationalError, match="timeout"):
            Memory(replace(memory.services, store=store)).delete_resource("r")
        store.close()
        assert places_of(MARKER, database_url) == before
    holds(memory)
    memory.delete_resource("r")
    assert places_of(MARKER, database_url) == []
    with pytest.raises(NotFoundError):
        memory.delete_resource("r")
