"""One memory for all threads of a resource: a cursor per thread, one log, and a prefix that is each thread's own
(DESIGN 6.9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.domain.stable import stable_bytes
from om_core.memory import Memory
from tests.benchmarks.statements import record
from tests.support.fixtures import raw_session
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.domain.context import Context
    from om_core.services.deps import Services
    from om_core.store.engine import PostgresStore

OPTIONS = {
    "model": "offline/extractive",
    "scope": "resource",
    "observation": {"message_tokens": 1000, "buffer_tokens": 0.2, "block_timeout": 0},
    "reflection": {"observation_tokens": 100_000},
}
STATEMENTS = 4
"""Of a context in resource scope: thread and memory, what is kept and the other threads, log, messages."""


@pytest.fixture
def services(services_with: Callable[..., Services]) -> Services:
    return services_with(OPTIONS)


@pytest.fixture
def memory(services: Services) -> Iterator[Memory]:
    opened = Memory(services)
    yield opened
    opened.close()


def say(memory: Memory, thread: str, fact: str, *, words: int = 0, resource: str = "r") -> None:
    text = f"{fact} " + " ".join(f"Chapter {number} of the report is about trains." for number in range(words // 8))
    memory.append(thread, [{"role": "user", "content": text}], resource=resource)


def fill(memory: Memory, thread: str, fact: str) -> Context:
    """A conversation long enough that its notes enter the log, all of them."""
    for number in range(4):
        say(memory, thread, f"My {fact} number {number} is {fact}-{number}.", words=250)
        memory.append(thread, [{"role": "assistant", "content": "Noted."}], resource="r")
    work_off(memory.services)
    memory.activate(thread, resource="r")
    return look(memory, thread)


def look(memory: Memory, thread: str, *, read_only: bool = False) -> Context:
    return memory.context(thread, resource="r", read_only=read_only).context


def stable(context: Context) -> bytes:
    return stable_bytes(context.system, context.messages[: context.stable_messages])


def block(context: Context, kind: str) -> str:
    return "\n".join(each.text for each in context.volatile if each.kind == kind)


def log(context: Context) -> str:
    return "\n".join(each.text for each in context.system)


@pytest.mark.conforms("4.9")
def test_notes_of_another_thread_leave_the_prefix_alone_until_it_changes_anyway(memory: Memory):
    before = fill(memory, "a", "bicycle")
    fill(memory, "b", "saxophone")
    meanwhile = look(memory, "a")

    assert meanwhile.prefix_changed is None
    assert stable(meanwhile).startswith(stable(before))
    assert "saxophone-" in block(meanwhile, "other_notes")
    assert "saxophone-" not in log(meanwhile)

    after = fill(memory, "a", "kayak")
    assert after.prefix_changed == "activation"
    assert block(after, "other_notes") == ""
    assert "saxophone-" in log(after)
    assert 'source="other conversation" conversation="b"' in log(after)
    assert log(after).index("bicycle-") < log(after).index("saxophone-") < log(after).index("kayak-")


def test_a_reflection_that_another_thread_puts_into_effect_is_announced_once(memory: Memory):
    fill(memory, "a", "bicycle")
    before = look(memory, "a")
    fill(memory, "b", "saxophone")
    memory.reflect("b", resource="r")
    work_off(memory.services)
    memory.activate("b", resource="r")

    looked = look(memory, "a", read_only=True)
    told = look(memory, "a")
    after = look(memory, "a")

    assert before.generation == 0
    assert [each.prefix_changed for each in (before, looked, told, after)] == [None, "reflection", "reflection", None]
    assert told.generation == after.generation == 1
    assert block(told, "other_notes") == ""
    assert stable(told) == stable(looked) == stable(after)


def test_a_chunk_of_another_thread_that_is_made_again_is_announced(memory: Memory, store: PostgresStore):
    fill(memory, "b", "saxophone")
    fill(memory, "a", "bicycle")
    with raw_session(store) as session:
        session.hot("UPDATE chunks SET kind = 'parked', text = '* an extract' WHERE position = 1 RETURNING 1")
        session.hot(
            "UPDATE jobs SET kind = 'rebuild', target = 'chunk:1', chunk_id = 1, state = 'available', finished_at = NULL,"
            " partial = '[]' WHERE id = (SELECT job_id FROM chunks WHERE id = 1) RETURNING 1"
        )
    parked = look(memory, "a")
    work_off(memory.services)
    told, after = (look(memory, "a") for _ in range(2))

    assert parked.prefix_changed is None
    assert (told.prefix_changed, after.prefix_changed) == ("rebuild", None)
    assert "* an extract" in log(parked)
    assert "* an extract" not in log(told)
    assert stable(after) == stable(told)


def test_a_new_thread_begins_with_what_the_others_have_noted(memory: Memory):
    fill(memory, "a", "bicycle")
    say(memory, "new", "Hello.")
    first = look(memory, "new")

    assert first.prefix_changed is None
    assert "bicycle-" in log(first)
    assert block(first, "other_notes") == ""


@pytest.mark.conforms("4.9")
def test_each_thread_has_its_own_cursor_and_its_own_counters(memory: Memory):
    fill(memory, "a", "bicycle")
    say(memory, "b", "My saxophone is new.", words=100)
    a, b = (memory.get_thread(name, resource="r") for name in "ab")

    assert a.memory_id == b.memory_id
    assert a.observed_seq > 0 == b.observed_seq
    assert a.pending_tokens < 100
    assert b.pending_tokens == b.unbuffered_tokens > 100


def test_notes_are_made_in_the_background_as_in_thread_scope(memory: Memory):
    say(memory, "a", "My bicycle is green.", words=250)
    assert [job["kind"] for job in memory.jobs(state="available").items] == ["observe"]
    assert work_off(memory.services) == ["ok"]
    assert look(memory, "a").activated is None
    assert memory.observations("a", resource="r", state="buffered").items


@pytest.mark.conforms("4.9", "11.15")
def test_what_others_say_meanwhile_is_background_after_the_newest_message(memory: Memory):
    before = fill(memory, "a", "bicycle")
    pending = memory.get_thread("a", resource="r").pending_tokens
    say(memory, "b", "My saxophone is new.")
    memory.append("b", [{"role": "assistant", "content": "Congratulations!"}], resource="r")
    context = look(memory, "a")
    shown = block(context, "other_threads")

    assert stable(context) == stable(before)
    assert "User: My saxophone is new." in shown
    assert "Assistant: Congratulations!" in shown
    assert 'om-other-threads name="b"' in str(context.messages[-1])
    assert memory.get_thread("a", resource="r").pending_tokens == pending
    assert "saxophone" not in block(look(memory, "b"), "other_threads")


def test_notes_that_wait_for_activation_are_background_too(memory: Memory):
    say(memory, "b", "My saxophone is called Maurice.", words=250)
    work_off(memory.services)
    say(memory, "a", "Hello.")
    shown = block(look(memory, "a"), "other_threads")

    assert "Maurice" in shown
    assert "User: My saxophone" not in shown
    assert "Date: " in shown


def test_another_resource_is_never_background(memory: Memory):
    say(memory, "b", "My saxophone is new.", resource="somebody else")
    say(memory, "a", "Hello.")
    assert look(memory, "a").volatile == ()


@pytest.mark.report("I05")
def test_the_background_keeps_to_its_limit(services_with: Callable[..., Services]):
    for limit in (0, 120):
        memory = Memory(services_with({**OPTIONS, "limits": {"other_threads_tokens": limit}}))
        for number in range(12):
            say(memory, f"b{number}", f"My saxophone {number} is new.", words=60)
        say(memory, "a", "Hello.")
        shown = block(look(memory, "a"), "other_threads")
        assert memory.services.counter.count_text(shown) <= limit
        assert bool(shown) == bool(limit)


@pytest.mark.conforms("4.9")
@pytest.mark.report("G05")
def test_hints_stay_with_the_thread_they_are_about(memory: Memory, store: PostgresStore):
    fill(memory, "b", "saxophone")
    fill(memory, "a", "bicycle")
    with raw_session(store) as session:
        task = '{"seen_seq": 1, "current_task": "tune the piano", "suggested_response": null}'
        session.hot("UPDATE threads SET hints = %s WHERE external_id = 'b' RETURNING 1", (task,))
        session.hot("UPDATE chunks SET hints = %s RETURNING 1", (task,))

    assert "tune the piano" in block(look(memory, "b"), "current_task")
    mine = look(memory, "a")
    assert "tune the piano" not in log(mine) + str(mine.messages)


@pytest.mark.report("I05")
def test_a_context_takes_four_statements_however_many_threads_there_are(memory: Memory, store: PostgresStore):
    fill(memory, "a", "bicycle")
    for number in range(30):
        say(memory, f"b{number}", f"My saxophone {number} is new.", words=16)
    counted = record(store.engine)
    with counted.of() as statements:
        context = look(memory, "a")

    assert block(context, "other_threads").count("Background") == 8
    assert 0 < len(statements) <= STATEMENTS, "\n".join(statements)


@pytest.mark.conforms("11.40")
@pytest.mark.report("I05")
def test_reading_other_threads_looks_at_few_rows_of_many(store: PostgresStore, memory: Memory):
    say(memory, "a", "Hello.")
    with raw_session(store) as session:
        session.hot(
            "INSERT INTO threads (tenant_id, external_id, resource_id, memory_id)"
            " SELECT tenant_id, 'idle' || n, resource_id, memory_id FROM threads, generate_series(1, 5000) n RETURNING 1"
        )
    with raw_session(store) as session:
        [plan] = session.hot(
            "EXPLAIN (ANALYZE, FORMAT JSON) SELECT id FROM threads WHERE tenant_id = 'default' AND memory_id = 1"
            " AND idle_due_at IS NOT NULL AND id <> 1 ORDER BY idle_due_at DESC LIMIT 32"
        )[0]
    assert "threads_pending_idx" in str(plan)


@pytest.mark.conforms("11.35")
def test_an_activation_that_may_move_nothing_is_not_tried_at_every_context(
    services_with: Callable[..., Services], store: PostgresStore
):
    options = {"message_tokens": 1000, "buffer_tokens": 0.2, "buffer_activation": 0.1, "block_timeout": 0}
    memory = Memory(services_with({**OPTIONS, "scope": "thread", "observation": options}))
    say(memory, "a", "My report.", words=800)
    work_off(memory.services)
    say(memory, "a", "And then?", words=120)
    thread = memory.get_thread("a", resource="r")
    assert thread.pending_tokens >= 1000
    assert thread.buffered_seq > thread.observed_seq

    counted = record(store.engine)
    with counted.of() as statements:
        assert look(memory, "a").activated is None
    assert len(statements) <= STATEMENTS, "\n".join(statements)

    say(memory, "a", "More.", words=900)
    assert look(memory, "a").activated is not None
