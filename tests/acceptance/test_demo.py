"""`om demo` as a newcomer runs it: no key, no servers, an empty folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from om_core.embedded import wait_stopped
from tests.support.om_command import OM, Ran, run_om
from tests.support.waiting import eventually

FIELDS = {
    "turns",
    "messages",
    "message_tokens",
    "activations",
    "reflections",
    "chunks",
    "compression",
    "evidence",
    "cacheable_share",
    "jobs",
    "uncovered_messages",
    "doubly_covered_messages",
    "seconds",
}


def newcomer() -> dict[str, str]:
    """An environment with settings that must not matter: servers and thresholds of another installation."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("OM_") and "API_KEY" not in name}
    return {
        **found,
        "OM_EMBEDDED_FAST": "1",
        "OM_DATABASE_URL": "postgresql://127.0.0.1:1/production",
        "OM_REDIS_URL": "redis://127.0.0.1:1/0",
        "OM_OPTIONS__OBSERVATION__MESSAGE_TOKENS": "1000",
        "OM_TENANT": "production",
    }


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[Ran, Path]]:
    with tempfile.TemporaryDirectory(prefix="om-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        yield run_om("demo", environment=newcomer(), folder=folder, timeout_s=120), folder
        assert wait_stopped(folder / ".om"), "the embedded servers still run"


@pytest.fixture(scope="module")
def report(demo: tuple[Ran, Path]) -> dict[str, Any]:
    ran, folder = demo
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads((folder / ".om" / "reports" / "demo.json").read_text())
    return found


@pytest.mark.slow
def test_the_report_has_exactly_the_agreed_fields_as_numbers(report: dict[str, Any]) -> None:
    assert set(report) == FIELDS
    assert set(report["evidence"]) == {"kept", "last_n", "tokens"}
    numbers = [value for name, value in report.items() if name not in {"evidence", "jobs"}]
    numbers += [*report["evidence"].values(), *report["jobs"].values()]
    assert [value for value in numbers if not isinstance(value, int | float) or isinstance(value, bool)] == []


@pytest.mark.slow
def test_the_whole_session_went_through_the_pipeline(report: dict[str, Any]) -> None:
    assert report["messages"] > 300
    assert 130_000 < report["message_tokens"] < 150_000
    assert report["turns"] >= 1
    assert report["activations"] >= 3
    assert report["reflections"] >= 1
    assert report["chunks"] >= report["activations"]


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_observed_twice(report: dict[str, Any]) -> None:
    assert (report["uncovered_messages"], report["doubly_covered_messages"]) == (0, 0)
    assert set(report["jobs"]) == {"completed"}
    assert report["jobs"]["completed"] >= report["chunks"] + report["reflections"]


@pytest.mark.slow
def test_notes_keep_more_than_the_newest_messages_of_the_same_size(report: dict[str, Any]) -> None:
    assert report["compression"] >= 5
    assert report["evidence"]["tokens"] < 36_000
    assert 0.4 <= report["evidence"]["kept"] <= 1
    assert report["evidence"]["kept"] >= 2 * report["evidence"]["last_n"]
    assert 0.9 <= report["cacheable_share"] < 1


@pytest.mark.slow
def test_it_takes_less_than_two_minutes(report: dict[str, Any]) -> None:
    assert 0 < report["seconds"] < 120


@pytest.mark.slow
def test_it_says_what_it_does_and_how_to_look_further(demo: tuple[Ran, Path]) -> None:
    ran, folder = demo

    assert "offline/extractive" in ran.err
    assert "357 of 357 messages" in ran.err
    words = ["What the agent would see", "<om-reflection>", "raw messages", "facts kept", "cacheable", "Jobs"]
    assert [word for word in [*words, "threshold lowered from 40,000", "om show demo-"] if word not in ran.out] == []
    assert "Traceback" not in ran.out + ran.err
    assert (folder / ".om" / "log" / "demo-worker.log").exists()


@pytest.mark.slow
def test_ctrl_c_stops_the_worker_and_the_servers(tmp_path: Path) -> None:
    log = tmp_path / "demo.txt"
    with log.open("wb") as output:
        process = subprocess.Popen([*OM, "demo"], env=newcomer(), cwd=tmp_path, stdout=output, stderr=output)
    try:
        eventually(lambda: "A worker for all queues is running" in log.read_text(), seconds=60)
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()
    assert wait_stopped(tmp_path / ".om")
    assert "worker stopped" in (tmp_path / ".om" / "log" / "demo-worker.log").read_text()
