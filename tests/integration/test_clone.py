"""A clone goes on from the original with its memory, exact in every cursor and counter (API 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.domain.errors import ConflictError, InvalidInputError, NotFoundError
from om_core.memory import Memory
from om_core.services.coverage import check_coverage, examine
from om_core.store.engine import PostgresStore
from tests.benchmarks.statements import record
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


@pytest.mark.conforms("10.3")
def test_a_clone_shows_the_same_context_and_holds_every_invariant(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 30)
    memory.observe("t", resource="r")
    work_off(services)
    memory.activate("t", resource="r")
    memory.reflect("t", resource="r")
    work_off(services)
    memory.activate("t", resource="r")
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


@pytest.mark.conforms("10.3")
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


@pytest.mark.conforms("10.3")
def test_a_deleted_message_goes_from_the_clone_and_a_deleted_thread_does_not(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 4)
    memory.clone("t", "copy", resource="r", to_resource="other")
    memory.delete_message("t", "m1", resource="r")
    assert "m1" not in [row.message.id for row in memory.messages("copy", resource="other")]
    holds(memory, "copy", "other")
    memory.delete_thread("t", resource="r")
    assert len(memory.messages("copy", resource="other")) == 7


@pytest.mark.conforms("10.3")
def test_a_reflection_that_waits_takes_effect_in_the_clone_too(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 30)
    memory.observe("t", resource="r")
    work_off(services)
    memory.activate("t", resource="r")
    memory.reflect("t", resource="r")
    work_off(services)
    memory.clone("t", "copy", resource="r")
    holds(memory, "copy", "r")

    memory.activate("copy", resource="r")

    assert [one["state"] for one in memory.reflections("copy", resource="r").items] == ["active"]
    assert [one["state"] for one in memory.reflections("t", resource="r").items] == ["buffered"]
    holds(memory, "copy", "r")


def shared(services: Services, *, threads: tuple[str, ...] = ("t", "u")) -> Memory:
    """Threads of a resource with one log, all noted and active."""
    memory = Memory(services)
    for thread in threads:
        memory.put_thread(thread, resource="r", scope="resource")
        fill(memory, 12, thread)
        memory.observe(thread, resource="r")
        work_off(services)
        memory.activate(thread, resource="r")
    work_off(services)
    return memory


def log_of(memory: Memory, thread: str, resource: str) -> str:
    shown = memory.context(thread, resource=resource, read_only=True).to_json()
    return "\n".join(block["text"] for block in shown["system"])


def notes_in(log: str) -> list[str]:
    """The notes themselves; the marks around them tell each thread which are its own."""
    return sorted(line for line in log.splitlines() if line.startswith("* "))


@pytest.mark.conforms("10.3")
def test_a_clone_beside_the_original_shares_its_log_and_writes_no_note_twice(services: Services) -> None:
    memory = shared(services)
    before = log_of(memory, "t", "r")

    made = memory.clone("t", "copy", resource="r")

    assert made.observed_seq == memory.get_thread("t", resource="r").observed_seq > 0
    assert log_of(memory, "t", "r") == before
    assert notes_in(log_of(memory, "copy", "r")) == notes_in(before)
    assert work_off(services) == []  # nothing is observed again
    for thread in ("t", "u", "copy"):
        holds(memory, thread, "r")


@pytest.mark.conforms("10.3")
@pytest.mark.parametrize("removal", ["delete", "rewind"])
def test_a_clone_that_shares_notes_makes_its_own_when_the_original_goes(services: Services, removal: str) -> None:
    memory = shared(services)
    memory.clone("t", "copy", resource="r")
    memory.clone("copy", "copy-of-copy", resource="r")

    if removal == "delete":
        memory.delete_thread("t", resource="r")
    else:
        memory.rewind("t", 0, resource="r")
    work_off(services)

    for thread in ("u", "copy", "copy-of-copy"):
        holds(memory, thread, "r")
    notes = memory.observations("copy", resource="r", state="all").items
    assert [chunk["kind"] for chunk in notes] == ["observed"]
    assert "Maria" in log_of(memory, "copy", "r")


@pytest.mark.conforms("10.3")
def test_another_resource_is_given_the_notes_of_the_thread_and_of_no_other(services: Services) -> None:
    memory = shared(services, threads=("t",))
    memory.append("t", [{"role": "user", "content": "Only here: the harbour of Rotterdam. " * 40}], resource="r")
    memory.put_thread("private", resource="r", scope="resource")
    memory.append("private", [{"role": "user", "content": "The password of Zanzibar is palm. " * 40}], resource="r")
    memory.observe("private", resource="r")
    work_off(services)
    memory.activate("private", resource="r")
    memory.put_thread("own", resource="other", scope="resource")
    fill(memory, 5, "own-filler")
    memory.append(
        "own", [{"role": "user", "content": "Ours: the lighthouse of Genoa is white. " * 40}], resource="other"
    )
    memory.observe("own", resource="other")
    work_off(services)
    memory.activate("own", resource="other")

    memory.clone("t", "copy", resource="r", to_resource="other")

    for thread in ("own", "copy"):
        holds(memory, thread, "other")
        log = log_of(memory, thread, "other")
        assert "Genoa" in log
        assert "Maria" in log
        assert "Zanzibar" not in log
    for thread in ("t", "private"):
        holds(memory, thread, "r")
        assert "Genoa" not in log_of(memory, thread, "r")


@pytest.mark.conforms("10.3")
@pytest.mark.report("P04")
def test_a_clone_has_the_tail_and_cursors_of_its_own_and_later_edits_of_either_stay_there(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 10)
    memory.observe("t", resource="r")
    work_off(services)
    memory.activate("t", resource="r")
    for n in range(10):
        memory.append("t", [{"id": f"tail{n}", "role": "user", "content": f"Tail {n}."}], resource="r")
    memory.clone("t", "copy", resource="r", to_resource="other")

    memory.append("copy", [{"role": "user", "content": "Only in the clone."}], resource="other")
    memory.rewind("t", 25, resource="r")
    memory.observe("copy", resource="other")
    work_off(services)
    memory.activate("copy", resource="other")

    original, made = memory.get_thread("t", resource="r"), memory.get_thread("copy", resource="other")
    assert (original.observed_seq, original.pending_tokens > 0) == (20, True)
    assert (made.head_seq, made.observed_seq) == (31, 31)
    assert "Only in the clone" not in str(memory.messages("t", resource="r"))
    for thread, resource in (("t", "r"), ("copy", "other")):
        holds(memory, thread, resource)


@pytest.mark.conforms("10.3")
@pytest.mark.report("P04")
def test_a_clone_that_fails_half_way_leaves_nothing(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(services)
    fill(memory, 4)
    monkeypatch.setattr("om_core.store.copying.CopyRows.document", lambda *_, **__: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        memory.clone("t", "copy", resource="r", to_resource="other")

    with pytest.raises(NotFoundError):
        memory.get_thread("copy", resource="other")
    assert [thread.external_id for thread in memory.threads().items] == ["t"]


@pytest.mark.conforms("10.3")
def test_a_clone_costs_the_same_statements_whatever_it_copies(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 40, "short")
    fill(memory, 120, "long")
    assert isinstance(services.store, PostgresStore)
    recorder = record(services.store.engine)

    few = recorder.count(lambda: memory.clone("short", "copy-of-short", resource="r"))

    assert few > 0
    assert recorder.count(lambda: memory.clone("long", "copy-of-long", resource="r")) == few


@pytest.mark.conforms("10.3")
@pytest.mark.report("P04")
def test_work_is_done_for_a_clone_while_a_worker_holds_the_original(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 30)
    memory.observe("t", resource="r")
    queues = ("observation", "buffering")
    assert any(services.store.system.claim(queue=queue, owner="held", lease_s=60.0) for queue in queues)

    memory.clone("t", "copy", resource="r")
    memory.observe("copy", resource="r")

    assert work_off(services) == ["ok"]
    assert memory.get_thread("copy", resource="r").buffered_seq > 0
    for thread in ("t", "copy"):
        holds(memory, thread, "r")


@pytest.mark.conforms("10.3")
def test_open_calls_titles_and_documents_go_with_the_clone(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 3)
    memory.put_thread("t", resource="r", title="Boxes", metadata={"colour": "blue"})
    call = {"type": "tool_call", "call_id": "c1", "name": "ship", "args": {"boxes": 3}}
    memory.append("t", [{"role": "assistant", "parts": [call]}], resource="r", format="om")

    made = memory.clone("t", "copy", resource="r")
    early = memory.clone("t", "early", resource="r", to_seq=2)

    assert (made.title, made.metadata) == ("Boxes", {"colour": "blue"})
    assert [one.call_id for one in made.open_calls] == ["c1"]
    assert early.open_calls == ()
    answer = {"type": "tool_result", "call_id": "c1", "result": "sent"}
    memory.append("copy", [{"role": "tool", "parts": [answer]}], resource="r", format="om")
    for thread in ("copy", "early", "t"):
        holds(memory, thread, "r")
    assert memory.get_thread("t", resource="r").open_calls


@pytest.mark.conforms("10.3")
def test_an_empty_thread_has_an_empty_clone(services: Services) -> None:
    memory = Memory(services)
    memory.put_thread("t", resource="r")

    assert memory.clone("t", "copy", resource="r").head_seq == 0
    holds(memory, "copy", "r")
    fill(memory, 2, "copy")
    holds(memory, "copy", "r")


@pytest.mark.conforms("10.3")
def test_what_cannot_be_cloned_is_refused(services: Services) -> None:
    memory = Memory(services)
    fill(memory, 2)
    with pytest.raises(InvalidInputError, match="0 to 4"):
        memory.clone("t", "copy", resource="r", to_seq=5)
    with pytest.raises(ConflictError, match="exists already"):
        memory.clone("t", "t", resource="r")
    memory.clone("t", "copy", resource="r")
    with pytest.raises(ConflictError, match="exists already"):
        memory.clone("t", "copy", resource="r")
