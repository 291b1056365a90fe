"""Start Postgres although it refuses to run as root: in a user namespace, else as another account."""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from om_core.embedded.errors import EmbeddedUnavailable

if TYPE_CHECKING:
    from om_core.embedded.binaries import Binaries

USER_VARIABLE = "OM_EMBEDDED_USER"
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUSER = 0x10000000
_INNER_ID = 1000  # any id but 0: all that Postgres checks
_PROBE_TIMEOUT_S = 30


@dataclass(frozen=True)
class RunAs:
    """How Postgres is started, and who owns its files on disk."""

    kind: Literal["self", "namespace", "account"]
    uid: int
    gid: int

    def popen_options(self) -> dict[str, Any]:
        """Return the keyword arguments for subprocess; safe there because the supervisor has a single thread."""
        if self.kind == "namespace":
            return {"preexec_fn": _enter_namespace}
        if self.kind == "account":
            return {"user": self.uid, "group": self.gid, "extra_groups": []}
        return {}


def choose_run_as(binaries: Binaries, root: Path) -> RunAs:
    """Pick the way that works here: plain for ordinary users; for root a namespace, else the account `nobody`.

    OM_EMBEDDED_USER names a dedicated account and skips the namespace.

    Raises:
        EmbeddedUnavailable: root, and neither way works.
    """
    if os.geteuid() != 0:
        return RunAs("self", os.geteuid(), os.getegid())
    name = os.environ.get(USER_VARIABLE, "")
    namespace = RunAs("namespace", 0, os.getegid())
    if not name and sys.platform == "linux" and _starts(binaries, namespace):
        return namespace
    account = _account(name or "nobody")
    blocked = _blocked_folder(root, account.uid) or (None if _starts(binaries, account) else binaries.postgres)
    if blocked is None:
        return account
    cause = (
        f"Postgres refuses to run as root, user namespaces are {'not used' if name else 'forbidden here'}, "
        f"and the account {name or 'nobody'!r} cannot reach {blocked}. Run as an ordinary user, or put the data folder "
        f"and the Python environment where that account can read ({USER_VARIABLE} names another one)."
    )
    raise EmbeddedUnavailable(cause)


def give_to(run_as: RunAs, path: Path) -> None:
    """As root, hand the tree to the user that Postgres runs as; the data of a third user is refused.

    Raises:
        EmbeddedUnavailable: the tree belongs to neither.
    """
    owner = path.stat().st_uid
    if owner == run_as.uid:
        return
    if os.geteuid() != 0 or owner != 0:
        cause = f"{path} belongs to user id {owner}, Postgres would run as {run_as.uid}; run as the owner."
        raise EmbeddedUnavailable(cause)
    for folder, _, files in os.walk(path):
        for entry in (folder, *(os.path.join(folder, name) for name in files)):  # noqa: PTH118 - hundreds of files
            os.chown(entry, run_as.uid, run_as.gid, follow_symlinks=False)


def _enter_namespace() -> None:
    """Between fork and exec: root outside, an ordinary id inside, so files stay root's and Postgres agrees to start."""
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(_CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
    for name, text in (("setgroups", "deny"), ("gid_map", f"{_INNER_ID} {gid} 1"), ("uid_map", f"{_INNER_ID} {uid} 1")):
        Path("/proc/self", name).write_text(text)


def _starts(binaries: Binaries, run_as: RunAs) -> bool:
    """Probe first: a forbidden namespace shows up only as a bare error out of preexec_fn."""
    command = [str(binaries.postgres), "--version"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_PROBE_TIMEOUT_S, **run_as.popen_options())
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _account(name: str) -> RunAs:
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        cause = f"Postgres refuses to run as root, and there is no account {name!r} to run it as ({USER_VARIABLE})."
        raise EmbeddedUnavailable(cause) from error
    return RunAs("account", entry.pw_uid, entry.pw_gid)


def _blocked_folder(root: Path, uid: int) -> Path | None:
    """Return the first parent of the data folder that keeps the user out; such folders are not ours to open."""
    for folder in root.parents:
        found = folder.stat()
        if not (found.st_mode & stat.S_IXOTH or found.st_uid == uid):
            return folder
    return None
