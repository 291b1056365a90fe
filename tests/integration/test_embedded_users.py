"""The embedded servers as root without user namespaces, and as an ordinary user."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import pytest
from sqlalchemy import create_engine, text

import om_core
from om_core.embedded import EmbeddedServers, EmbeddedUnavailable, start, wait_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(om_core.__file__).resolve().parents[1]
CLIENT = """
import json, sys
from pathlib import Path
from om_core.embedded import start
status = start(Path(sys.argv[1])).status()
print(json.dumps([status.supervisor_pid, status.postgres.pid, status.redis.pid]), flush=True)
sys.stdin.read()
"""
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]


def _execute(servers: EmbeddedServers, statement: str) -> list[tuple[object, ...]]:
    engine = create_engine(servers.database_url)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that other accounts can reach; pytest's own is private."""
    parent = Path(tempfile.mkdtemp(prefix="om-test-"))
    parent.chmod(0o755)
    yield parent / ".om"
    assert wait_stopped(parent / ".om")
    shutil.rmtree(parent)


def _reachable(path: Path) -> bool:
    resolved = path.resolve()
    return all(parent.stat().st_mode & 0o001 for parent in resolved.parents) and bool(resolved.stat().st_mode & 0o004)


needs_open_packages = pytest.mark.skipif(
    not (_reachable(Path(psycopg2.__file__)) and _reachable(Path(om_core.__file__))),
    reason="packages are in a private folder",
)


@needs_open_packages
def test_root_without_namespaces_runs_postgres_as_an_account(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OM_EMBEDDED_USER", "nobody")
    with start(open_folder) as servers:
        _execute(servers, "CREATE TABLE kept AS SELECT 42 AS value")
        postgres = servers.status().postgres.pid
        assert Path(f"/proc/{postgres}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        servers.kill("postgres")
        servers.wait_ready()
        assert _execute(servers, "SELECT value FROM kept") == [(42,)]
    assert wait_stopped(open_folder)


def test_root_is_told_when_the_account_cannot_reach_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OM_EMBEDDED_USER", "nobody")
    (tmp_path / "private").mkdir(mode=0o700)
    with pytest.raises(EmbeddedUnavailable, match=r"cannot reach .*\n.*OM_DATABASE_URL"):
        start(tmp_path / "private" / ".om")
    assert wait_stopped(tmp_path / "private" / ".om")


def _open_python() -> str | None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [sys.executable, *(str(Path(folder) / version) for folder in os.defpath.split(os.pathsep) if folder)]
    return next((path for path in found if Path(path).exists() and _reachable(Path(path))), None)


@needs_open_packages
def test_ordinary_user(open_folder: Path) -> None:
    python = _open_python()
    if python is None:
        pytest.skip("no interpreter of this version that another user can reach")
    user = pwd.getpwnam("nobody")
    os.chown(open_folder.parent, user.pw_uid, user.pw_gid)
    packages = Path(psycopg2.__file__).resolve().parents[1]
    process = subprocess.Popen(
        [python, "-c", CLIENT, str(open_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(packages)]),
            "HOME": str(open_folder.parent),
        },
    )
    try:
        assert process.stdout is not None
        pids = json.loads(process.stdout.readline())
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {user.pw_uid}
    finally:
        process.kill()
        process.communicate()
    assert wait_stopped(open_folder, 30)
