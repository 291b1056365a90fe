"""A clone goes on from the original with its memory, exact in every cursor and counter (API 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.domain.errors import ConflictError, InvalidInputError
from om_core.memory import Memory
from om_core.services.coverage import check_coverage, examine
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from om_core.services.deps import Services

TALK = "On 3 May 2026 Maria asked the Berlin office to send {n} blue boxes, which cost {n} euros each. " * 3


def fill(memory: Memory, count: int, thread: str = "t") -> None:
    for n in range(count):
        memory.append(thread, [{"id": f"m{n}", "role": "user", "content": TALK.format(n=n)}], resource="r")
        memory.append(thread, [{"role": "assistant", "content": f"Noted, {n} boxes."}], resource="r", end_of_turn=True)


def holds(memory: Memory, thread: str, resource: str) -> None:
    found = memory.get_thread(thread, resource=resource)
    assert examine(memory.services, memory.tenant, found.id)[0] == ()
    assert check_coverage(memory.services, memory.tenant, thread, resource).holds


def test_a_clone_shows_the_same_context_and_holds_every_invariant(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 30)
    memory.observe("t", resource="r")
    work_off(services)
    memory.activate("t", resource="r")
    memory.reflect("t", resource="r")
    work_off(services)
    memory.append("t", [{"id": "later", "role": "user", "content": TALK.format(n=77)}], resource="r")
    made = memory.clone("t", "copy", resource="r", to_resource="other")
    holds(memory, "copy", "other")
    original = memory.get_thread("t", resource="r")
    for name in ("head_seq", "buffered_seq", "observed_seq", "pending_tokens", "unbuffered_tokens", "question_seq"):
        assert getattr(made, name) == getattr(original, name), name
    assert made.observed_seq > 0
    assert memory.reflections("copy", resource="other").items[0]["state"] == "active"
    shown = [memory.context(name, resource=who, read_only=True) for name, who in (("t", "r"), ("copy", "other"))]
    assert shown[0].to_openai() == shown[1].to_openai()


def test_a_chunk_that_reaches_beyond_is_observed_again(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 30)
    memory.observe("t", resource="r")
    work_off(services)
    memory.activate("t", resource="r")
    chunk = memory.observations("t", resource="r", state="all").items[-1]
    middle = (int(chunk["from_seq"]) + int(chunk["to_seq"])) // 2
    made = memory.clone("t", "copy", resource="r", to_seq=middle)
    assert made.head_seq == middle
    assert made.buffered_seq == int(chunk["from_seq"]) - 1
    holds(memory, "copy", "r")
    memory.observe("copy", resource="r")
    work_off(services)
    holds(memory, "copy", "r")


def test_a_deleted_message_goes_from_the_clone_and_a_deleted_thread_does_not(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 4)
    memory.clone("t", "copy", resource="r", to_resource="other")
    memory.delete_message("t", "m1", resource="r")
    assert "m1" not in [row.message.id for row in memory.messages("copy", resource="other")]
    holds(memory, "copy", "other")
    memory.delete_thread("t", resource="r")
    assert len(memory.messages("copy", resource="other")) == 7


def test_what_cannot_be_cloned_is_refused(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 2)
    with pytest.raises(InvalidInputError, match="0 to 4"):
        memory.clone("t", "copy", resource="r", to_seq=5)
    with pytest.raises(ConflictError, match="exists already"):
        memory.clone("t", "t", resource="r")
    memory.put_thread("shared", resource="r", scope="resource")
    with pytest.raises(ConflictError, match="shares its memory"):
        memory.clone("shared", "copy", resource="r")
