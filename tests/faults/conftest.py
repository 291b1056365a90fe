"""Real servers, and the process that forks workers, shared by all faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.fleet import Starter
from tests.support.fixtures import servers

__all__ = ["servers", "starter"]


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    opened = Starter()
    yield opened
    opened.close()
