"""The audit finds work that nobody would have come for, and beat rings it."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from om_core.config import Settings
from om_core.memory import Memory
from om_core.services.audit import AuditResult, audit
from om_core.services.deps import Services
from om_core.store.engine import PostgresStore
from tests.support.processes import environment, worker_process
from tests.support.services import conversation, settings_services
from tests.support.waiting import eventually
from workers.app import build_app
from workers.schedule import beat_schedule


@pytest.fixture
def small(settings: Settings):
    with settings_services(settings) as services:
        yield services


def append(services: Services, thread: str, tenant: str = "default") -> int:
    [job] = Memory(services, tenant).append(thread, conversation(8), resource="user-1").jobs
    return job.id


def run(services: Services, statement: str) -> None:
    """Damage, as an earlier fault would have left it."""
    assert isinstance(services.store, PostgresStore)
    with services.store.engine.connect() as connection:
        connection.execute(sa.text(statement))


def live_jobs(services: Services, tenant: str = "default") -> int:
    return len([job for job in Memory(services, tenant).jobs().items if job["state"] == "available"])


def test_threads_whose_work_is_under_way_are_left_alone(small: Services):
    append(small, "t")

    assert audit(small) == AuditResult(looked_at=0, repaired=0)


def test_a_lost_job_is_decided_again_for_each_tenant(small: Services):
    for tenant in ("acme", "globex"):
        append(small, "t", tenant)
    run(small, "DELETE FROM jobs")

    assert audit(small) == AuditResult(looked_at=2, repaired=2)
    assert [live_jobs(small, tenant) for tenant in ("acme", "globex")] == [1, 1]
    assert audit(small) == AuditResult(looked_at=0, repaired=0)


def test_a_thread_that_no_sweep_would_wake_gets_its_time_back(small: Services):
    append(small, "t")
    run(small, "UPDATE threads SET idle_due_at = NULL")

    assert audit(small) == AuditResult(looked_at=1, repaired=1)
    assert [tenant for tenant, _ in small.store.system.idle_threads(limit=10)] == ["default"]


def test_a_thread_that_time_does_not_change_is_no_fault(small: Services):
    append(small, "t")
    run(
        small, "UPDATE threads SET idle_due_at = NULL, unbuffered_tokens = 0, held_tokens = 0, oldest_pending_at = NULL"
    )
    run(small, "UPDATE threads SET buffered_seq = head_seq, cut_seq = head_seq")

    assert audit(small).repaired == 0


def test_a_small_tail_that_is_not_due_yet_is_no_fault(small: Services):
    Memory(small).append("t", conversation(1, words=10), resource="user-1")

    assert audit(small) == AuditResult(looked_at=1, repaired=0)
    assert live_jobs(small) == 0


def test_the_audit_goes_on_beyond_one_page_and_stops_when_told(small: Services, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("om_core.services.audit.BATCH", 2)
    for number in range(5):
        append(small, f"t{number}")
    run(small, "DELETE FROM jobs")
    answers = iter([False, True])

    assert audit(small, stopped=lambda: next(answers)) == AuditResult(looked_at=1, repaired=1)
    assert audit(small) == AuditResult(looked_at=4, repaired=4)


@pytest.mark.parametrize(
    "damage",
    ["UPDATE threads SET pending_tokens = pending_tokens + 1", "DELETE FROM messages WHERE seq = 1"],
)
def test_an_invariant_that_does_not_hold_is_reported(small: Services, damage: str):
    Memory(small).append("t", conversation(1, words=10), resource="user-1")
    assert audit(small).violations == 0
    run(small, damage)

    assert audit(small).violations >= 1


def test_a_cursor_that_fell_since_the_last_audit_is_reported(small: Services):
    Memory(small).append("t", conversation(2, words=10), resource="user-1")
    assert audit(small).violations == 0
    run(small, "UPDATE memories SET version = version + 5")
    assert audit(small).violations == 0
    run(small, "UPDATE memories SET version = version - 5")

    assert audit(small).violations == 1


BEAT = """
from om_core.config import load_settings
from workers import schedule
schedule.AUDIT_S = 2.0  # the schedule itself is every ten minutes
from workers.main import run_beat
run_beat(load_settings())
"""


@pytest.mark.slow
def test_beat_rings_the_audit_and_a_worker_repairs(settings: Settings, small: Services, tmp_path: Path):
    quick = replace(settings, sweep_s=600.0)
    append(small, "t")
    run(small, "DELETE FROM jobs")
    with worker_process(quick, tmp_path) as worker:
        worker.wait_connected()
        log = (tmp_path / "beat.log").open("wb")
        beat = subprocess.Popen(
            [sys.executable, "-c", BEAT], env=environment(quick), cwd=tmp_path, stdout=log, stderr=log
        )
        try:
            eventually(lambda: [job for job in Memory(small).jobs().items if job["state"] == "completed"])
            beat.send_signal(signal.SIGTERM)
            assert beat.wait(10) == 0
        finally:
            beat.kill()
            beat.wait()
            log.close()
        eventually(lambda: "audit repaired a thread" in worker.output)
    assert [path.name for path in tmp_path.iterdir() if "schedule" in path.name] == [], "beat keeps no file"


def test_every_scheduled_task_exists_and_goes_to_a_queue_of_ours():
    app = build_app("redis://127.0.0.1:1/0")

    assert {entry["task"] for entry in beat_schedule().values()} == {"om.audit", "om.prune"}
    assert {entry["options"]["queue"] for entry in beat_schedule().values()} <= set(app.amqp.queues)
