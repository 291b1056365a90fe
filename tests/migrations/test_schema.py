"""The migrated schema is the one the code describes, and a wrong version is named at start-up."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from om_core.domain.errors import SchemaVersionError
from om_core.store import tables_service, tables_webhooks  # noqa: F401 - register their tables
from om_core.store.columns import metadata
from om_core.store.engine import PostgresStore
from om_core.store.migrate import check_schema, upgrade
from om_core.store.tables import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Servers


@pytest.fixture
def empty_url(servers: Servers) -> Iterator[str]:
    """A database without any table."""
    name = f"e_{uuid.uuid4().hex[:12]}"
    servers.run(f"CREATE DATABASE {name}")
    yield servers.database_url(name)
    servers.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'")  # reflected by SQLAlchemy as unknown
def test_the_upgraded_schema_equals_the_metadata(store: PostgresStore) -> None:
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = [
            item
            for item in compare_metadata(context, metadata)
            if not (item[0] == "remove_table" and item[1].name == "alembic_version")
        ]
    assert differences == []


def test_the_upgraded_defaults_and_checks_equal_the_metadata(servers: Servers, store: PostgresStore) -> None:
    """What Alembic does not compare: the catalogue of a database made from the metadata, against the upgraded one."""
    query = sa.text(
        "SELECT table_name, column_name, column_default, is_generated, identity_generation"
        " FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'"
        " UNION ALL SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', ''"
        " FROM pg_constraint WHERE contype IN ('c', 'f', 'u', 'p') AND connamespace = 'public'::regnamespace"
        "  AND conname NOT LIKE 'alembic%'"
        " UNION ALL SELECT tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'"
        "  AND tablename <> 'alembic_version' ORDER BY 1, 2, 3"
    )
    with servers.new_database(template="template1") as url:
        made = PostgresStore(url)
        try:
            with made.engine.connect() as connection:
                metadata.create_all(connection)
                wanted = {tuple(row) for row in connection.execute(query)}
        finally:
            made.close()
    with store.engine.connect() as connection:
        found = {tuple(row) for row in connection.execute(query)}
    assert found == wanted


def test_an_empty_database_is_named_with_the_command_that_fixes_it(empty_url: str) -> None:
    store = PostgresStore(empty_url)
    try:
        with pytest.raises(SchemaVersionError, match="om migrate"):
            check_schema(store.engine)
    finally:
        store.close()


@pytest.mark.report("M07")
def test_an_older_and_a_newer_schema_are_told_apart(store: PostgresStore) -> None:
    with store.engine.connect() as connection:
        for version, advice in (("0000", "om migrate"), ("9999", "upgrade om-pipeline")):
            connection.execute(sa.text("UPDATE alembic_version SET version_num = :version"), {"version": version})
            with pytest.raises(SchemaVersionError, match=f"{version}.*{advice}"):
                check_schema(store.engine)


def test_migrating_twice_changes_nothing(empty_url: str) -> None:
    assert upgrade(empty_url) == SCHEMA_VERSION
    assert upgrade(empty_url) == SCHEMA_VERSION
