"""Fixtures of the fuzz: real servers, and one database for all seeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.campaign import Arena, arena
from tests.support.fixtures import servers
from tests.support.servers import Servers

__all__ = ["servers"]


@pytest.fixture(scope="module")
def place(servers: Servers) -> Iterator[Arena]:
    with arena(servers) as found:
        yield found
