"""Ask the servers whether they answer; used by clients and supervisor alike."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import psycopg2

from om_core.embedded.layout import POSTGRES_PORT

if TYPE_CHECKING:
    from pathlib import Path

    from psycopg2.extensions import connection

DATABASE = "om"
REDIS_SOCKET = "redis.sock"
_TIMEOUT_S = 5


def connect_postgres(sockets: Path, database: str = DATABASE) -> connection:
    """Connect over the socket; the port is named because PGPORT would otherwise change the socket's name.

    Raises:
        psycopg2.OperationalError: nothing answers, or it is still starting.
    """
    return psycopg2.connect(
        host=str(sockets), port=POSTGRES_PORT, user="postgres", dbname=database, connect_timeout=_TIMEOUT_S
    )


def postgres_answers(sockets: Path) -> bool:
    """Tell whether Postgres accepts a connection to the database."""
    try:
        connect_postgres(sockets).close()
    except psycopg2.OperationalError:
        return False
    return True


def redis_answers(sockets: Path) -> bool:
    """Tell whether Redis answers PING; it does not while it loads its data."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_TIMEOUT_S)
            client.connect(str(sockets / REDIS_SOCKET))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False
