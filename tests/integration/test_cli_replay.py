"""Replaying transcripts with a real worker: nothing lost, nothing twice, times and pauses kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from om_core.config import Settings
from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.services.run_jobs import JobRunner
from om_core.store.engine import PostgresStore
from tests.support.om_command import run_om
from tests.support.processes import environment, worker_process
from tests.support.services import conversation, settings_services

QUICK = {"observation": {"message_tokens": 1500, "buffer_tokens": 300}, "reflection": {"observation_tokens": 1200}}


@pytest.fixture
def working(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Settings of servers with a worker."""
    settings = replace(settings, options=QUICK)
    with worker_process(settings, tmp_path):
        yield settings


@pytest.mark.slow
def test_a_replay_runs_the_whole_pipeline_and_a_second_one_adds_nothing(working: Settings, tmp_path: Path) -> None:
    messages = conversation(60)
    for number, message in enumerate(messages):
        message["created_at"] = f"2026-02-01T{number // 60:02}:{number % 60:02}:00Z"
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    om = partial(run_om, environment=environment(working), folder=tmp_path, timeout_s=100)

    first = om("replay", "chat.jsonl", "--thread", "chat", "--resource", "ana", "--json")
    assert first.code == 0, first.err
    [done] = first.json["items"][0]["threads"]
    assert (done["messages"], done["duplicates"]) == (60, 0)
    assert done["activations"] >= 2
    assert done["jobs"] == {"completed": sum(done["jobs"].values())}
    assert (done["uncovered_messages"], done["doubly_covered_messages"], done["misfits"]) == (0, 0, [])

    again = om("replay", "chat.jsonl", "--thread", "chat", "--resource", "ana", "--json")
    assert again.code == 0, again.err
    [repeated] = again.json["items"][0]["threads"]
    assert (repeated["messages"], repeated["duplicates"]) == (0, 60)
    assert om("status", "chat", "--json").json["head_seq"] == 60

    people = om("replay", "chat.jsonl", "--thread", "chat", "--resource", "ana", "--limit", "3")
    assert "3 known already" in people.out
    assert "0 uncovered, 0 doubly covered" in people.out

    flushed = om("flush", "chat")
    assert flushed.code == 0, flushed.err
    assert "activated" in flushed.out
    assert om("show", "chat", "--log").out.count("position") >= 2
    assert "no worker was seen" not in om("doctor").out
    assert "activation" in om("watch", "chat", "--for", "0.1").out
    reflected = om("reflect", "chat")
    assert reflected.code == 0, reflected.err


def test_a_speed_keeps_the_pauses_of_the_transcript(settings: Settings, tmp_path: Path) -> None:
    messages = conversation(3)
    for number, message in enumerate(messages):
        message["created_at"] = f"2026-02-01T00:0{number}:00Z"
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    started = time.monotonic()

    ran = run_om(
        "replay", "chat.jsonl", "--thread", "chat", "--speed", "60", environment=environment(settings), folder=tmp_path
    )

    assert ran.code == 0, ran.err
    assert time.monotonic() - started >= 2.0
    rows = run_om("show", "chat", "--messages", "--json", environment=environment(settings), folder=tmp_path).json
    assert [row["created_at"] for row in rows["items"]] == [f"2026-02-01T00:0{n}:00.000Z" for n in range(3)]


# Coverage, read back from a database


@pytest.fixture
def covered(settings: Settings) -> Iterator[Memory]:
    """A thread of which a part is observed and active, a part buffered, a part raw."""
    with settings_services(settings) as services:
        memory = Memory(services)
        runner = JobRunner(services)
        for message in conversation(40):
            memory.append("chat", [message], resource="ana")
            while runner.run("buffering") is not None:
                pass
            memory.context("chat", resource="ana")
        runner.close()
        yield memory


def coverage_after(memory: Memory, *statements: str) -> object:
    store = memory.services.store
    assert isinstance(store, PostgresStore)
    with store.engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    return check_coverage(memory.services, memory.tenant, "chat", "ana")


def test_a_thread_that_the_pipeline_made_is_covered(covered: Memory) -> None:
    found = check_coverage(covered.services, covered.tenant, "chat")

    assert found.holds, found
    assert (found.messages, found.chunks > 2) == (40, True)
    assert covered.status("chat")["observed_seq"] > 0


@pytest.mark.parametrize(
    ("statements", "attribute"),
    [
        (["DELETE FROM chunks WHERE to_seq = (SELECT max(to_seq) FROM chunks)"], "uncovered"),
        (
            [
                "ALTER TABLE chunks DROP CONSTRAINT chunks_tile_fkey",
                "UPDATE chunks SET from_seq = from_seq - 1 WHERE to_seq = (SELECT max(to_seq) FROM chunks)",
            ],
            "doubly_covered",
        ),
        (["UPDATE threads SET pending_tokens = pending_tokens + 1"], "misfits"),
        (["UPDATE memories SET log_tokens = log_tokens + 1"], "misfits"),
        (["DELETE FROM messages WHERE seq = 40"], "misfits"),
    ],
)
def test_damage_to_the_database_is_found(covered: Memory, statements: list[str], attribute: str) -> None:
    assert getattr(coverage_after(covered, *statements), attribute)
