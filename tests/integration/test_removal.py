"""Removal reaches everything derived, also while a worker holds the data (DESIGN 2.8, 3.3)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.errors import ConflictError, InvalidInputError, NotFoundError
from om_core.memory import Memory
from om_core.services.coverage import check_coverage, examine
from om_core.services.webhooks import create_webhook
from tests.support.everywhere import places_of
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

    from om_core.domain.message import JsonObject
    from om_core.ports import ModelReply, ModelRequest
    from om_core.services.deps import Services

MARKER = "Zebrawood"
TALK = "On 3 May 2026 Maria asked the Berlin office to send {n} blue boxes, which cost {n} euros each. " * 3
SECRET = f"My password for the {MARKER} vault is kept in {MARKER} drawer 77, please remember {MARKER}."


class Repeating:
    """A model that writes the marker into every note once it has seen it anywhere in its prompt: notes that spread."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.before: Callable[[ModelRequest], None] = lambda _: None

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        self.before(request)
        reply: ModelReply = self.inner.complete(request, timeout_s=timeout_s, cancelled=cancelled)
        seen = any(MARKER in str(message.content) for message in request.prompt)
        at, line = reply.text.find("\n"), f"\n* 🔴 (10:00) Still about the {MARKER} vault"
        return replace(reply, text=reply.text[:at] + line + reply.text[at:]) if seen and at > 0 else reply

    def window_tokens(self, model: str) -> int | None:
        found: int | None = self.inner.window_tokens(model)
        return found


@pytest.fixture
def model(services: Services) -> Repeating:
    return Repeating(services.model)


@pytest.fixture
def memory(services: Services, model: Repeating) -> Iterator[Memory]:
    opened = Memory(replace(services, model=model))
    yield opened
    opened.close()


def fill(memory: Memory, first: int, count: int, thread: str = "t") -> None:
    for n in range(first, first + count):
        memory.append(thread, [{"id": f"m{n}", "role": "user", "content": TALK.format(n=n)}], resource="r")
        memory.append(thread, [{"role": "assistant", "content": f"Noted, {n} boxes."}], resource="r", end_of_turn=True)


def settle(memory: Memory, thread: str = "t", times: int = 4) -> None:
    """Work, activate and condense, several times over."""
    for _ in range(times):
        work_off(memory.services)
        memory.activate(thread, resource="r")


def story(memory: Memory) -> None:
    """A long thread whose third message is the secret, with notes, reflections, hints, title and documents of it."""
    fill(memory, 0, 2)
    memory.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    for first in range(2, 42, 10):
        fill(memory, first, 10)
        settle(memory, times=2)
    memory.reflect("t", resource="r")
    settle(memory)


def holds(memory: Memory, thread: str = "t") -> None:
    found = memory.get_thread(thread, resource="r")
    assert examine(memory.services, memory.tenant, found.id)[0] == ()
    assert check_coverage(memory.services, memory.tenant, thread, "r").holds


def test_the_story_spreads_the_secret(memory: Memory, database_url: str) -> None:
    story(memory)
    assert {"messages.parts", "chunks.text", "reflections.text", "events.payload"} <= set(
        places_of(MARKER, database_url)
    )


@pytest.mark.report("M08")
def test_a_deleted_message_is_nowhere_and_memory_repairs_itself(memory: Memory, database_url: str) -> None:
    story(memory)
    before = memory.context("t", resource="r").context
    removed = memory.delete_message("t", "secret", resource="r")

    assert removed["messages"] == 1
    assert removed["chunks"] >= 2
    assert removed["reflections"] >= 1
    assert places_of(MARKER, database_url) == []
    holds(memory)
    shown = memory.context("t", resource="r").context
    assert shown.prefix_changed == "removal"
    settle(memory)
    assert places_of(MARKER, database_url) == []
    holds(memory)
    assert [chunk for chunk in memory.observations("t", resource="r", state="all").items if chunk["stale"]] == []
    assert memory.status("t", resource="r")["omitted_positions"] is None
    after = memory.context("t", resource="r").context
    assert (after.head_seq, after.observed_seq) == (before.head_seq, before.observed_seq)
    assert after.generation > before.generation


def test_while_notes_are_made_again_their_messages_are_shown_raw(memory: Memory) -> None:
    fill(memory, 0, 2)
    memory.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    fill(memory, 2, 6)
    settle(memory)
    gone = memory.observations("t", resource="r").items[0]
    raw = {row.seq for row in memory.messages("t", resource="r", limit=200)}
    memory.delete_message("t", "secret", resource="r")

    context = memory.context("t", resource="r").context
    left = [seq for seq in range(gone["from_seq"], gone["to_seq"] + 1) if seq in raw - {5}]
    assert [seq for seq in context.message_seqs if seq in left] == left
    holds(memory)


