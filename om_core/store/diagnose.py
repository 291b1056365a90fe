"""A look at a database from outside, for `om doctor`: version, clock, roles, isolation, workers, overdue jobs.

Isolation is tried, not only read from the catalogue: rows of one tenant are written and looked for as another, in a
transaction that is rolled back.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from om_core.clock import SystemClock
from om_core.config.urls import normalise_database_url
from om_core.domain.job import WORKER_SEEN_S
from om_core.ports import WorkerRow
from om_core.store.columns import metadata
from om_core.store.engine import APP_ROLE, SYSTEM_ROLE, PostgresStore
from om_core.store.migrate import current_version
from om_core.store.tables import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

OVERDUE_S: Final = 30.0
"""A due job that nobody has taken for so long is stuck: sweeps look every few seconds."""
MIGRATE: Final = "run `om migrate`"

ROLE = sa.text("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = :role")
TABLES = sa.text("""
SELECT c.relname AS name, c.relrowsecurity AS enabled, c.relforcerowsecurity AS forced,
       pg_has_role(:app, c.relowner, 'MEMBER') AS owned,
       EXISTS (SELECT FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles)
                WHERE p.polrelid = c.oid AND r.rolname = :app) AS has_policy
  FROM pg_class c WHERE c.oid = ANY (SELECT to_regclass(name) FROM unnest(CAST(:names AS text[])) AS name)
""")
BECOME = sa.text("SELECT set_config('role', :role, true), set_config('om.tenant', :tenant, true)")
OVERDUE = sa.text("""
SELECT queue, count(*) AS count, extract(epoch FROM clock_timestamp() - min(run_at)) AS oldest_s FROM jobs
 WHERE state IN ('available', 'retryable') AND run_at < clock_timestamp() - :age * interval '1 second'
 GROUP BY queue ORDER BY queue
""")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something about roles or isolation that is wrong, and what to do."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """Due jobs of a queue that nobody takes: how many, and seconds since the oldest was due."""

    count: int
    oldest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What was seen. Workers, overdue and discarded jobs are empty where schema or roles are missing."""

    server_version: str
    schema_version: str | None
    login: str
    login_is_superuser: bool
    clock_ahead_s: float
    """Database clock less this machine's, in seconds."""
    missing_roles: tuple[str, ...]
    faults: tuple[Fault, ...] = ()
    tables_checked: int = 0
    workers: tuple[WorkerRow, ...] = ()
    overdue: tuple[tuple[str, Overdue], ...] = ()
    discarded: int = 0
    wanted_version: str = SCHEMA_VERSION


