"""The suite runs on real servers."""

from __future__ import annotations

from tests.support.fixtures import servers

__all__ = ["servers"]
