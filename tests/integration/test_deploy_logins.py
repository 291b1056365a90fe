"""The database logins of the deployment, made by its own script on a server of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import psycopg2.errors
import psycopg2.extensions
import pytest

from om_core.embedded import start
from om_core.embedded.binaries import find_binaries
from om_core.memory import Memory
from om_core.services.run_jobs import JobRunner
from om_core.store.columns import metadata
from om_core.store.diagnose import diagnose
from om_core.store.migrate import upgrade
from tests.support.processes import ROOT
from tests.support.services import conversation, make_settings, settings_services

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

INIT = ROOT / "deploy" / "postgres" / "init.sql"
PASSWORDS = {"OM_OWNER_PASSWORD": "owner'1", "OM_SERVICE_PASSWORD": "service2"}


@dataclass(frozen=True)
class Database:
    """A new server on which the script has run and the owner has migrated."""

    url: str

    def as_user(self, user: str) -> str:
        return self.url.replace("postgres@/", f"{user}@/")

    def connect(self, user: str) -> psycopg2.extensions.connection:
        return psycopg2.connect(self.as_user(user).replace("postgresql+psycopg2", "postgresql"))


def run_init(url: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    psql = find_binaries().postgres.parent / "psql"
    command = [
        str(psql),
        "--no-psqlrc",
        "--dbname",
        url.replace("postgresql+psycopg2", "postgresql"),
        "--file",
        str(INIT),
    ]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="om-test-", ignore_cleanup_errors=True) as folder:
        embedded = start(Path(folder) / ".om")
        try:
            found = Database(embedded.database_url)
            done = run_init(found.url, PASSWORDS)
            assert done.returncode == 0, done.stderr
            upgrade(found.as_user("om_owner"), app_url=found.as_user("om_service"))
            yield found
        finally:
            embedded.close()


def test_the_owner_migrates_without_being_superuser_and_the_doctor_is_content(database: Database):
    found = diagnose(database.as_user("om_service"))

    assert found.schema_version == found.wanted_version
    assert (found.login, found.login_is_superuser) == ("om_service", False)
    assert (found.missing_roles, found.faults) == ((), ())


def test_the_login_of_the_services_does_the_work(database: Database):
    with settings_services(make_settings(database.as_user("om_service"))) as services:
        memory = Memory(services)
        [job] = memory.append("thread 7", conversation(8), resource="user-1").jobs

        assert JobRunner(services).run(job.queue, job.id) is not None

        assert [row["kind"] for row in memory.observations("thread 7", state="all").items] == ["observed"]
        services.store.system.heartbeat(name="w", queues=[job.queue], slots=1, running=0, version="")
        assert [row.name for row in services.store.system.workers(max_age_s=60)] == ["w"]


def test_a_second_migration_changes_nothing(database: Database):
    before = diagnose(database.as_user("om_service")).schema_version
    assert upgrade(database.as_user("om_owner"), app_url=database.as_user("om_service")) == before


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE messages",
        "ALTER TABLE messages DISABLE ROW LEVEL SECURITY",
        "CREATE TABLE mine (id int)",
        "CREATE ROLE mine",
        "CREATE SCHEMA mine",
        "SELECT * FROM messages",
        "SELECT pg_read_file('PG_VERSION')",
        "SET ROLE om_owner",
    ],
)
def test_the_login_of_the_services_may_not(database: Database, statement: str):
    connection = database.connect("om_service")
    try:
        with connection.cursor() as cursor, pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute(statement)
    finally:
        connection.close()


TENANT_TABLES = sorted(name for name, table in metadata.tables.items() if "tenant_id" in table.c)


def test_row_level_security_binds_every_login_and_role(database: Database):
    with settings_services(make_settings(database.as_user("om_service"))) as services:
        Memory(services, "secretive").append("bound", conversation(8), resource="user-1")
    for user, role in (("om_service", "om_app"), ("om_owner", None)):
        for tenant in ("", "somebody else"):
            assert rows_seen(database, user, role, tenant) == {}, (user, role)
    assert {"messages", "threads", "memories"} <= rows_seen(database, "om_service", "om_app", "secretive").keys()


def rows_seen(database: Database, user: str, role: str | None, tenant: str) -> dict[str, int]:
    """How many rows of each table a login sees in a role."""
    connection = database.connect(user)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('om.tenant', %s, true)", (tenant,))
            if role is not None:
                cursor.execute(f"SET LOCAL ROLE {role}")
            found = {}
            for table in TENANT_TABLES:
                cursor.execute(f"SELECT count(*) FROM {table}")
                [(found[table],)] = cursor.fetchall()
            return {table: count for table, count in found.items() if count}
    finally:
        connection.close()


def test_the_login_of_the_services_reads_no_table_as_itself(database: Database):
    connection = database.connect("om_service")
    connection.autocommit = True
    try:
        for table in metadata.tables:
            with connection.cursor() as cursor, pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")
    finally:
        connection.close()


def test_the_logins_have_their_passwords_and_the_superuser_has_none(database: Database):
    connection = database.connect("postgres")
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT rolname, rolpassword LIKE 'SCRAM-SHA-256$%', rolsuper FROM pg_authid WHERE rolcanlogin"
            )
            assert sorted(cursor.fetchall()) == [
                ("om_owner", True, False),
                ("om_service", True, False),
                ("postgres", None, True),
            ]
    finally:
        connection.close()


def test_the_script_stops_where_a_password_is_missing(database: Database):
    done = run_init(database.url, {"OM_OWNER_PASSWORD": "only one"})
    assert done.returncode == 3
    assert "ERROR" in done.stderr
