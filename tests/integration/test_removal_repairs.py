"""What a removal leaves to be made again, and what is shown meanwhile (DESIGN 3.3)."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.errors import UnusableOutputError
from om_core.domain.job import JobKind
from om_core.memory import Memory
from om_core.services.enqueue import late_job
from om_core.services.run_jobs import JobRunner
from om_core.store.removal import RemovalRows
from tests.integration.test_removal import MARKER, SECRET, Repeating, fill, holds, memory, model, settle, story
from tests.support.everywhere import places_of
from tests.support.fixtures import raw_session
from tests.support.jobs import work_off
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from threading import Event

    from om_core.ports import ModelReply, ModelRequest

__all__ = ["memory", "model"]


def sql(memory: Memory, statement: str, *params: object) -> list[Any]:
    with raw_session(memory.services.store, memory.tenant) as session:
        found: list[Any] = session.hot(statement, params)
    return found


def chunks(memory: Memory, thread: str = "t") -> list[Any]:
    return list(memory.observations(thread, resource="r", state="all", limit=200).items)


def jobs(memory: Memory, kind: str, *states: str) -> list[Any]:
    return [job for job in memory.jobs(kind=kind, limit=200).items if job["state"] in (states or ("available",))]


def noted(memory: Memory, batches: int = 3, *, active: int = 3) -> None:
    """A thread of several chunks; the first `active` batches of them are in the log."""
    for batch in range(batches):
        fill(memory, 5 * batch, 5)
        work_off(memory.services)
        if batch < active:
            memory.activate("t", resource="r")


def test_a_second_removal_takes_no_repair_of_the_first_away(memory: Memory) -> None:
    noted(memory)
    memory.delete_message("t", "m0", resource="r")
    [first] = jobs(memory, "rebuild")
    memory.delete_message("t", "m12", resource="r")
    stale = {one["id"] for one in chunks(memory) if one["stale"]}
    assert len(stale) >= 2
    assert len(jobs(memory, "rebuild")) == len(stale)
    assert jobs(memory, "rebuild", "cancelled")[0]["id"] == first["id"]
    work_off(memory.services)
    assert not [one for one in chunks(memory) if one["stale"]]
    holds(memory)


def test_values_that_are_being_made_of_other_chunks_are_made_all_the_same(memory: Memory) -> None:
    noted(memory)
    first, *_, last = chunks(memory)
    with memory.services.store.transaction(memory.tenant) as tx:
        thread = tx.threads.lock("r", "t")
        assert thread is not None
        job = next(iter(tx.jobs.page(state="completed", kind="observe", thread_id=None, cursor=None, limit=1).items))
        policy = memory.services.policies.resolve()
        for one in (first, last):
            late_job(tx, job, thread.thread, policy, chunk_id=one["id"])
    memory.delete_message("t", "m0", resource="r")
    assert [job["reason"] for job in jobs(memory, "extract")] == ["values"]
    assert len(jobs(memory, "extract", "cancelled")) == 2
    assert sql(memory, "SELECT chunk_id FROM jobs WHERE kind = 'extract' AND state = 'available'") == [(last["id"],)]


def test_a_base_that_was_restored_stays_when_a_later_reflection_is_tainted(memory: Memory) -> None:
    """The newest generation that is left need not be the base: somebody has chosen another."""
    fill(memory, 0, 20)
    settle(memory)
    memory.reflect("t", resource="r")
    settle(memory)
    base = memory.context("t", resource="r").context.generation
    insert = """
    INSERT INTO reflections (tenant_id, memory_id, generation, base_generation, through_position, state, text, tokens,
                             input_tokens)
    SELECT tenant_id, id, generation + %s, generation, %s, %s, 'notes', 1, 1 FROM memories RETURNING generation
    """
    sql(memory, insert, 1, 1, "superseded")
    fill(memory, 100, 10)
    settle(memory, times=1)
    last = next(one for one in reversed(chunks(memory)) if one["position"])
    sql(memory, insert, 2, last["position"], "buffered")
    sql(memory, "UPDATE memories SET buffered_generation = generation + 2 RETURNING id")
    removed = memory.messages("t", resource="r", after_seq=last["from_seq"] - 1, limit=1)[0].message.id
    memory.delete_message("t", str(removed), resource="r")
    states = {item["generation"]: item["state"] for item in memory.reflections("t", resource="r").items}
    assert (states[base], states[base + 1], states[base + 2]) == ("active", "superseded", "erased")
    holds(memory)


def test_a_log_that_lost_its_base_is_condensed_at_once_and_after_its_notes_are_made(memory: Memory) -> None:
    story(memory)
    memory.delete_message("t", "secret", resource="r")
    [job] = jobs(memory, "reflect")
    assert job["reason"] == "repair"
    runner = JobRunner(memory.services)
    assert runner.run("reflection") == "behind"
    assert runner.run("reflection") is None
    while runner.run("observation") is not None:
        pass
    sql(memory, "UPDATE jobs SET run_at = now() WHERE kind = 'reflect' RETURNING id")
    assert runner.run("reflection") == "ok"
    runner.close()
    newest = memory.reflections("t", resource="r").items[0]
    assert newest["through_position"] >= max(one["position"] for one in chunks(memory)[:3])
    holds(memory)


def test_a_small_log_that_lost_its_base_is_condensed_too(memory: Memory) -> None:
    fill(memory, 0, 20)
    settle(memory)
    memory.reflect("t", resource="r")
    settle(memory)
    assert memory.context("t", resource="r").context.generation >= 1
    memory.rewind("t", 3, resource="r")
    assert [job["reason"] for job in jobs(memory, "reflect")] == ["repair"]
    assert memory.status("t", resource="r")["omitted_positions"] is None
    settle(memory)
    holds(memory)


def test_a_stale_chunk_that_waits_holds_activation_back_and_counts_for_itself(memory: Memory) -> None:
    noted(memory, 4, active=2)
    waiting = [one for one in chunks(memory) if one["state"] == "buffered"]
    assert len(waiting) >= 2
    inside = memory.messages("t", resource="r", after_seq=waiting[0]["from_seq"] - 1, limit=8)
    buffered = next(row.message.id for row in inside if str(row.message.id).startswith("m"))
    memory.delete_message("t", str(buffered), resource="r")
    memory.delete_message("t", "m0", resource="r")
    holds(memory)
    assert memory.activate("t", resource="r")["activated"] is None
    stale = memory.get_thread("t", resource="r").stale_tokens
    assert stale > 0
    [first] = sql(memory, "SELECT id FROM jobs WHERE state = 'available' AND chunk_id = %s", waiting[0]["id"])
    runner = JobRunner(memory.services)
    assert runner.run("observation", first[0]) == "ok"
    runner.close()
    assert memory.get_thread("t", resource="r").stale_tokens == stale
    holds(memory)
    assert memory.activate("t", resource="r")["activated"]["chunks"] >= 2
    settle(memory)
    holds(memory)


class Refusing:
    """A model whose every answer is unusable, once it is told so."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.refuses = False

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        if self.refuses and request.phase == "observe":
            raise UnusableOutputError("I cannot help with that")
        reply: ModelReply = self.inner.complete(request, timeout_s=timeout_s, cancelled=cancelled)
        return reply

    def window_tokens(self, model: str) -> int | None:
        found: int | None = self.inner.window_tokens(model)
        return found