def diagnose(url: str) -> Diagnosis:
    """Look at the database as the services' login does.

    Raises:
        SQLAlchemyError: it cannot be reached.
    """
    engine = sa.create_engine(normalise_database_url(url), poolclass=sa.NullPool, connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            return _diagnose(connection, url)
    finally:
        engine.dispose()


def _diagnose(connection: sa.Connection, url: str) -> Diagnosis:
    version = current_version(connection)
    missing = tuple(
        role for role in (APP_ROLE, SYSTEM_ROLE) if connection.execute(ROLE, {"role": role}).first() is None
    )
    usable = version is not None and not missing
    faults = tuple(_faults(connection)) if usable else ()
    connection.rollback()
    login, superuser = connection.execute(
        sa.text("SELECT rolname, rolsuper FROM pg_roles WHERE rolname = session_user")
    ).one()
    workers, overdue, discarded = _work(url) if usable and not faults else ((), (), 0)
    return Diagnosis(
        server_version=str(connection.scalar(sa.text("SHOW server_version"))),
        schema_version=version,
        login=login,
        login_is_superuser=superuser,
        clock_ahead_s=_clock_ahead_s(connection),
        missing_roles=missing,
        faults=faults,
        tables_checked=len(tenant_tables()) if usable else 0,
        workers=workers,
        overdue=overdue,
        discarded=discarded,
    )


def tenant_tables() -> list[str]:
    """The tables whose rows belong to a tenant."""
    return sorted(table.name for table in metadata.tables.values() if "tenant_id" in table.columns)


def _clock_ahead_s(connection: sa.Connection) -> float:
    """The smallest of three readings: a busy machine delays some answers."""
    clock = SystemClock()
    readings: list[float] = []
    for _ in range(3):
        before = clock.now()
        theirs = connection.scalar(sa.text("SELECT clock_timestamp()"))
        middle = before + (clock.now() - before) / 2
        readings.append((theirs - middle).total_seconds())
    return min(readings, key=abs)


def _faults(connection: sa.Connection) -> Iterator[Fault]:
    for role in (APP_ROLE, SYSTEM_ROLE):
        superuser, bypass = connection.execute(ROLE, {"role": role}).one()
        if superuser or bypass:
            power = "SUPERUSER" if superuser else "BYPASSRLS"
            fix = f"ALTER ROLE {role} NO{power}"
            yield Fault(f"{role} has {power}: row-level security does not bind it", fix)
    yield from _table_faults(connection)
    yield from _isolation_faults(connection)


def _table_faults(connection: sa.Connection) -> Iterator[Fault]:
    """What the catalogue says about each table."""
    names = tenant_tables()
    rows = {row.name: row for row in connection.execute(TABLES, {"names": names, "app": APP_ROLE})}
    for name in names:
        row = rows.get(name)
        if row is None:
            yield Fault(f"the table {name} is missing", MIGRATE)
            continue
        if row.owned:
            yield Fault(f"{APP_ROLE} owns the table {name}, or is a member of its owner", "give it another owner")
        if not (row.enabled and row.forced):
            fix = f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY; ALTER TABLE {name} FORCE ROW LEVEL SECURITY"
            yield Fault(f"row-level security is not enabled and forced on {name}", fix)
        if not row.has_policy:
            yield Fault(f"{name} has no policy for {APP_ROLE}", MIGRATE)


def _isolation_faults(connection: sa.Connection) -> Iterator[Fault]:
    """What happens when it is tried; everything is rolled back."""
    ours, other = (f"doctor-{uuid.uuid4().hex}" for _ in range(2))
    add = sa.text("INSERT INTO memories (tenant_id, scope, scope_key) VALUES (:tenant, 'thread', :tenant)")
    seen = sa.text("SELECT count(*) FROM memories WHERE tenant_id = :tenant")
    try:
        _become(connection, APP_ROLE, ours)
        connection.execute(add, {"tenant": ours})
        if connection.scalar(seen, {"tenant": ours}) != 1:
            yield Fault("a tenant does not see its own rows", MIGRATE)
        _become(connection, APP_ROLE, other)
        if connection.scalar(seen, {"tenant": ours}):
            yield Fault("a tenant sees the rows of another", MIGRATE)
        if _succeeds(connection, add, {"tenant": f"{ours}-2"}):
            yield Fault("a tenant can write rows of another", MIGRATE)
        _become(connection, APP_ROLE, "")
        for name in tenant_tables():
            if connection.scalar(sa.text(f"SELECT EXISTS (SELECT FROM {name})")):
                yield Fault(f"without a tenant, rows of {name} are visible", MIGRATE)
        _become(connection, SYSTEM_ROLE, "")
        if _succeeds(connection, sa.text("SELECT parts FROM messages LIMIT 1"), {}):
            yield Fault(f"{SYSTEM_ROLE} can read content", MIGRATE)
    except sa_exc.ProgrammingError as error:
        reason = " ".join(str(error.orig).split())
        yield Fault(f"the login cannot work as {APP_ROLE} and {SYSTEM_ROLE}: {reason}", MIGRATE)
    finally:
        connection.rollback()


def _become(connection: sa.Connection, role: str, tenant: str) -> None:
    connection.execute(BECOME, {"role": role, "tenant": tenant})


def _succeeds(connection: sa.Connection, statement: sa.TextClause, values: dict[str, str]) -> bool:
    """Whether a statement that has to be refused is allowed."""
    savepoint = connection.begin_nested()
    try:
        connection.execute(statement, values)
    except sa_exc.ProgrammingError:
        return False
    finally:
        savepoint.rollback()
    return True


def _work(url: str) -> tuple[tuple[WorkerRow, ...], tuple[tuple[str, Overdue], ...], int]:
    store = PostgresStore(url, pool_size=1)
    try:
        workers = store.system.workers(max_age_s=WORKER_SEEN_S)
        with store.session(SYSTEM_ROLE, "") as session:
            overdue = tuple(
                (row["queue"], Overdue(row["count"], float(row["oldest_s"])))
                for row in session.rows(OVERDUE, {"age": OVERDUE_S})
            )
            discarded = session.scalar(sa.text("SELECT count(*) FROM jobs WHERE state = 'discarded'"))
    finally:
        store.close()
    return workers, overdue, int(discarded)
