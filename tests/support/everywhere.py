"""Searching everything that is stored for a text: as the owner of the database, every column of every table; and all of
a Redis database.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from om_core.config.urls import normalise_database_url
from tests.support.brokers import redis_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

COLUMNS = """
SELECT table_name, column_name FROM information_schema.columns
 WHERE table_schema = 'public' ORDER BY table_name, ordinal_position
"""


def places_of(text: str, url: str) -> list[str]:
    """`table.column` of every place that holds the text, whatever its case."""
    engine = sa.create_engine(normalise_database_url(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        found = []
        for table, column in connection.execute(sa.text(COLUMNS)).fetchall():
            query = sa.text(f'SELECT count(*) FROM "{table}" WHERE "{column}"::text ILIKE :text')
            if connection.scalar(query, {"text": f"%{text}%"}):
                found.append(f"{table}.{column}")
    engine.dispose()
    return found


def redis_places_of(text: str, url: str) -> list[str]:
    """Keys of a Redis database that hold the text, in their name or in what is stored under them; the bodies of Celery
    messages are looked into.
    """
    with redis_client(url) as client:
        keys = [bytes(key) for key in client.scan_iter(count=1_000)]
        return [key.decode() for key in keys if any(text in found for found in _texts(client, key))]


def _texts(client: redis.Redis, key: bytes) -> Iterator[str]:
    yield key.decode()
    reading: dict[bytes, Callable[[], Any]] = {
        b"string": lambda: [client.get(key)],
        b"list": lambda: client.lrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"zset": lambda: client.zrange(key, 0, -1),
        b"hash": lambda: [part for item in client.hgetall(key).items() for part in item],
    }
    kind = client.type(key)
    assert isinstance(kind, bytes)
    for value in reading[kind]():
        raw = value.decode(errors="replace")
        yield raw
        for body in re.findall(r'"body": "([A-Za-z0-9+/=]+)"', raw):
            yield base64.b64decode(body).decode(errors="replace")
