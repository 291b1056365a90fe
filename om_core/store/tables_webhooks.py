"""Tables of webhooks (API 3)."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from om_core.store.columns import Xid8, id_column, metadata, tenant_column, time

webhooks = sa.Table(
    "webhooks",
    metadata,
    tenant_column(),
    id_column(),
    sa.Column("url", sa.Text, nullable=False),
    # Kept as it is: each delivery is signed with it. Row-level security shows it to its tenant alone.
    sa.Column("secret", sa.Text, nullable=False),
    sa.Column("types", ARRAY(sa.Text), nullable=False),
    sa.Column("resource_id", sa.Text),
    # The last event that was taken.
    sa.Column("xid", Xid8(), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False, server_default=sa.text("0")),
    time("due_at", now=True),
    sa.Column("last_error", sa.Text),
    time("created_at", now=True),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
)
sa.Index("webhooks_due_idx", webhooks.c.due_at)

webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    tenant_column(),
    id_column(),
    sa.Column("webhook_id", sa.BigInteger, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("status", sa.Integer),
    sa.Column("error", sa.Text),
    sa.Column("duration_ms", sa.Integer, nullable=False),
    time("created_at", now=True),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.ForeignKeyConstraint(["tenant_id", "webhook_id"], ["webhooks.tenant_id", "webhooks.id"], ondelete="CASCADE"),
)
sa.Index(
    "webhook_deliveries_webhook_idx",
    webhook_deliveries.c.tenant_id,
    webhook_deliveries.c.webhook_id,
    webhook_deliveries.c.id,
)
