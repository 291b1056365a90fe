"""Claims: never more than a tenant's cap, fairly among tenants, at the same cost whatever the backlog (DESIGN 5)."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.job import JobState
from om_core.ports import ClaimLimits, FinishedJob
from tests.support.fixtures import system_session
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from om_core.ports import ClaimedJob
    from om_core.store.engine import PostgresStore

ONE_AT_A_TIME = '{"in_flight": 1, "favour": 4, "budgets": [], "prices": {}}'
BACKLOG = """
WITH m AS (INSERT INTO memories (tenant_id, scope, scope_key)
           SELECT %s, 'thread', gen_random_uuid()::text FROM generate_series(1, %s) RETURNING id, scope_key),
t AS (INSERT INTO threads (tenant_id, external_id, resource_id, memory_id)
      SELECT %s, scope_key, 'r', id FROM m RETURNING id, memory_id, external_id)
INSERT INTO jobs (tenant_id, kind, queue, target, thread, memory_id, thread_id, run_at)
SELECT %s, 'observe', 'buffering', 'thread:' || id, external_id, memory_id, id,
       clock_timestamp() - %s * interval '1 second' FROM t RETURNING id
"""


def backlog(store: PostgresStore, tenant: str, count: int, *, age: float = 10) -> list[int]:
    """Due jobs of one tenant, each of its own thread; their ids."""
    with store.session("om_app", tenant) as session:
        return [row[0] for row in session.hot(BACKLOG, (tenant, count, tenant, tenant, age))]


def claim(store: PostgresStore, job_id: int | None = None, **limits: Any) -> ClaimedJob | None:
    bound = ClaimLimits(**limits)
    return store.system.claim(queue="buffering", owner="w", lease_s=60, job_id=job_id, limits=bound)


def finish(store: PostgresStore, claimed: ClaimedJob) -> None:
    with store.transaction(claimed.job.tenant_id) as tx:
        assert tx.jobs.finish(claimed.job, FinishedJob(state=JobState.COMPLETED))


@pytest.mark.report("K11")
def test_a_tenant_never_runs_more_than_its_cap(store: PostgresStore) -> None:
    ids = backlog(store, "one", 10)
    running = [claim(store, job_id, in_flight=3) for job_id in ids]

    held = [claimed for claimed in running if claimed is not None]
    assert [claimed.capped for claimed in held] == [False, False, True]
    finish(store, held[0])
    assert claim(store, in_flight=3) is not None
    assert claim(store, in_flight=3) is None


@pytest.mark.conforms("11.29")
@pytest.mark.report("K11")
def test_claims_that_meet_never_pass_the_cap_together(store: PostgresStore) -> None:
    ids = backlog(store, "one", 60)
    found: list[ClaimedJob | None] = []
    start = threading.Barrier(6)

    def work(mine: list[int]) -> None:
        start.wait()
        found.extend(claim(store, job_id, in_flight=5) for job_id in mine)

    threads = [threading.Thread(target=work, args=(ids[n::6],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([claimed for claimed in found if claimed is not None]) == 5


def test_a_claim_waits_for_another_claim_of_its_tenant_and_counts_what_that_took(store: PostgresStore) -> None:
    [first, second] = backlog(store, "one", 2)
    found: list[ClaimedJob | None] = []
    with system_session(store) as session:
        session.hot("SELECT tenant FROM om_claim_v1('buffering', %s, 'w', 60, '', %s::json)", (first, ONE_AT_A_TIME))
        other = threading.Thread(target=lambda: found.append(claim(store, second, in_flight=1)))
        other.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: session.hot(waiting) == [(1,)])
    other.join(20)

    assert found == [None]


def test_a_lease_that_expired_takes_no_slot(store: PostgresStore) -> None:
    backlog(store, "one", 2)
    dead = store.system.claim(queue="buffering", owner="dead", lease_s=-1, limits=ClaimLimits(in_flight=1))
    assert dead is not None

    assert claim(store, in_flight=1) is not None


@pytest.mark.report("J08")
def test_a_ring_for_a_tenant_at_its_cap_does_the_best_work_of_another(store: PostgresStore) -> None:
    first, second = backlog(store, "one", 2, age=100)
    [other] = backlog(store, "two", 1, age=1)
    assert claim(store, first, in_flight=1) is not None

    found = claim(store, second, in_flight=1)
    assert found is not None
    assert found.job.id == other


def test_the_best_job_is_waited_for_then_of_the_tenant_with_fewest_leases_then_the_oldest(store: PostgresStore) -> None:
    backlog(store, "busy", 3, age=300)
    for tenant, age in (("old", 200), ("young", 100), ("waited", 1)):
        backlog(store, tenant, 1, age=age)
    claim(store, backlog(store, "busy", 1, age=300)[0])
    with store.session("om_app", "waited") as session:
        session.hot("UPDATE jobs SET awaited = true RETURNING id")

    order = [found.job.tenant_id for _ in range(4) if (found := claim(store))]
    assert order == ["waited", "old", "young", "busy"]


@pytest.mark.report("J08")
def test_a_tenant_with_nine_tenths_of_a_backlog_does_not_starve_the_others(store: PostgresStore) -> None:
    """16 slots; rings come in the order of age, so nearly all of them are for the big tenant."""
    rings = deque(backlog(store, "big", 1_800, age=100))
    small = [f"small{n:02}" for n in range(20)]
    for tenant in small:
        rings.extend(backlog(store, tenant, 10, age=1))
    running: deque[ClaimedJob] = deque()
    done: Counter[str] = Counter()
    last_small = 0
    for n in range(1, 601):
        if len(running) == 16:
            finish(store, running.popleft())
        found = claim(store, rings.popleft())
        assert found is not None
        running.append(found)
        done[found.job.tenant_id] += 1
        last_small = n if found.job.tenant_id != "big" else last_small

    assert {tenant: done[tenant] for tenant in small} == dict.fromkeys(small, 10)
    assert last_small <= 300, "the others' 200 jobs are claimed first, a few of the big tenant's in between"


def buffers(store: PostgresStore) -> int:
    """Pages that choosing the best tenants touches."""
    with system_session(store) as session:
        explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM om_due_tenants_v1('buffering', '', 256)"
        [(plan,)] = session.hot(explain)
    return int(plan[0]["Plan"]["Shared Hit Blocks"]) + int(plan[0]["Plan"]["Shared Read Blocks"])


def test_a_claim_costs_the_same_whatever_the_backlog(store: PostgresStore) -> None:
    for n in range(40):
        backlog(store, f"t{n:02}", 25)
    short = buffers(store)
    for n in range(40):
        backlog(store, f"t{n:02}", 475)
    long = buffers(store)

    assert long <= 2 * short, (short, long)
    assert long < 1_500
