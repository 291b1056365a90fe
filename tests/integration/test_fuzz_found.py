"""What the fuzz has found, each in its shortest form."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from om_core.domain.job import JobKind
from om_core.memory import Memory
from om_core.services.coverage import examine
from om_core.services.sweep import rescue
from tests.fuzz.actors import Actor, Stage, gated, run_out, run_to
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_races import active_chunk, insert_job, run_one
from tests.integration.test_sweep import shift

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Servers


@pytest.fixture
def stage(servers: Servers, database_url: str) -> Iterator[Stage]:
    """Actors of this test stop at every statement, commit and model call."""
    admin = servers.admin(database_url.split("@/")[1].split("?", maxsplit=1)[0])
    with gated():
        yield Stage(admin)
    admin.close()


def _work(memory: Memory, queue: str = "buffering") -> None:
    run_one(memory.services, queue)


def findings(memory: Memory, thread: str = "t") -> list[str]:
    """Every invariant of a thread that does not hold."""
    thread_id = memory.get_thread(thread, resource="r").id
    return [str(found) for found in examine(memory.services, memory.tenant, thread_id)[0]]


def test_work_whose_job_was_cancelled_gets_another_while_it_is_due(memory: Memory) -> None:
    talk(memory, "t", 10)
    [job] = memory.jobs().items

    memory.cancel_job(job["id"])

    assert [(one["kind"], one["state"]) for one in memory.jobs().items] == [
        ("observe", "available"),
        ("observe", "cancelled"),
    ]
    assert findings(memory) == []


def test_a_job_asked_for_by_hand_is_gone_once_it_is_cancelled(memory: Memory) -> None:
    talk(memory, "t", 1)
    job_id = memory.observe("t", resource="r")["job"]

    memory.cancel_job(job_id)

    assert [one["state"] for one in memory.jobs().items] == ["cancelled"]
    settle(memory)
    assert memory.observations("t", resource="r", state="all").items == ()


def test_a_message_that_comes_while_an_observe_job_ends_with_nothing_can_still_be_cut(
    memory: Memory, stage: Stage
) -> None:
    """The job takes back a cut that the messages do not allow, but only the cut that it has seen."""
    memory.append("t", [{"role": "user", "content": "hello"}], resource="r")
    memory.observe("t", resource="r")
    settle(memory)
    insert_job(memory.services, JobKind.OBSERVE)  # as a context call that waits decides, by an older snapshot
    worker = Actor("worker", lambda: _work(memory), None)
    stage.enter(worker)
    run_to(stage, worker, "commit.after", times=2)  # claimed, and found nothing

    memory.append("t", [{"role": "assistant", "content": "hi there"}], resource="r")
    run_out(stage, worker)

    assert findings(memory) == []
    assert memory.get_thread("t", resource="r").cut_seq == 2


def test_a_reflection_whose_base_changed_under_it_does_not_report_an_end(memory: Memory, stage: Stage) -> None:
    active_chunk(memory)
    memory.reflect("t", resource="r")
    worker = Actor("worker", lambda: _work(memory, "reflection"), None)
    stage.enter(worker)
    run_to(stage, worker, "commit.after", times=2)  # claimed, and read the log
    shift(memory.services, "UPDATE memories SET generation = generation + 1")
    run_out(stage, worker)

    types = [event.type for event in memory.events("t", resource="r")]
    assert [job["state"] for job in memory.jobs(kind="reflect").items][-1:] == ["superseded"]
    assert types[-1] == "data-om-buffering-failed"


def test_a_range_that_was_read_is_kept_to_the_message_when_its_call_is_answered_meanwhile(
    memory: Memory, stage: Stage
) -> None:
    """An old call held no cut any more; answered, it would: the saved notes cover it all the same (fuzz seed 303)."""
    services = memory.services
    call = {"role": "assistant", "parts": [{"type": "tool_call", "call_id": "c", "name": "look", "args": "Berlin"}]}
    memory.append("t", [{"role": "user", "content": "where is the invoice?"}], resource="r")
    thread = memory.append("t", [call], format="om", resource="r").thread
    with services.store.transaction("default") as tx:
        aged = tuple(replace(one, at=one.at - timedelta(hours=2)) for one in thread.open_calls)
        tx.threads.update(thread.id, open_calls=aged)
    job_id = memory.observe("t", resource="r")["job"]
    patient = Memory(replace(services, lease_s=60.0))  # or its lease is renewed before it is found expired
    first = Actor("first", lambda: _work(patient), None)
    stage.enter(first)
    run_to(stage, first, "commit.after", times=3)  # claimed, chosen, and its answer saved
    shift(services, "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s'")
    assert rescue(services, "default", job_id)
    result = {"role": "tool", "parts": [{"type": "tool_result", "call_id": "c", "result": "on the desk"}]}
    memory.append("t", [result], format="om", resource="r")

    assert run_one(services, "buffering") == "ok"
    run_out(stage, first)

    [chunk] = memory.observations("t", resource="r", state="all").items
    assert (chunk["from_seq"], chunk["to_seq"]) == (1, 2)
    assert findings(memory) == []
