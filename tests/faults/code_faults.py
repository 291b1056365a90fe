"""Clocks that differ between hosts, and two versions of the code on one database."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from tests.faults.stage import LEASE_S

if TYPE_CHECKING:
    from tests.faults.stage import Stage

NEWER = """
ALTER TABLE jobs DROP CONSTRAINT IF EXISTS jobs_kind_check;
INSERT INTO jobs (tenant_id, kind, queue, target, thread, memory_id, thread_id, reason, policy, prompt_version, awaited)
SELECT tenant_id, 'translate', queue, queue || ':' || id, external_id, memory_id, id, 'newer', %s, 'translator_v9', true
  FROM threads, unnest(ARRAY['buffering', 'observation', 'reflection', 'maintenance']) AS queue
 WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.thread_id = threads.id AND j.kind = 'translate')
 ORDER BY threads.id LIMIT 4
"""
"""Work of a kind that only newer code knows, first in every queue."""


def clock_skew(stage: Stage, times: int) -> None:
    """Workers an hour ahead and an hour behind; one is killed, so that leases are judged by clocks that differ."""
    for _ in range(times):
        worker, _ = stage.in_a_call()
        number = stage.fleet.workers.index(worker)
        worker.freeze()
        held = stage.holders().get(worker, {})
        worker.kill()
        stage.injected += 1
        since = time.monotonic()
        stage.start_worker(number)
        stage.taken_over(held, since)


def two_versions(stage: Stage, times: int) -> None:
    """Newer code has added a kind of job, and fields to policies and inputs; this code does what it knows."""
    added = {"compression": {"level": 3}, "observation": {"novel": True}}
    for _ in range(times):
        stage.wait(lambda: stage.load.turns > 8, "turns")
        stage.sql(NEWER, json.dumps(added))
        stage.sql(
            "UPDATE jobs SET policy = (policy::jsonb || %s::jsonb)::json, input = (input::jsonb || %s::jsonb)::json"
            " WHERE state IN ('available', 'retryable') AND kind <> 'translate'",
            json.dumps({"compression": {"level": 3}}),
            json.dumps({"novel": {"list": [1]}}),
        )
        stage.injected += 1
        since = time.monotonic()
        stage.pause(LEASE_S, 2 * LEASE_S)
        _known_work_is_done(stage, since)
    taken = stage.sql(
        "SELECT id, state, attempt FROM jobs WHERE kind = 'translate' AND (state <> 'available' OR attempt > 0)"
    )
    if taken:
        stage.problems.append(f"jobs of a kind this code does not know were touched: {taken[:3]}")


def _known_work_is_done(stage: Stage, since: float) -> None:
    live = [
        job
        for (job,) in stage.sql(
            "SELECT id FROM jobs WHERE state IN ('available', 'running', 'retryable') AND kind <> 'translate'"
        )
    ]
    query = "SELECT count(*) FROM jobs WHERE id = ANY (%s) AND state IN ('available', 'running', 'retryable')"
    stage.wait(lambda: stage.sql(query, live)[0][0] == 0, "the known jobs are done")
    stage.recoveries.append((time.monotonic() - since) / LEASE_S)
