"""`om show --reflections`, as a process on real servers."""

from __future__ import annotations

from pathlib import Path

from om_core.config import Settings
from om_core.memory import Memory
from tests.support.jobs import work_off
from tests.support.om_command import Ran, run_om
from tests.support.processes import environment
from tests.support.services import conversation, settings_services


def test_show_tells_what_each_generation_changed(settings: Settings, tmp_path: Path) -> None:
    def om(*arguments: str) -> Ran:
        return run_om(*arguments, environment=environment(settings), folder=tmp_path)

    with settings_services(settings) as services:
        talked = Memory(services)
        talked.append("trip", conversation(10), resource="ana")
        assert "never condensed" in om("show", "trip", "--reflections").out
        talked.flush("trip", resource="ana", wait_s=0.001)
        work_off(services)
        talked.activate("trip", resource="ana")
        talked.reflect("trip", resource="ana")
        work_off(services)

    text, found = om("show", "trip", "--reflections").out, om("show", "trip", "--reflections", "--json").json
    [generation] = found["items"]
    assert "generation 1 · buffered" in text
    assert "messages 1 to" in text
    assert [line["op"] for line in generation["diff"][:2]] == ["gap", "added"]
    assert f"+ {generation['diff'][1]['text']}" in text
