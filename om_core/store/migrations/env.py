"""Alembic's entry: runs on the connection that `om_core.store.migrate` hands over."""

from __future__ import annotations

from alembic import context

from om_core.store import tables_service, tables_webhooks  # noqa: F401 - register their tables with the metadata
from om_core.store.columns import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    compare_type=True,
    compare_server_default=False,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
