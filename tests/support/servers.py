"""Embedded servers shared by the whole run, and a fresh migrated database for each test that asks for one."""

from __future__ import annotations

import os
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import psycopg2.extensions

from om_core.embedded import start
from om_core.store.migrate import upgrade

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.embedded import EmbeddedServers

TEMPLATE = "om_template"


@dataclass(frozen=True)
class Servers:
    """Running servers; `new_database` gives a database of its own to each test."""

    embedded: EmbeddedServers

    def database_url(self, name: str) -> str:
        return self.embedded.database_url.replace("@/om?", f"@/{name}?")

    def admin(self, name: str = "postgres") -> psycopg2.extensions.connection:
        """A superuser connection in autocommit mode."""
        query = dict(part.split("=", 1) for part in self.embedded.database_url.split("?", 1)[1].split("&"))
        connection = psycopg2.connect(host=query["host"], port=query["port"], user="postgres", dbname=name)
        connection.autocommit = True
        return connection

    def run(self, sql: str) -> None:
        connection = self.admin()
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
        finally:
            connection.close()

    @contextmanager
    def new_database(self, *, template: str = TEMPLATE) -> Iterator[str]:
        """URL of a fresh copy of the migrated template (or another one); dropped at the end."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log")
        try:
            yield self.database_url(name)
        finally:
            self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Servers for one test run, in a short private folder; they stop with it."""
    os.environ.setdefault("OM_EMBEDDED_FAST", "1")
    with tempfile.TemporaryDirectory(prefix="om-test-", ignore_cleanup_errors=True) as folder:
        embedded = start(Path(folder) / ".om")
        servers = Servers(embedded)
        try:
            servers.run(f"CREATE DATABASE {TEMPLATE}")
            upgrade(servers.database_url(TEMPLATE))
            yield servers
        finally:
            embedded.close()
