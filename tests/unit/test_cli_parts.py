"""Parts of the command line that need no server: ports, bars, events, scores, reports, children."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.cli.children import Children
from api.cli.output import ago, bar
from api.cli.ports import check_free
from api.cli.progress import progress
from api.cli.reports import write_report
from om_core.demo.score import CacheMeter, context_text, last_messages, share_of_facts
from om_core.domain.context import Context, ContextTokens, SystemBlock
from om_core.domain.errors import SetupError
from om_core.domain.message import Message, Role, StoredMessage, Text, ToolCall, ToolResult
from om_core.ports import EventRow
from om_core.services.event_text import event_line

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def said(text: str) -> Message:
    return Message(role=Role.USER, parts=(Text(text=text),))


def context(log: str, *texts: str) -> Context:
    messages = tuple(said(text) for text in texts)
    return Context(
        system=(SystemBlock(text=log, kind="log"),),
        messages=messages,
        stable_messages=len(messages),
        volatile=(),
        tokens=ContextTokens(log=1, messages=1, total=2),
        generation=0,
        observed_seq=0,
        head_seq=len(messages),
        prefix_hash="",
    )


INTERRUPTED_WHILE_A_DATACLASS_IS_MADE = """
import sys
from api.cli import run

def invoke(arguments):
    exec("raise KeyboardInterrupt")

run._invoke = invoke
sys.exit(run.run([]))
"""


def test_ctrl_c_ends_with_130_even_while_a_dataclass_is_being_made(tmp_path):
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_WHILE_A_DATACLASS_IS_MADE)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])

    ran = subprocess.run([sys.executable, "-m", "interrupted"], env={**os.environ, "PYTHONPATH": path}, check=False)

    assert ran.returncode == 130


def test_a_port_in_use_is_named_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(SetupError, match=rf"port {port} on 127.0.0.1 is not free for the API .*--port"):
            check_free("127.0.0.1", port, "the API", "--port")

    check_free("127.0.0.1", port, "the API", "--port")


@pytest.mark.parametrize(
    ("value", "colour"), [(100, "green"), (800, "yellow"), (999, "yellow"), (1000, "red"), (5000, "red")]
)
def test_a_bar_turns_red_at_its_threshold(value, colour):
    drawn = bar("messages", value, 1000)

    assert f"{value:,} / 1,000 tokens" in drawn.plain
    assert drawn.spans[0].style == colour


def test_a_bar_without_a_threshold_is_empty():
    assert "░" * 30 in bar("messages", 5, 0).plain


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "-"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_a_time_is_told_in_its_largest_unit(seconds, words):
    assert ago(seconds) == words


@pytest.mark.parametrize(
    ("type", "payload", "words"),
    [
        ("buffering-start", {"operationType": "observation", "tokensToBuffer": 6200}, ["observation 6,200 tokens to read"]),
        ("buffering-end", {"operationType": "observation", "tokensBuffered": 10, "bufferedTokens": 3}, ["10 tokens read", "3 tokens of notes"]),
        ("activation", {"operationType": "observation", "triggeredBy": "threshold", "tokensActivated": 5}, ["threshold", "5 tokens"]),
        ("observation-failed", {"error": "no key", "tokensAttempted": 9}, ["no key", "9 tokens"]),
        ("thread-update", {"newTitle": "Trip to Lisbon"}, ["Trip to Lisbon"]),
    ],
)  # fmt: skip
def test_an_event_is_one_line_with_its_sizes(type, payload, words):
    line = event_line(EventRow(id="1", type=f"data-om-{type}", thread_id=1, payload=payload, created_at=NOW))

    assert line.startswith(f"12:00:00  {type}")
    assert [word for word in words if word not in line] == []
    assert "\n" not in line


def test_progress_without_a_terminal_is_a_few_lines(capsys):
    with progress("Replaying", 3) as advance:
        for number in range(1, 4):
            advance(1, number)

    assert capsys.readouterr().err == "Replaying: 3 of 3 messages, 3 activations\n"


def test_a_report_replaces_the_one_before(tmp_path):
    write_report(tmp_path, "demo", {"seconds": 1})
    path = write_report(tmp_path, "demo", {"seconds": 2.5, "jobs": {"completed": 3}})

    assert json.loads(path.read_text()) == {"seconds": 2.5, "jobs": {"completed": 3}}
    assert [entry.name for entry in path.parent.iterdir()] == ["demo.json"]


def test_an_extended_prompt_is_cacheable_up_to_its_new_end():
    meter = CacheMeter(len)
    meter.add(context("notes", "one"))
    first = meter.total_tokens
    meter.add(context("notes", "one", "two"))

    assert meter.cacheable_tokens == first
    assert meter.share == first / meter.total_tokens


def test_a_changed_log_ends_the_cacheable_part_inside_it():
    meter = CacheMeter(len)
    meter.add(context("notes abc", "one"))
    meter.add(context("notes xyz", "one"))

    assert meter.cacheable_tokens == len('{"content": "notes ')


def test_nothing_is_cacheable_before_the_first_prompt():
    assert CacheMeter(len).share == 0.0


@pytest.mark.parametrize(
    ("tokens", "kept"), [(0, []), (9, []), (10, [4]), (29, [3, 4]), (30, [2, 3, 4]), (99, [1, 2, 3, 4])]
)
def test_the_newest_messages_that_fit_are_kept(tokens, kept):
    rows = [StoredMessage(seq=seq, message=said("x"), tokens=10, created_at=NOW, turn=1) for seq in range(1, 5)]

    assert [row.seq for row in last_messages(rows, tokens)] == kept


def test_facts_are_looked_for_in_notes_calls_and_results():
    parts = (
        ToolCall(call_id="1", name="Bash", args={"command": "mix test"}),
        ToolResult(call_id="1", result="389 tests"),
    )
    shown = context("the epic is spotter-a0y")
    shown = Context(
        **{
            **{name: getattr(shown, name) for name in shown.__slots__},
            "messages": (Message(role=Role.ASSISTANT, parts=parts),),
        }
    )
    text = context_text(shown)

    assert "spotter-a0y" in text
    assert "mix test" in text
    assert "389 tests" in text


def test_an_empty_text_states_no_fact():
    assert share_of_facts("") == 0.0


def test_children_that_end_are_noticed_with_code_and_log(tmp_path):
    with Children(tmp_path) as children:
        child = children.start("broken", ["nonsense"])

        assert children.wait(threading.Event()) is child
        assert "broken ended with exit code 2" in child.why()
        assert "nonsense" in child.why()


def test_variables_of_a_child_are_set_and_taken_away(tmp_path, monkeypatch):
    monkeypatch.setenv("OM_LEASE_S", "11")
    monkeypatch.setenv("OM_SWEEP_S", "12")
    with Children(tmp_path) as children:
        child = children.start("config", ["config", "--json"], {"OM_LEASE_S": "", "OM_SWEEP_S": "13"})
        assert children.wait(threading.Event()) is child

    rows = {row["name"]: row for row in json.loads(child.log.read_text())["items"]}
    assert (rows["lease_s"]["source"], rows["sweep_s"]["value"]) == ("default", "13.0")
