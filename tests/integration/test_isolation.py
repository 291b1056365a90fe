"""Row-level security binds for every role in use (DESIGN 2.7, 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg2
import pytest
import sqlalchemy as sa

from om_core.store.columns import metadata

if TYPE_CHECKING:
    from om_core.memory import Memory
    from om_core.store.engine import PostgresStore

TENANT_TABLES = sorted(name for name, table in metadata.tables.items() if "tenant_id" in table.c)
CONTENT = {
    "messages": "parts",
    "chunks": "text",
    "reflections": "text",
    "events": "payload",
    "jobs": "partial",
    "threads": "title",
    "working_memory": "content",
    "extractions": "value",
}


@pytest.fixture
def two_tenants(memory: Memory) -> Memory:
    for tenant in ("one", "two"):
        memory.for_tenant(tenant).append("t", [{"role": "user", "content": f"secret of {tenant}"}], resource="r")
    return memory


def test_a_tenant_sees_only_its_own_rows(two_tenants: Memory) -> None:
    for tenant in ("one", "two"):
        found = two_tenants.for_tenant(tenant).context("t", resource="r").to_openai()
        assert found == [{"role": "user", "content": f"secret of {tenant}"}]


@pytest.mark.parametrize("table", TENANT_TABLES)
def test_without_a_tenant_the_application_role_sees_nothing(
    two_tenants: Memory, store: PostgresStore, table: str
) -> None:
    with store.session("om_app", "") as session:
        assert session.hot(f"SELECT count(*) FROM {table}") == [(0,)]


@pytest.mark.parametrize("table", ["threads", "messages", "memories"])
def test_a_query_that_forgets_the_tenant_still_sees_only_one(
    two_tenants: Memory, store: PostgresStore, table: str
) -> None:
    with store.session("om_app", "one") as session:
        assert session.hot(f"SELECT DISTINCT tenant_id FROM {table}") == [("one",)]


@pytest.mark.report("I03")
def test_a_row_cannot_be_written_for_another_tenant(two_tenants: Memory, store: PostgresStore) -> None:
    with (
        pytest.raises(psycopg2.errors.InsufficientPrivilege, match="row-level security"),
        store.session("om_app", "one") as session,
    ):
        session.hot("INSERT INTO memories (tenant_id, scope, scope_key) VALUES ('two', 'thread', 'x') RETURNING id")


@pytest.mark.parametrize(("table", "column"), sorted(CONTENT.items()))
def test_the_system_role_reads_no_content(store: PostgresStore, table: str, column: str) -> None:
    with (
        pytest.raises(psycopg2.errors.InsufficientPrivilege, match="permission denied"),
        store.session("om_system", "") as session,
    ):
        session.hot(f"SELECT {column} FROM {table}")


def test_every_table_of_a_tenant_forces_row_level_security(store: PostgresStore) -> None:
    query = sa.text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relrowsecurity AND relforcerowsecurity")
    with store.engine.connect() as connection:
        protected = {row[0] for row in connection.execute(query)}
    assert set(TENANT_TABLES) - protected == set()


def test_neither_role_can_bypass_it(store: PostgresStore) -> None:
    query = sa.text("SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname IN ('om_app', 'om_system')")
    with store.engine.connect() as connection:
        found = {tuple(row) for row in connection.execute(query)}
    assert found == {("om_app", False, False), ("om_system", False, False)}


def test_role_and_tenant_end_with_the_transaction(two_tenants: Memory, store: PostgresStore) -> None:
    with store.engine.connect() as held:
        before = held.connection.driver_connection
    with store.session("om_app", "one") as session:
        session.hot("SELECT 1")
    with store.engine.connect() as connection:
        assert connection.connection.driver_connection is before, "the same pooled connection"
        row = connection.execute(sa.text("SELECT current_user, current_setting('om.tenant', true)")).one()
    assert row[0] == "postgres"
    assert row[1] in (None, "")
