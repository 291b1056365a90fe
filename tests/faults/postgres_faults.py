"""A database that restarts, cuts connections, is full, or holds a lock."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.faults.stage import LEASE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.proxy import Cut
    from tests.faults.stage import Stage

COMMITS = (b"INSERT INTO chunks", b"om_append", b"partial", b"INSERT INTO reflections", b"lease_owner", b"UPDATE")
"""What marks a transaction: storing notes, a step, a saved call, a reflection, a claim, anything that changes a row."""
CUT_S = 15.0

FULL = """
CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON chunks FOR EACH STATEMENT EXECUTE FUNCTION full_disk();
CREATE TRIGGER full_disk BEFORE INSERT ON reflections FOR EACH STATEMENT EXECUTE FUNCTION full_disk();
"""
FREE = "DROP TRIGGER full_disk ON chunks; DROP TRIGGER full_disk ON reflections"


def restart(stage: Stage, times: int) -> None:
    """Postgres is killed, or stopped for two seconds; with jobs running and turns under way."""
    for number in range(times):
        stage.in_a_call()
        if number % 2 == 0:
            stage.servers.embedded.kill("postgres")
        else:
            stage.servers.embedded.pause("postgres")
            stage.pause(1.5, 2.5)
            stage.servers.embedded.resume("postgres")
        stage.injected += 1
        stage.servers.embedded.wait_ready()
        stage.caught_up(time.monotonic())


def cut_before_commit(stage: Stage, times: int) -> None:
    """The connection breaks and the COMMIT never arrives: nothing is stored, everything is done again."""
    _cut(stage, "before", times)


def cut_after_commit(stage: Stage, times: int) -> None:
    """The COMMIT is done and its answer is lost: nobody may store the same again."""
    _cut(stage, "after", times)


def _cut(stage: Stage, cut: Cut, times: int) -> None:
    proxy = stage.proxy
    assert proxy is not None
    for number in range(times):
        done = proxy.cuts
        proxy.arm(cut, COMMITS[number % len(COMMITS)])
        deadline = time.monotonic() + CUT_S
        while proxy.cuts == done and time.monotonic() < deadline:
            time.sleep(0.02)  # polls the proxy, which waits for a commit of others
        proxy.disarm()
        since = time.monotonic()
        if proxy.cuts > done:
            stage.injected += 1
            stage.caught_up(since)


def disk_full(stage: Stage, times: int) -> None:
    """Whatever stores notes fails with "no space left" for some leases: no notes are given up, none are halved."""
    for _ in range(times):
        stage.in_a_call()
        stage.sql(FULL)
        stage.injected += 1
        stage.pause(1.5 * LEASE_S, 3 * LEASE_S)
        stage.sql(FREE)
        stage.caught_up(time.monotonic())


def lock_timeout(stage: Stage, times: int) -> None:
    """Somebody holds the rows of jobs' threads for longer than the store waits; turns of those threads wait as well."""
    for _ in range(times):
        with _held_thread(stage):
            stage.injected += 1
            stage.pause(1.5 * LEASE_S, 2 * LEASE_S)
        stage.caught_up(time.monotonic())
    if not any("55P03" in worker.output for worker in stage.fleet.workers):
        stage.problems.append("no statement of a worker ran into its lock_timeout")


@contextmanager
def _held_thread(stage: Stage) -> Iterator[None]:
    """The thread of a job whose model call is under way is locked within the block."""

    def look() -> list[tuple[int]]:
        query = "SELECT thread_id FROM jobs WHERE state = 'running' AND kind = 'observe' LIMIT 1"
        return stage.sql(query) if stage.model.in_flight else []

    [(thread,)] = stage.wait(look, "an observe job")
    with stage.admin() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN; SELECT 1 FROM threads WHERE id = %s FOR UPDATE", (thread,))
        try:
            yield
        finally:
            cursor.execute("ROLLBACK")