def test_a_deleted_id_stays_known_and_a_rewound_one_is_free(memory: Memory) -> None:
    fill(memory, 0, 3)
    memory.delete_message("t", "m2", resource="r")
    again = memory.append("t", [{"id": "m2", "role": "user", "content": "another text"}], resource="r")
    assert (again.deleted, again.messages) == (("m2",), ())
    memory.rewind("t", 2, resource="r")
    assert [row.seq for row in memory.messages("t", resource="r")] == [1, 2]
    stored = memory.append("t", [{"id": "m1", "role": "user", "content": "edited"}], resource="r")
    assert [(ref.id, ref.seq, ref.created) for ref in stored.messages] == [("m1", 7, True)]
    holds(memory)


def test_deleting_twice_does_nothing_and_an_unknown_message_is_an_error(memory: Memory) -> None:
    fill(memory, 0, 2)
    assert memory.delete_message("t", "m1", resource="r")["messages"] == 1
    assert memory.delete_message("t", "m1", resource="r") == {"messages": 0, "chunks": 0, "reflections": 0}
    with pytest.raises(NotFoundError, match="no message 'm9'"):
        memory.delete_message("t", "m9", resource="r")
    with pytest.raises(NotFoundError):
        memory.delete_message("unknown", "m1")
    with pytest.raises(InvalidInputError, match="99 is not a seq from 0 to 4"):
        memory.rewind("t", 99, resource="r")


def test_a_message_goes_with_its_continuations(memory: Memory, database_url: str) -> None:
    first: JsonObject = {"id": "a", "role": "assistant", "content": "One."}
    memory.append("t", [{"id": "q", "role": "user", "content": "hello"}, first], resource="r")
    more = {
        "id": "a",
        "role": "assistant",
        "content": [{"type": "text", "text": "One."}, {"type": "text", "text": MARKER}],
    }
    memory.append("t", [more], resource="r")
    assert len(memory.messages("t", resource="r")) == 3
    assert memory.delete_message("t", "a", resource="r")["messages"] == 2
    assert places_of(MARKER, database_url) == []


@pytest.mark.parametrize("to_seq", [0, 1, 5, 30])
def test_a_rewound_thread_is_as_if_it_had_ended_there(memory: Memory, database_url: str, to_seq: int) -> None:
    story(memory)
    memory.rewind("t", to_seq, resource="r")

    assert [row.seq for row in memory.messages("t", resource="r", limit=200)] == list(range(1, to_seq + 1))
    holds(memory)
    if to_seq < 5:
        assert places_of(MARKER, database_url) == []
    texts = str(memory.context("t", resource="r").to_openai())
    assert "31 blue boxes" not in texts
    fill(memory, 100, 12)
    settle(memory)
    holds(memory)
    assert "31 blue boxes" not in str(memory.context("t", resource="r").to_openai())


