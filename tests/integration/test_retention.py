"""Finished jobs and old events are deleted in bounded batches; what is live, or can be redriven, stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.services.prune import PruneResult, prune
from tests.support.fixtures import raw_session
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from om_core.services.deps import Services
    from om_core.store.engine import PostgresStore

TEXT = "the blue box goes to the Berlin office on Friday and Maria calls them " * 6
STATES = ("available", "retryable", "running", "completed", "cancelled", "superseded", "discarded")
INSERT = """
INSERT INTO jobs (tenant_id, kind, queue, target, thread, memory_id, thread_id, state, lease_owner, lease_expires_at,
                  finished_at, created_at)
SELECT tenant_id, 'rebuild', 'observation', 'chunk:' || %s, external_id, memory_id, id, %s, %s, %s,
       CASE WHEN %s THEN clock_timestamp() - interval '400 days' END, clock_timestamp() - interval '400 days'
  FROM threads RETURNING id
"""


@pytest.fixture
def used(services: Services) -> Memory:
    """Memory with a thread of which everything that was due has been done."""
    memory = Memory(services)
    for n in range(12):
        memory.append("t", [{"role": "assistant" if n % 2 else "user", "content": f"{n} {TEXT}"}], resource="r")
    work_off(services)
    memory.context("t", resource="r")
    return memory


def age(memory: Memory, days: float) -> None:
    with raw_session(memory.services.store) as session:
        for column, table in (("finished_at", "jobs"), ("created_at", "events")):
            session.hot(f"UPDATE {table} SET {column} = {column} - %s * interval '1 day' RETURNING 1", (days,))


def insert(memory: Memory, number: int, state: str) -> int:
    held = state == "running"
    lease = ("w", "2000-01-01Z") if held else (None, None)
    with raw_session(memory.services.store) as session:
        ended = state not in ("available", "retryable", "running")
        [(job_id,)] = session.hot(INSERT, (number, state, *lease, ended))
    return int(job_id)


def states(memory: Memory) -> set[str]:
    return {job["state"] for job in memory.jobs(limit=200).items}


def test_what_is_young_stays(used: Memory) -> None:
    age(used, 6.9)
    assert prune(used.services) == PruneResult()


def test_events_go_before_jobs_each_at_its_own_age(used: Memory) -> None:
    events = len(used.events("t", resource="r"))
    jobs = len(used.jobs(limit=200).items)
    age(used, 7.1)
    assert prune(used.services) == PruneResult(events=events)
    age(used, 23)
    assert prune(used.services) == PruneResult(jobs=jobs)


@pytest.mark.report("J10")
def test_live_and_discarded_jobs_stay_however_old(used: Memory) -> None:
    ids = {state: insert(used, number, state) for number, state in enumerate(STATES)}

    prune(used.services)

    left = {job["id"] for job in used.jobs(limit=200).items}
    kept = {state for state, job_id in ids.items() if job_id in left}
    assert kept == {"available", "retryable", "running", "discarded"}


def test_what_was_pruned_is_missed_by_nobody(used: Memory) -> None:
    before = used.context("t", resource="r").to_openai()
    age(used, 400)
    prune(used.services)

    assert used.context("t", resource="r").to_openai() == before
    assert check_coverage(used.services, "default", "t", "r").holds
    assert used.status("t", resource="r")["last_error"] is None
    for n in range(12, 24):
        used.append("t", [{"role": "user", "content": f"{n} {TEXT}"}], resource="r")
    assert "ok" in work_off(used.services)


def test_each_transaction_deletes_a_bounded_number_and_all_go_in_the_end(used: Memory, store: PostgresStore) -> None:
    for number in range(25):
        insert(used, number, "completed")
    age(used, 31)
    with store.transaction("default") as tx:
        assert tx.prune_jobs(30, limit=4) == 4
    total = len(used.jobs(limit=200).items)
    assert prune(used.services, batch=4).jobs == total


def test_every_tenant_is_pruned_and_only_as_itself(used: Memory) -> None:
    for n in range(6):
        message = {"role": "user", "content": f"{n} {TEXT}"}
        used.for_tenant("two").append("t", [message], resource="r")
    work_off(used.services)
    with used.services.store.transaction("two") as tx:
        assert tx.prune_jobs(30, limit=100) == 0
    age(used, 31)

    assert prune(used.services).jobs > 0
    assert used.for_tenant("two").jobs(limit=50).items != ()
    assert used.services.store.system.tenants("", limit=10) == ("default", "two")
    assert used.services.store.system.tenants("default", limit=10) == ("two",)


def test_it_ends_early_when_the_worker_stops(used: Memory) -> None:
    age(used, 400)
    assert prune(used.services, stopped=lambda: True) == PruneResult()
