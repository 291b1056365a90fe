"""`om migrate`: the schema's version before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from om_core.config import Settings


def migrate(settings: Settings) -> None:
    """Upgrade the database that settings name, else the embedded one that runs; print both versions.

    Raises:
        SetupError: no database is named and none runs, or the login lacks a right.
    """
    from api.cli.connect import joined
    from api.cli.output import say
    from om_core.config import mask_url
    from om_core.store.migrate import upgrade

    admin, app = settings.database_admin_url, settings.database_url
    if admin is not None:
        admin_url, app_url = admin.reveal(), app.reveal() if app else None
        before = version_of(admin_url)
        after = upgrade(admin_url, app_url=app_url)
    else:
        with joined(settings) as (_, located):
            admin_url = located.database_url
            before = version_of(admin_url)
            after = upgrade(admin_url)
    say(f"database {mask_url(admin_url)}")
    say(f"schema version {before or 'none'} -> {after}" if before != after else f"schema version {after}, up to date")


def version_of(url: str) -> str | None:
    """The schema's version; None for a database without our tables."""
    import sqlalchemy as sa

    from om_core.config.urls import normalise_database_url
    from om_core.store.migrate import current_version

    engine = sa.create_engine(normalise_database_url(url), poolclass=sa.NullPool, connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            return current_version(connection)
    finally:
        engine.dispose()
