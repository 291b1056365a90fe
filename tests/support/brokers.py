"""An empty Redis database per test, and times without Redis."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from tests.support.servers import Servers

REDIS_DATABASES = 16
_numbers = itertools.count(1)


@pytest.fixture
def redis_url(servers: Servers) -> str:
    """Celery's address of an empty Redis database."""
    url = f"{servers.embedded.redis_url}?virtual_host={next(_numbers) % REDIS_DATABASES}"
    with redis_client(url) as client:
        client.flushdb()
    return url


def redis_client(redis_url: str) -> redis.Redis:
    """A plain client of the database that a broker URL names; close it."""
    return redis.Redis.from_url(redis_url.replace("redis+socket://", "unix://").replace("virtual_host=", "db="))


@contextmanager
def redis_down(servers: Servers) -> Iterator[None]:
    """No Redis within the block; it answers again afterwards."""
    servers.embedded.pause("redis")
    try:
        yield
    finally:
        servers.embedded.resume("redis")