def test_a_client_that_edits_history_rewinds_the_thread(memory: Memory) -> None:
    history: list[JsonObject] = []
    for n in range(4):
        history += [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": f"answer {n}"}]
        memory.append("t", history, resource="r")
    edited = [*history[:4], {"role": "user", "content": "another question"}]
    result = memory.append("t", edited, resource="r", on_divergence="rewind")

    assert result.diverged_at_seq == 5
    texts = [row.message.parts[0].text for row in memory.messages("t", resource="r")]  # type: ignore[union-attr]  # texts
    assert texts == [message["content"] for message in edited]
    holds(memory)


@pytest.mark.conforms("10.3")
@pytest.mark.report("P01")
def test_a_deleted_thread_leaves_no_row_and_another_of_the_resource_is_untouched(
    memory: Memory, database_url: str
) -> None:
    story(memory)
    fill(memory, 0, 12, thread="other")
    settle(memory, "other")
    kept = memory.context("other", resource="r").to_openai()
    counts = memory.delete_thread("t", resource="r")

    assert counts["messages"] >= 80
    assert min(counts["chunks"], counts["reflections"], counts["events"], counts["jobs"]) >= 1
    assert places_of(MARKER, database_url) == []
    with pytest.raises(NotFoundError):
        memory.get_thread("t", resource="r")
    assert memory.context("other", resource="r").to_openai() == kept
    holds(memory, "other")
    fill(memory, 0, 1)
    assert memory.get_thread("t", resource="r").head_seq == 2


def shared(memory: Memory) -> None:
    """Two threads of a resource over one log; the secret was said in the first."""
    for thread in ("t", "other"):
        memory.put_thread(thread, resource="r", scope="resource")
    memory.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    for first in range(0, 30, 10):
        for thread in ("t", "other"):
            fill(memory, first, 10, thread=thread)
            settle(memory, thread, times=2)
    memory.reflect("t", resource="r")
    settle(memory)


@pytest.mark.report("P02")
@pytest.mark.parametrize("how", ["delete_message", "delete_thread", "rewind"])
def test_what_spread_through_a_shared_log_goes_from_it(memory: Memory, database_url: str, how: str) -> None:
    shared(memory)
    if how == "delete_message":
        memory.delete_message("t", "secret", resource="r")
    elif how == "rewind":
        memory.rewind("t", 0, resource="r")
    else:
        memory.delete_thread("t", resource="r")

    assert places_of(MARKER, database_url) == []
    holds(memory, "other")
    settle(memory, "other")
    assert places_of(MARKER, database_url) == []
    holds(memory, "other")
    assert len(memory.messages("other", resource="r", limit=200)) == 60


def test_a_deleted_resource_leaves_no_row(memory: Memory, database_url: str) -> None:
    shared(memory)
    memory.set_working_memory(f"# {MARKER}", resource="r")
    memory.set_working_memory(f"# {MARKER}", thread="t", resource="r")
    create_webhook(memory.services, memory.tenant, url="https://example.com/", resource="r")
    other = "another-resource"
    memory.append("t", [{"role": "user", "content": "kept"}], resource=other)
    counts = memory.delete_resource("r")

    assert counts["threads"] == 2
    assert counts["usage"] >= 1
    assert places_of(MARKER, database_url) == []
    with memory.services.store.session("om_app", memory.tenant) as session:  # type: ignore[attr-defined]  # the real store
        for table in ("threads", "usage", "webhooks", "events"):
            assert session.hot(f"SELECT count(*) FROM {table} WHERE resource_id = 'r'", ())[0][0] == 0, table
        assert session.hot("SELECT count(*) FROM spending WHERE scope = 'resource' AND scope_key = 'r'", ())[0][0] == 0
        assert session.hot("SELECT count(*) FROM memories", ())[0][0] == 1
    assert memory.get_thread("t", resource=other).head_seq == 1
    with pytest.raises(NotFoundError, match="nothing of resource 'r'"):
        memory.delete_resource("r")


def test_documents_that_memory_wrote_go_back_to_what_was_there_before(memory: Memory, database_url: str) -> None:
    fill(memory, 0, 1)
    memory.set_working_memory("# Before", thread="t", resource="r")
    memory.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    with memory.services.store.session("om_app", memory.tenant) as session:  # type: ignore[attr-defined]  # the real store
        session.later(
            "INSERT INTO working_memory (tenant_id, scope, scope_key, version, format, content, source, thread_id)"
            " SELECT tenant_id, 'thread', id::text, 2, 'markdown', %s, 'observer', id FROM threads",
            (f"# After\n{MARKER}",),
        )
    memory.delete_message("t", "secret", resource="r")
    assert places_of(MARKER, database_url) == []
    assert memory.working_memory("t", resource="r")["content"] == "# Before"
    assert memory.working_memory("t", resource="r")["version"] == 3


def test_a_generation_is_restored_and_an_erased_one_is_refused(memory: Memory) -> None:
    fill(memory, 0, 20)
    settle(memory)
    first = memory.context("t", resource="r").context.generation
    assert first >= 1
    fill(memory, 20, 20)
    settle(memory)
    memory.reflect("t", resource="r")
    settle(memory)
    newest = memory.context("t", resource="r").context.generation
    assert newest > first

    found = memory.restore("t", first, resource="r")

    context = memory.context("t", resource="r").context
    assert (found["generation"], context.generation, context.prefix_changed) == (first, first, "restore")
    holds(memory)
    states = {item["generation"]: item["state"] for item in memory.reflections("t", resource="r").items}
    assert (states[first], states[newest]) == ("active", "superseded")
    memory.restore("t", newest, resource="r")
    assert memory.context("t", resource="r").context.generation == newest
    holds(memory)
    with pytest.raises(NotFoundError, match="no generation 99"):
        memory.restore("t", 99, resource="r")
    memory.delete_message("t", "m0", resource="r")
    with pytest.raises(ConflictError, match="is erased"):
        memory.restore("t", newest, resource="r")


def test_a_log_that_lost_its_base_is_bounded_until_it_is_condensed_again(memory: Memory) -> None:
    story(memory)
    policy = memory.services.policies.resolve()
    memory.delete_message("t", "secret", resource="r")
    bound = policy.reflection.block_after_tokens
    status = memory.status("t", resource="r")
    log = status["windows"]["active"]["observations"]["tokens"]
    shown = memory.context("t", resource="r").context.tokens.log
    if log > bound:
        first, last = status["omitted_positions"]
        assert 1 <= first <= last
    assert shown <= bound + 200
    settle(memory)
    assert memory.status("t", resource="r")["omitted_positions"] is None


def test_events_keep_their_numbers_and_lose_their_words(memory: Memory) -> None:
    story(memory)
    before = memory.events("t", resource="r", limit=200)
    memory.delete_message("t", "secret", resource="r")
    after = {row.id: row for row in memory.events("t", resource="r", last_id="0-0", limit=200)}
    for row in before[-5:]:
        if row.id in after:
            kept = after[row.id].payload
            assert MARKER not in json.dumps(kept)
            assert kept["cycleId"] == row.payload["cycleId"]
            assert "observations" not in kept
