"""Schema versions: upgrade (`om migrate`) and the check at start-up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from om_core.config.urls import normalise_database_url
from om_core.domain.errors import SchemaVersionError, SetupError
from om_core.store.engine import APP_ROLE, SYSTEM_ROLE
from om_core.store.tables import SCHEMA_VERSION

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
LOCK_KEY = 7_305_411_209
"""Advisory lock held while migrating: several processes may start at once."""


def alembic_config(connection: sa.Connection) -> Config:
    """Alembic's settings, without a file: scripts beside this module, the connection given."""
    from alembic.config import Config  # Alembic is needed only to migrate

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def upgrade(admin_url: str, *, app_url: str | None = None) -> str:
    """Bring the schema to the version of this code; the version it has then.

    Args:
        admin_url: a login that may create tables and roles.
        app_url: the login that services use; it is granted both roles.

    Raises:
        SetupError: the login lacks a right; the text names it.
    """
    from alembic import command

    engine = sa.create_engine(
        normalise_database_url(admin_url), poolclass=sa.NullPool, connect_args={"connect_timeout": 5}
    )
    try:
        with engine.connect() as connection:
            connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": LOCK_KEY})
            connection.commit()
            command.upgrade(alembic_config(connection), "head")
            connection.commit()
            _grant_roles(connection, app_url)
            connection.commit()
            connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK_KEY})
            return current_version(connection) or ""
    except sa_exc.ProgrammingError as error:
        if "permission denied" in str(error) or "must be" in str(error):
            msg = f"om migrate: {str(error.orig).strip()}. Give a login with that right in OM_DATABASE_ADMIN_URL"
            raise SetupError(msg) from error
        raise
    finally:
        engine.dispose()


def _grant_roles(connection: sa.Connection, app_url: str | None) -> None:
    """Let the services' login become either role, and read the schema's version as itself.

    Without inheritance: with the rights of both roles at once it would see what neither of them may see.
    """
    login = sa.engine.make_url(normalise_database_url(app_url)).username if app_url else None
    grantee = connection.dialect.identifier_preparer.quote(login) if login else "CURRENT_USER"
    server = int(connection.scalar(sa.text("SHOW server_version_num")))
    options = " WITH INHERIT FALSE, SET TRUE" if server >= 160_000 else ""  # older servers: make the login NOINHERIT
    for role in (APP_ROLE, SYSTEM_ROLE):
        connection.execute(sa.text(f"GRANT {role} TO {grantee}{options}"))
    connection.execute(sa.text(f"GRANT SELECT ON alembic_version TO {grantee}"))


def current_version(connection: sa.Connection) -> str | None:
    """The schema's version, or None for a database without our tables."""
    if not connection.scalar(sa.text("SELECT to_regclass('alembic_version') IS NOT NULL")):
        return None
    version: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return version


def check_schema(engine: sa.Engine) -> None:
    """Compare the database's version with this code's.

    Raises:
        SchemaVersionError: they differ; the text names both and the command that fixes it.
    """
    with engine.connect() as connection:
        version = current_version(connection)
    if version is None:
        msg = f"the database has no schema yet; this code needs version {SCHEMA_VERSION}: run `om migrate`"
    elif version < SCHEMA_VERSION:
        msg = f"the database schema is version {version}, this code needs {SCHEMA_VERSION}: run `om migrate`"
    elif version > SCHEMA_VERSION:
        msg = f"the database schema is version {version}, newer than this code's {SCHEMA_VERSION}: upgrade om-pipeline"
    else:
        return
    raise SchemaVersionError(msg)
