"""Fixtures over real servers; folders of tests import them in their conftest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.llm.offline import OfflineModel, extract_short
from om_core.memory import Memory
from om_core.services.deps import Policies, Services
from om_core.store.engine import PostgresStore
from om_core.tokens import TiktokenCounter
from tests.support.servers import Servers, running_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from om_core.domain.message import JsonObject
    from om_core.ports import Store
    from om_core.store.session import Session

COUNTER = TiktokenCounter()
SMALL: JsonObject = {
    "model": "offline/extractive",
    "observation": {"message_tokens": 1000, "buffer_tokens": 0.2, "block_timeout": 1000},
    "reflection": {"observation_tokens": 600},
}
"""Thresholds that a handful of messages reach."""


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with running_servers() as running:
        yield running


@pytest.fixture
def database_url(servers: Servers) -> Iterator[str]:
    with servers.new_database() as url:
        yield url


@pytest.fixture
def store(database_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(database_url, pool_size=8)
    yield opened
    opened.close()


def build(store: PostgresStore, options: JsonObject, **changes: object) -> Services:
    """Services over a store with the offline model."""
    parts: dict[str, object] = {
        "store": store,
        "counter": COUNTER,
        "tokenizer": COUNTER,
        "model": OfflineModel(count_tokens=COUNTER.count_text),
        "extract": lambda messages, tokens, zone: extract_short(messages, tokens, timezone=zone),
        "policies": Policies(options),
        "lease_s": 2.0,
    }
    return Services(**{**parts, **changes})  # type: ignore[arg-type]  # tests name what they change


def raw_session(store: Store, tenant: str = "default") -> AbstractContextManager[Session]:
    """A transaction as the application role of a tenant, for statements that no service makes."""
    assert isinstance(store, PostgresStore)
    return store.session("om_app", tenant)


def system_session(store: Store) -> AbstractContextManager[Session]:
    """A transaction as the system role, which belongs to no tenant."""
    assert isinstance(store, PostgresStore)
    return store.session("om_system", "")


@pytest.fixture
def services_with(store: PostgresStore) -> Callable[..., Services]:
    """Services with other options or adapters: `services_with(options, model=…)`."""

    def make(options: JsonObject | None = None, **changes: object) -> Services:
        return build(store, SMALL if options is None else options, **changes)

    return make


@pytest.fixture
def services(services_with: Callable[..., Services]) -> Services:
    return services_with()


@pytest.fixture
def memory(services: Services) -> Iterator[Memory]:
    """Memory without any worker: jobs are stored, and run by the test through `JobRunner`."""
    opened = Memory(services)
    yield opened
    opened.close()
