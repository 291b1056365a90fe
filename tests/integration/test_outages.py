"""What the database does wrong is not the input's fault; what newer code wrote is not this code's to judge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from om_core.domain.errors import NotFoundError, RetryLaterError
from om_core.domain.job import JobKind
from om_core.memory import Memory
from om_core.services.failures import record_failure
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import Sweeper
from om_core.store.migrate import MIGRATIONS
from tests.integration.test_pipeline import talk
from tests.integration.test_races import run_one
from tests.integration.test_sweep import Bell, shift
from tests.support.fixtures import SMALL
from tests.support.jobs import QUEUES

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.services.deps import Services
    from tests.support.servers import Servers

OUTAGES = {
    "disk full": "disk_full",
    "lock timeout": "lock_not_available",
    "deadlock": "deadlock_detected",
    "statement timeout": "query_canceled",
    "shutting down": "admin_shutdown",
    "input and output": "io_error",
}
INPUT_FAULTS = {"a value out of range": "numeric_value_out_of_range", "a row too large": "program_limit_exceeded"}


def break_chunks(servers: Servers, database_url: str, condition: str) -> None:
    """Storing notes fails with this SQLSTATE."""
    connection = servers.admin(database_url.rsplit("@/", 1)[1].split("?", 1)[0])
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'broken' USING ERRCODE = '{condition}'; END $$;"
            " CREATE TRIGGER broken BEFORE INSERT ON chunks EXECUTE FUNCTION broken()"
        )
    connection.close()


@pytest.mark.report("J11")
@pytest.mark.parametrize("condition", OUTAGES.values(), ids=OUTAGES)
def test_an_outage_of_the_database_waits_and_counts_as_no_failure(
    services: Services, servers: Servers, database_url: str, condition: str
) -> None:
    memory = Memory(services)
    talk(memory, "t", 10)
    break_chunks(servers, database_url, condition)

    assert run_one(services, "buffering") == "retry_later"

    [job] = memory.jobs(kind="observe").items
    assert (job["state"], job["failures"]) == ("retryable", 0)
    assert job["error"]["code"] == "database"


@pytest.mark.report("J11")
@pytest.mark.parametrize("condition", INPUT_FAULTS.values(), ids=INPUT_FAULTS)
def test_a_statement_that_the_input_breaks_counts_as_a_failure(
    services: Services, servers: Servers, database_url: str, condition: str
) -> None:
    memory = Memory(services)
    talk(memory, "t", 10)
    break_chunks(servers, database_url, condition)

    assert run_one(services, "buffering") == "error"

    assert memory.jobs(kind="observe").items[0]["failures"] == 1


@pytest.fixture
def newer(servers: Servers, database_url: str, services: Services) -> Services:
    """Newer code has migrated the database and put work of its own kind first in every queue."""
    talk(Memory(services), "t", 10)
    connection = servers.admin(database_url.rsplit("@/", 1)[1].split("?", 1)[0])
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE jobs DROP CONSTRAINT jobs_kind_check;"
            " INSERT INTO jobs (tenant_id, kind, queue, target, thread, memory_id, thread_id, policy, run_at, awaited)"
            " SELECT tenant_id, 'translate', queue, queue, external_id, memory_id, id, '{}', now() - interval '1 h', true"
            " FROM threads, unnest(ARRAY['buffering', 'observation', 'reflection']) AS queue"
        )
    connection.close()
    return services


def untouched(services: Services) -> bool:
    with services.store.session("om_system", "") as session:  # type: ignore[attr-defined]  # the Postgres store
        return not session.scalar(
            sa.text("SELECT count(*) FROM jobs WHERE kind = 'translate' AND (state <> 'available' OR attempt > 0)")
        )


@pytest.mark.report("M10")
def test_work_of_a_kind_that_only_newer_code_knows_is_left_to_it(newer: Services) -> None:
    assert run_one(newer, "buffering") == "ok"
    assert run_one(newer, "observation") is None
    assert untouched(newer)


def test_a_sweep_rings_what_it_knows_and_rescues_what_it_knows(
    newer: Services, services_with: Callable[..., Services]
) -> None:
    bell = Bell()
    shift(
        newer,
        "UPDATE jobs SET state = 'running', attempt = 1, lease_owner = 'newer',"
        " lease_expires_at = clock_timestamp() - interval '1 h' WHERE kind = 'translate' AND queue = 'reflection'",
    )
    services = services_with(SMALL, dispatcher=bell)
    found = Sweeper(services, JobRunner(services), name="w", queues=QUEUES, slots=4, period_s=60).sweep_once()

    assert (found.rung, found.rescued) == (1, 0)
    assert [job.kind.value for job in bell.rung] == ["observe"]


@pytest.mark.report("M10")
def test_turns_and_lists_go_on_beside_work_of_newer_code(newer: Services) -> None:
    memory = Memory(newer)

    talk(memory, "t", 2, start=10)

    assert len(memory.context("t", resource="r").context.messages) == 12
    assert memory.status("t", resource="r")["running"] is not None
    assert {job["kind"] for job in memory.jobs().items} == {"observe"}


def test_the_claim_names_every_kind_that_this_code_knows() -> None:
    text = (MIGRATIONS / "sql" / "claim_v1.sql").read_text(encoding="utf-8")

    named = re.findall(r"kind IN \(([^)]+)\)", text)

    named = [kinds for kinds in named if "'observe'" in kinds]  # the others tell kinds apart
    assert len(named) == 4
    assert {frozenset(re.findall(r"'(\w+)'", kinds)) for kinds in named} == {frozenset(kind.value for kind in JobKind)}


def test_a_job_of_a_kind_that_only_newer_code_knows_is_unknown_by_its_id(newer: Services) -> None:
    memory = Memory(newer)
    ids = {job["id"] for job in memory.jobs().items}
    [other] = [number for number in range(1, 5) if number not in ids][:1]

    with pytest.raises(NotFoundError):
        memory.job(other)


@pytest.mark.parametrize("after", ["its worker died", "an outage"])
def test_a_job_is_rung_at_once_when_it_is_due_again_however_often_it_was_rung_before(
    services: Services, services_with: Callable[..., Services], after: str
) -> None:
    """The growing pauses between rings are for rings that nobody answers; a claim answers them."""
    memory = Memory(services)
    talk(memory, "t", 10)
    shift(services, "UPDATE jobs SET rings = 6, rung_at = clock_timestamp()")
    claimed = services.store.system.claim(queue="buffering", owner="w", lease_s=60)
    assert claimed is not None
    if after == "an outage":
        record_failure(services, "default", claimed.job, RetryLaterError("503"))
        shift(services, "UPDATE jobs SET run_at = clock_timestamp()")
    else:
        shift(services, "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 second'")

    bell = Bell()
    other = services_with(SMALL, dispatcher=bell)
    Sweeper(other, JobRunner(other), name="w", queues=QUEUES, slots=4, period_s=60).sweep_once()

    assert [job.id for job in bell.rung] == [claimed.job.id]
