"""The command line without servers: help, exit codes, error texts, what it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from api.cli.run import run
from tests.support.om_command import OM

COMMANDS = {
    "up": "foreground",
    "demo": "whole pipeline",
    "migrate": "schema",
    "worker": "--concurrency",
    "beat": "schedule",
    "api": "HTTP",
    "flower": "Flower",
    "replay": "--speed",
    "threads": "--json",
    "status": "--json",
    "show": "--chunks",
    "watch": "--for",
    "observe": "--wait",
    "reflect": "--guidance",
    "activate": "--tenant",
    "flush": "--wait",
    "jobs": "--state",
    "doctor": "--json",
    "config": "--json",
}
READING = ("threads", "status", "show", "jobs", "doctor", "config")


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    """A folder without om.toml and servers, an environment without settings, and lines that are not wrapped."""
    for name in list(os.environ):
        if name.upper().startswith("OM_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def test_the_help_lists_every_command(capsys):
    assert run(["--help"]) == 0

    out = capsys.readouterr().out
    assert [name for name in COMMANDS if f" {name} " not in out] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_help_text(command, capsys):
    assert run([command, "--help"]) == 0

    assert COMMANDS[command] in capsys.readouterr().out


@pytest.mark.parametrize("command", READING)
def test_each_reading_command_knows_json(command, capsys):
    assert run([command, "--help"]) == 0

    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nonsense"], "nonsense"),
        (["status"], "THREAD"),
        (["threads", "--limit", "0"], "--limit"),
        (["threads", "--limit", "201"], "--limit"),
        (["threads", "--nonsense"], "--nonsense"),
        (["show", "t", "--log", "--chunks"], "choose one"),
        (["jobs", "--state", "nonsense"], "no state of a job"),
        (["jobs", "retry"], "name one job"),
        (["jobs", "retry", "1", "--state", "discarded"], "name one job"),
        (["jobs", "retry", "--state", "running"], "only discarded"),
        (["jobs", "cancel", "one"], "ID"),
        (["replay", "nowhere.jsonl"], "nowhere.jsonl"),
        (["replay"], "FILE"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(arguments, word, capsys):
    assert run(arguments) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert word in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["threads"],
        ["threads", "--json"],
        ["status", "t"],
        ["show", "t"],
        ["watch", "t", "--for", "1"],
        ["jobs"],
        ["jobs", "retry", "1"],
        ["observe", "t"],
        ["flush", "t"],
        ["activate", "t"],
        ["migrate"],
        ["worker"],
        ["beat"],
        ["api", "--port", "18931"],
        ["flower"],
    ],
    ids=" ".join,
)
def test_without_servers_a_command_ends_with_2_and_names_the_missing_setting(arguments, tmp_path, capsys):
    assert run(arguments) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "OM_DATABASE_URL" in captured.err
    assert len(captured.err.splitlines()) == 1
    assert not (tmp_path / ".om").exists(), "a private, empty database must never be made by accident"


@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "anthropic/claude-haiku-4-5"])
def test_a_worker_without_the_key_of_its_model_ends_with_2_and_names_the_variable(model, monkeypatch, capsys):
    monkeypatch.setenv("OM_MODEL", model)

    assert run(["worker"]) == 2
    assert f"{model.split('/')[0].upper()}_API_KEY" in capsys.readouterr().err


def test_a_wrong_setting_ends_with_2_and_names_its_variable(monkeypatch, capsys):
    monkeypatch.setenv("OM_API_PORT", "many")

    assert run(["threads"]) == 2
    assert "OM_API_PORT" in capsys.readouterr().err


def test_an_unreachable_database_ends_with_1_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("OM_DATABASE_URL", "postgresql://nobody:secret@127.0.0.1:1/none")

    assert run(["threads"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: the database: ")
    assert len(err.splitlines()) == 1
    assert "secret" not in err


@pytest.mark.parametrize(("level", "traceback"), [("info", False), ("debug", True)])
def test_a_traceback_is_shown_at_the_log_level_debug_only(level, traceback, monkeypatch, capsys):
    monkeypatch.setenv("OM_LOG_LEVEL", level)

    assert run(["threads"]) == 2
    assert ("Traceback" in capsys.readouterr().err) is traceback


def test_a_file_in_no_known_format_ends_with_2(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("just words\n")

    assert run(["replay", "notes.txt"]) == 2
    assert "no transcript in a known format" in capsys.readouterr().err


def test_several_conversations_do_not_fit_into_one_thread(tmp_path, capsys):
    lines = [json.dumps({"messages": [{"role": "user", "content": f"hello {n}"}]}) for n in range(2)]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines) + "\n")

    assert run(["replay", "chats.jsonl", "--thread", "one"]) == 2
    assert "do not fit into one thread" in capsys.readouterr().err


def test_config_says_where_each_value_comes_from_and_masks_secrets(tmp_path, monkeypatch, capsys):
    (tmp_path / "om.toml").write_text("sweep_s = 7.5\n")
    monkeypatch.setenv("OM_DATABASE_URL", "postgresql://user:hunter2@db.example/om")
    monkeypatch.setenv("OM_FLOWER_BASIC_AUTH", "admin:hunter2")
    monkeypatch.setenv("OM_LEASSE_S", "5")

    assert run(["config", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    rows = {row["name"]: row for row in found["items"]}
    assert (rows["sweep_s"]["value"], rows["sweep_s"]["source"]) == ("7.5", "om.toml")
    assert rows["database_url"]["source"] == "environment"
    assert rows["lease_s"]["source"] == "default"
    assert rows["options.observation.message_tokens"]["value"] == "30000"
    assert "hunter2" not in captured.out
    assert any("OM_LEASSE_S" in warning and "OM_LEASE_S" in warning for warning in found["warnings"])

    assert run(["config"]) == 0
    captured = capsys.readouterr()
    assert "hunter2" not in captured.out
    assert "warning: OM_LEASSE_S" in captured.err


def test_doctor_without_servers_fails_and_says_how_to_fix_it(capsys):
    assert run(["doctor", "--json"]) == 1

    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    [database] = [item for item in found["items"] if item["check"] == "database"]
    assert database["state"] == "fail"
    assert "om up" in database["fix"]


def test_a_closed_pipe_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*OM, "config"], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_ends_with_130_and_without_a_traceback(monkeypatch, capsys):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("api.cli.run._invoke", interrupt)

    assert run(["threads"]) == 130
    assert capsys.readouterr().err == ""


def test_the_help_loads_no_database_and_no_queue():
    script = "import sys; from api.cli.run import run; run(['--help']); print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    loaded = {name.partition(".")[0] for name in done.stderr.splitlines()}
    assert loaded & {"sqlalchemy", "celery", "litellm", "fastapi", "pydantic", "structlog"} == set()