@pytest.fixture
def refusing(memory: Memory) -> tuple[Memory, Refusing]:
    model = Refusing(memory.services.model)
    return Memory(replace(memory.services, model=model)), model


def test_notes_that_cannot_be_made_again_are_stood_in_for_and_can_be_redriven(
    refusing: tuple[Memory, Refusing],
) -> None:
    memory, model = refusing
    noted(memory, 3, active=1)
    waiting = next(one for one in chunks(memory) if one["state"] == "buffered")
    inside = memory.messages("t", resource="r", after_seq=waiting["from_seq"] - 1, limit=8)
    removed = next(row.message.id for row in inside if str(row.message.id).startswith("m"))
    memory.delete_message("t", str(removed), resource="r")
    model.refuses = True
    while jobs(memory, "rebuild", "available", "retryable"):
        sql(memory, "UPDATE jobs SET run_at = now() WHERE state = 'retryable' RETURNING id")
        work_off(memory.services)
    [given_up] = jobs(memory, "rebuild", "discarded")
    stood_in = next(one for one in chunks(memory) if one["id"] == waiting["id"])
    assert (stood_in["kind"], stood_in["stale"], bool(stood_in["text"])) == ("parked", False, True)
    holds(memory)
    model.refuses = False
    assert memory.activate("t", resource="r")["activated"]["chunks"] >= 1
    memory.retry_job(given_up["id"])
    work_off(memory.services)
    assert next(one for one in chunks(memory) if one["id"] == waiting["id"])["kind"] == "observed"
    holds(memory)


def test_a_reflection_is_not_stored_over_notes_that_have_become_stale(memory: Memory, model: Repeating) -> None:
    """The fence of the removal's cancelled job would do; this is the check beside it, under the memory's lock."""
    fill(memory, 0, 20)
    settle(memory, times=1)
    memory.reflect("t", resource="r")
    stale: list[Any] = []

    def become_stale(request: ModelRequest) -> None:
        if request.phase == "reflect" and not stale:
            stale.extend(sql(memory, "UPDATE chunks SET stale = true WHERE position = 1 RETURNING id"))

    model.before = become_stale
    runner = JobRunner(memory.services)
    assert runner.run("reflection") == "superseded"
    runner.close()
    assert stale
    assert memory.reflections("t", resource="r").items == ()


