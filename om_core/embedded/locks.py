"""Advisory file locks. The kernel drops them with the last copy of the descriptor, also on SIGKILL."""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from om_core.embedded.errors import EmbeddedUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["shared", "exclusive"]
_POLL_S = 0.02


def open_lock(path: Path, *, create: bool = True) -> int:
    """Open a lock file; Python makes the descriptor close-on-exec, so no server can inherit it.

    Raises:
        EmbeddedUnavailable: the folder belongs to another user.
        FileNotFoundError: `create` is false and the file does not exist.
    """
    try:
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except PermissionError as error:
        cause = f"{path.parent} belongs to another user ({error.strerror}); use another folder, or run as its owner."
        raise EmbeddedUnavailable(cause) from error


def try_lock(fd: int, kind: Kind) -> bool:
    """Take the lock if it is free now.

    Raises:
        EmbeddedUnavailable: the file system has no such locks.
    """
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_NB | (fcntl.LOCK_SH if kind == "shared" else fcntl.LOCK_EX))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in {errno.ENOLCK, errno.ENOTSUP, errno.EINVAL}:
            cause = f"the file system of the data folder does not support file locks ({error.strerror})."
            raise EmbeddedUnavailable(cause) from error
        raise
    return True


def wait_lock(fd: int, kind: Kind, deadline: float) -> bool:
    """Take the lock, trying until the monotonic deadline; polled, because a blocking flock has no timeout."""
    while not try_lock(fd, kind):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def is_held_exclusively(path: Path) -> bool:
    """Tell whether a live process holds the file's exclusive lock."""
    try:
        fd = open_lock(path, create=False)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd, "shared")
    finally:
        os.close(fd)


@contextmanager
def exclusive(path: Path, deadline: float) -> Iterator[bool]:
    """Hold an exclusive lock for the block; yields whether it was taken before the deadline."""
    fd = open_lock(path)
    try:
        yield wait_lock(fd, "exclusive", deadline)
    finally:
        os.close(fd)
