"""Servers with durable settings, a database per measurement, and services with a model that answers at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg2.extensions

from om_core.bootstrap import Located, build_services
from om_core.config import SecretUrl, Settings
from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.services.deps import Services
from om_core.services.run_jobs import JobRunner
from om_core.store.engine import PostgresStore
from tests.benchmarks.history import RESOURCE, TENANT
from tests.benchmarks.model import InstantModel
from tests.support.servers import Servers, running_servers


@dataclass(frozen=True)
class Effort:
    """How often things are measured. `runs` are repetitions of a whole measurement, of which the median counts."""

    runs: int = 3
    pairs: int = 500
    warm_up: int = 50
    messages: int = 100_000
    jobs: int = 400
    noops: int = 1_500
    calls: int = 32
    readers: int = 2_000


QUICK = Effort(runs=1, pairs=40, warm_up=5, messages=5_000, jobs=40, noops=100, calls=8, readers=50)
"""Enough to see that it works; its numbers mean little."""


@dataclass(frozen=True)
class Stage:
    """One database with services over it."""

    servers: Servers
    url: str
    services: Services
    memory: Memory

    @property
    def store(self) -> PostgresStore:
        store = self.services.store
        assert isinstance(store, PostgresStore)
        return store

    @contextmanager
    def admin(self) -> Iterator[psycopg2.extensions.connection]:
        """A superuser's connection to this database, in autocommit mode."""
        connection = self.servers.admin(self.url.rsplit("@/", 1)[1].split("?", 1)[0])
        try:
            yield connection
        finally:
            connection.close()

    def run_due_jobs(self, runner: JobRunner) -> None:
        """What workers would have done meanwhile."""
        for queue in ("observation", "buffering", "reflection"):
            while runner.run(queue) is not None:
                pass

    def assert_covered(self, *threads: str) -> None:
        """A history made by SQL has to keep the promise that one made by the service keeps."""
        for thread in threads:
            found = check_coverage(self.services, TENANT, thread, RESOURCE)
            assert found.holds, f"the history of {thread!r} is not sound: {found}"


@contextmanager
def durable_servers() -> Iterator[Servers]:
    """Embedded servers as a user's: every commit reaches the disk."""
    before = os.environ.get("OM_EMBEDDED_FAST")
    os.environ["OM_EMBEDDED_FAST"] = "0"
    try:
        with running_servers() as servers:
            yield servers
    finally:
        if before is None:
            del os.environ["OM_EMBEDDED_FAST"]
        else:
            os.environ["OM_EMBEDDED_FAST"] = before


@contextmanager
def stage(
    servers: Servers, options: dict[str, Any] | None = None, *, model: str = "offline/extractive"
) -> Iterator[Stage]:
    """A fresh database, default options unless others are given, and the instant model.

    `model` is the name that is stored with jobs, for workers; here it is never called.
    """
    with servers.new_database() as url:
        settings = Settings(database_url=SecretUrl(url), model=model, auth="off", options=options or {})
        located = Located(database_url=url, redis_url=None, embedded=False)
        services = replace(build_services(settings, located), model=InstantModel())
        memory = Memory(services)
        try:
            yield Stage(servers, url, services, memory)
        finally:
            memory.close()
            services.store.close()