def test_an_open_call_keeps_its_age(memory: Memory) -> None:
    memory.append("t", [{"id": "q", "role": "user", "content": "look it up"}], resource="r")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    memory.append("t", [{"id": "a", "role": "assistant", "content": None, "tool_calls": [call]}], resource="r")
    memory.append("t", [{"id": "x", "role": "assistant", "content": "Still looking."}], resource="r")
    [before] = memory.get_thread("t", resource="r").open_calls
    memory.delete_message("t", "x", resource="r")
    assert memory.get_thread("t", resource="r").open_calls == (before,)
    holds(memory)
    memory.append("t", [{"id": "r", "role": "tool", "tool_call_id": "c1", "content": "found"}], resource="r")
    assert memory.get_thread("t", resource="r").open_calls == ()
    memory.delete_message("t", "r", resource="r")
    [again] = memory.get_thread("t", resource="r").open_calls
    assert (again.call_id, again.seq) == ("c1", 2)
    assert again.at > before.at
    holds(memory)


@pytest.fixture
def shared(memory: Memory) -> Memory:
    """A resource with one log; the secret was said in its first thread."""
    memory.put_thread("t", resource="r", scope="resource")
    memory.append("t", [{"id": "secret", "role": "user", "content": SECRET}], resource="r")
    noted(memory)
    return memory


def test_a_thread_that_joins_meanwhile_waits_and_is_shown_nothing_of_it(shared: Memory, database_url: str) -> None:
    """It would be told of the log as it was, by a job that nobody has cancelled."""
    joining = threading.Thread(target=lambda: shared.put_thread("late", resource="r", scope="resource"))
    with shared.services.store.transaction(shared.tenant) as tx:
        family = tx.removal.lock([shared.get_thread("t", resource="r").memory_id])
        assert family is not None
        joining.start()
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'ShareLock'"
        eventually(lambda: sql(shared, waiting), what="the new thread to wait for the memory")
    joining.join(30)
    shared.delete_message("t", "secret", resource="r")
    fill(shared, 0, 6, thread="late")
    work_off(shared.services)
    assert places_of(MARKER, database_url) == []


def test_a_thread_that_joined_before_the_memory_was_locked_is_locked_too(
    shared: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RemovalRows.lock
    joined: list[Any] = []
    families: list[Any] = []

    def lock(self: RemovalRows, memory_ids: Any) -> Any:
        rows = self._session.rows

        def reading(*args: Any) -> Any:
            found = rows(*args)
            if not joined:  # between the lock of the threads and that of the memory
                joined.append(shared.put_thread("late", resource="r", scope="resource"))
            return found

        monkeypatch.setattr(self._session, "rows", reading)
        families.append(real(self, memory_ids))
        return families[-1]

    monkeypatch.setattr(RemovalRows, "lock", lock)
    shared.delete_message("t", "secret", resource="r")
    first, second = families
    assert first is None
    assert len(second.threads) == 2


def test_a_job_of_every_kind_is_cancelled_with_its_fence(memory: Memory) -> None:
    noted(memory)
    with memory.services.store.transaction(memory.tenant) as tx:
        thread = tx.threads.lock("r", "t")
        assert thread is not None
        tx.memories.lock(thread.thread.memory_id)
        sql_ids = {job.id: job.attempt for job in tx.jobs.page(
            state="available", kind=None, thread_id=None, cursor=None, limit=50).items}  # fmt: skip
        gone = tx.removal.cancel_jobs([thread.thread.memory_id], JobKind.OBSERVE)
        assert {one.job.kind for one in gone} <= {JobKind.OBSERVE}
        for job_id, attempt in sql_ids.items():
            job = tx.jobs.get(job_id)
            assert job is not None
            assert (job.state.value == "cancelled") == (job.attempt == attempt + 1) == (job.kind is JobKind.OBSERVE)


def test_a_repair_that_somebody_cancels_is_due_again_as_long_as_it_is_needed(memory: Memory) -> None:
    noted(memory)
    memory.delete_message("t", "m0", resource="r")
    [job] = jobs(memory, "rebuild")
    memory.cancel_job(job["id"])
    [again] = jobs(memory, "rebuild")
    assert again["id"] != job["id"]
    holds(memory)
    work_off(memory.services)
    assert not [one for one in chunks(memory) if one["stale"]]


def test_a_range_of_which_nothing_is_left_is_covered_without_asking_a_model(memory: Memory, model: Repeating) -> None:
    memory.append("t", [{"id": "a", "role": "user", "content": "hello"}], resource="r")
    memory.rewind("t", 0, resource="r")
    asked: list[Any] = []
    model.before = asked.append
    assert memory.observe("t", resource="r")["job"] is not None
    assert work_off(memory.services) == ["ok"]
    assert asked == []
    assert [(one["kind"], one["from_seq"], one["to_seq"]) for one in chunks(memory)] == [("empty", 1, 1)]
    holds(memory)
