"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], *, seconds: float = 45.0, what: str | Callable[[], str] = "") -> T:
    """Look until the answer is true, and return it; `what` says, or finds out, what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            told = what() if callable(what) else what
            raise AssertionError(f"not within {seconds} s: {told or 'the condition'}; last seen: {found!r}")
        time.sleep(0.02)  # polls another process
