"""A model that needs seconds per call: no step waits below `block_after`, and everything is observed in the end."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support.processes import worker_process
from tests.support.services import conversation, scripted_settings, settings_services
from tests.support.waiting import eventually
from workers.dispatch import CeleryDispatcher

if TYPE_CHECKING:
    from pathlib import Path

    from om_core.config import Settings

STEPS = 60
PACE_S = 0.2
CALL_S = 5.0
OPTIONS = {"observation": {"message_tokens": 6000, "buffer_tokens": 0.2}, "reflection": {"observation_tokens": 6000}}


@pytest.mark.report("A04", "K10")
@pytest.mark.slow
def test_no_step_waits_for_a_slow_model_below_block_after(settings: Settings, tmp_path: Path) -> None:
    """60 steps at a pace of 200 ms, 5 s per model call, thresholds of 6,000 tokens; prints the latencies (-s)."""

    def slow(request: dict[str, object], number: int) -> Reply:
        return Reply(text=answer_reply(request), delay_s=CALL_S)

    with ScriptedModelServer(slow) as server:
        chosen = replace(scripted_settings(settings, server), options=OPTIONS)
        with worker_process(chosen, tmp_path) as worker:
            worker.wait_connected()
            assert chosen.redis_url is not None
            dispatcher = CeleryDispatcher(chosen.redis_url.reveal())
            with settings_services(chosen, dispatcher) as services:
                memory = Memory(services)
                latencies = _live(memory)
                eventually(lambda: not memory.status("t", resource="r")["live_jobs"], seconds=60, what="idle jobs")
                report = check_coverage(services, "default", "t", "r")
                memory.close()
            dispatcher.close()
    print(_table(latencies))
    assert report.holds, report
    assert max(waited for _, waited, _ in latencies) == 0
    below = [seconds for seconds, _, pending in latencies if pending < 7200]
    assert len(below) == STEPS, "the pace was chosen so that the window stays below block_after"
    assert max(below) < CALL_S / 5, "a step took as long as a model call would explain"


def _live(memory: Memory) -> list[tuple[float, float, int]]:
    """(seconds of step and context, of which waited, pending tokens) per step."""
    latencies = []
    for message in conversation(STEPS, words=85):
        started = time.monotonic()
        memory.append("t", [message], resource="r")
        context = memory.context("t", resource="r").context
        took = time.monotonic() - started
        latencies.append((took, context.waited_s, memory.get_thread("t", resource="r").pending_tokens))
        time.sleep(max(0.0, PACE_S - took))  # the pace of the scenario
    return latencies


def _table(latencies: list[tuple[float, float, int]]) -> str:
    ordered = sorted(seconds * 1000 for seconds, _, _ in latencies)
    return (
        f"\n{STEPS} steps, {CALL_S:g} s per model call: step and context in ms:"
        f" median {statistics.median(ordered):.1f}, p95 {ordered[int(len(ordered) * 0.95)]:.1f}, max {ordered[-1]:.1f};"
        f" waited {sum(waited for _, waited, _ in latencies):.1f} s; most pending {max(p for *_, p in latencies)} tokens"
    )
