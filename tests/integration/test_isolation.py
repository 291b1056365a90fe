"""Row-level security binds for every role in use (DESIGN 2.7, 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg2
import pytest
import sqlalchemy as sa

from om_core.services.keys import create_key
from om_core.store.columns import metadata
from tests.support.jobs import work_off

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


SHARED_TABLES = {
    "breakers": "one row per model, for all workers",
    "workers": "one row per process",
    "alembic_version": "the schema's version",
}
"""Tables of no tenant, and why nothing of one stands in them."""
SYSTEM_READS = {
    "api_keys": {"hash", "resource_id", "thread"},
    "chunks": set(),
    "events": {"resource_id"},
    "jobs": {"kind", "queue", "target", "thread", "state", "lease_owner", "models"},
    "memories": set(),
    "spending": {"scope", "scope_key"},
    "threads": {"resource_id"},
    "usage": {"resource_id", "kind", "model"},
    "webhooks": {"resource_id"},
}
"""Texts that the system role may read across tenants beside `tenant_id`: ids, names of kinds and models, no content."""


@pytest.fixture
def two_tenants(memory: Memory) -> Memory:
    for tenant in ("one", "two"):
        memory.for_tenant(tenant).append("t", [{"role": "user", "content": f"secret of {tenant}"}], resource="r")
    return memory


@pytest.fixture
def full_tables(memory: Memory, store: PostgresStore) -> dict[str, dict[str, int]]:
    """Both tenants with rows in nearly every table: table -> tenant -> rows."""
    for tenant in ("one", "two"):
        mine = memory.for_tenant(tenant)
        said = [{"role": "user", "content": f"On day {n} the cat of {tenant} sat on the wall. " * 8} for n in range(9)]
        mine.append("t", said, resource="r")
        mine.set_working_memory("# Name", resource="r")
        create_key(memory.services, tenant, name="app")
    work_off(memory.services)
    found: dict[str, dict[str, int]] = {}
    with store.engine.connect() as connection:  # the superuser of the tests sees everything
        for table in TENANT_TABLES:
            rows = connection.execute(sa.text(f"SELECT tenant_id, count(*) FROM {table} GROUP BY 1"))
            found[table] = {row[0]: row[1] for row in rows}
    assert sum(bool(counts) for counts in found.values()) >= 9
    return found


def test_every_table_is_a_tenants_or_shared_on_purpose(store: PostgresStore) -> None:
    query = sa.text(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm') AND relnamespace = 'public'::regnamespace"
    )
    with store.engine.connect() as connection:
        found = {row[0] for row in connection.execute(query)}
    assert found == set(TENANT_TABLES) | set(SHARED_TABLES)
    assert found >= set(metadata.tables)


def test_of_every_table_a_tenant_sees_and_changes_its_own_rows_alone(
    full_tables: dict[str, dict[str, int]], store: PostgresStore
) -> None:
    for table, counts in full_tables.items():
        own = counts.get("one", 0)
        with store.session("om_app", "one") as session:
            assert session.hot(f"SELECT count(*) FROM {table}") == [(own,)], table
            seen = session.execute(sa.text(f"UPDATE {table} SET tenant_id = tenant_id")).rowcount
            assert seen == own, table


def test_no_row_of_any_table_can_be_given_to_another_tenant(
    full_tables: dict[str, dict[str, int]], store: PostgresStore
) -> None:
    for table in (name for name, counts in full_tables.items() if counts.get("one")):
        with pytest.raises(sa.exc.DBAPIError, match="row-level security"), store.session("om_app", "one") as session:
            session.execute(sa.text(f"UPDATE {table} SET tenant_id = 'two'"))


@pytest.mark.parametrize("tenant", ["", "three", "' OR true --", "one\\", "ONE", "one "])
def test_a_tenant_of_another_name_sees_nothing(
    full_tables: dict[str, dict[str, int]], store: PostgresStore, tenant: str
) -> None:
    with store.session("om_app", tenant) as session:
        for table in full_tables:
            assert session.hot(f"SELECT count(*) FROM {table}") == [(0,)], table


def test_the_texts_that_the_system_role_may_read_are_counted(store: PostgresStore) -> None:
    query = sa.text("""
        SELECT table_name, column_name FROM information_schema.columns
         WHERE table_schema = 'public' AND table_name = ANY (:tables) AND column_name <> 'tenant_id'
           AND data_type NOT IN ('bigint', 'boolean', 'timestamp with time zone', 'numeric', 'date', 'xid8')
           AND has_column_privilege('om_system', quote_ident(table_name), column_name, 'SELECT')""")
    found: dict[str, set[str]] = {}
    with store.engine.connect() as connection:
        for table, column in connection.execute(query, {"tables": TENANT_TABLES}):
            found.setdefault(table, set()).add(column)
    assert found == {table: columns for table, columns in SYSTEM_READS.items() if columns}


def test_nobody_else_has_a_right_on_any_table(store: PostgresStore) -> None:
    query = sa.text("""
        SELECT DISTINCT grantee FROM information_schema.role_table_grants
         WHERE table_schema = 'public' AND grantee NOT IN (SELECT tableowner FROM pg_tables WHERE schemaname = 'public')""")
    with store.engine.connect() as connection:
        found = {row[0] for row in connection.execute(query)}
    assert found <= {"om_app", "om_system"}


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
