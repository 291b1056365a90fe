"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], *, seconds: float = 45.0, what: str = "") -> T:
    """Look until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or 'the condition'}; last seen: {found!r}"
        time.sleep(0.02)  # polls another process
