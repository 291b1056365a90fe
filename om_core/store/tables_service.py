"""Tables beside the memory itself: events, usage, workers, extracted values, working memory, keys (DESIGN 3.1)."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

from om_core.store.columns import Xid8, count, id_column, json_column, metadata, one_of, tenant_column, time

events = sa.Table(
    "events",
    metadata,
    tenant_column(),
    id_column(),
    # With the writing transaction's id a stream can resume without passing over an open transaction (API 4).
    sa.Column("xid", Xid8(), nullable=False, server_default=sa.text("pg_current_xact_id()")),
    sa.Column("thread_id", sa.BigInteger, nullable=False),
    sa.Column("resource_id", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    json_column("payload", "'{}'"),
    time("created_at", now=True),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.ForeignKeyConstraint(["tenant_id", "thread_id"], ["threads.tenant_id", "threads.id"]),
)
sa.Index("events_thread_idx", events.c.tenant_id, events.c.thread_id, events.c.xid, events.c.id)
sa.Index("events_resource_idx", events.c.tenant_id, events.c.resource_id, events.c.xid, events.c.id)
sa.Index("events_settled_idx", events.c.xid, events.c.id)  # what is new, for the streams of all tenants

usage = sa.Table(
    "usage",
    metadata,
    tenant_column(),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("thread_id", sa.BigInteger, nullable=False),
    sa.Column("resource_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    count("calls"),
    count("input_tokens"),
    count("output_tokens"),
    sa.Column("cost_usd", sa.Numeric(16, 8), nullable=False, server_default=sa.text("0")),
    # No foreign key to threads: what was spent stays booked when a thread is deleted.
    sa.PrimaryKeyConstraint("tenant_id", "day", "thread_id", "kind", "model"),
)

spending = sa.Table(
    "spending",
    metadata,
    # Today's sums of a tenant (scope_key '') and of each resource, for budgets: `usage` has a row per thread.
    tenant_column(),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("scope_key", sa.Text, nullable=False),
    count("tokens"),
    sa.Column("cost_usd", sa.Numeric(16, 8), nullable=False, server_default=sa.text("0")),
    sa.PrimaryKeyConstraint("tenant_id", "day", "scope", "scope_key"),
    one_of("scope", "resource", "tenant"),
    postgresql_with={"fillfactor": "50"},
)

breakers = sa.Table(
    "breakers",
    metadata,
    # Of no tenant: one row per model that ever failed, shared by all workers (DESIGN 5).
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'closed'")),
    count("failures"),
    count("openings"),
    time("opened_until"),
    sa.Column("probe_job", sa.BigInteger),
    sa.Column("probe_attempt", sa.BigInteger),
    time("updated_at", now=True),
    one_of("state", "closed", "open", "half_open"),
    sa.CheckConstraint("(state = 'closed') = (opened_until IS NULL)", name="opened"),
)

workers = sa.Table(
    "workers",
    metadata,
    # Of no tenant: one row per worker process, to know whether anybody is there (DESIGN 6.4).
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("queues", ARRAY(sa.Text), nullable=False),
    count("slots"),
    count("running"),
    sa.Column("version", sa.Text, nullable=False, server_default=sa.text("''")),
    time("started_at", now=True),
    time("seen_at", now=True),
)

extractions = sa.Table(
    "extractions",
    metadata,
    tenant_column(),
    sa.Column("memory_id", sa.BigInteger, nullable=False),
    sa.Column("slug", sa.Text, nullable=False),
    json_column("value"),
    sa.Column("signal", sa.Text),
    sa.Column("error", sa.Text),
    # Where the value comes from, for whoever removes messages: a chunk's range of one thread, or a generation.
    sa.Column("thread_id", sa.BigInteger),
    sa.Column("chunk_id", sa.BigInteger),
    sa.Column("generation", sa.BigInteger),
    sa.Column("job_id", sa.BigInteger),
    sa.Column("from_seq", sa.BigInteger),
    sa.Column("to_seq", sa.BigInteger),
    time("updated_at", now=True),
    sa.PrimaryKeyConstraint("tenant_id", "memory_id", "slug"),
    sa.ForeignKeyConstraint(["tenant_id", "memory_id"], ["memories.tenant_id", "memories.id"]),
)

working_memory = sa.Table(
    "working_memory",
    metadata,
    tenant_column(),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("scope_key", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    # The version it was made from, and the chunk whose messages it was made from (null: a caller's or an agent's text).
    sa.Column("base_version", sa.BigInteger),
    sa.Column("thread_id", sa.BigInteger),
    sa.Column("chunk_id", sa.BigInteger),
    sa.Column("job_id", sa.BigInteger),
    sa.Column("from_seq", sa.BigInteger),
    sa.Column("to_seq", sa.BigInteger),
    time("created_at", now=True),
    sa.PrimaryKeyConstraint("tenant_id", "scope", "scope_key", "version"),
    one_of("scope", "thread", "resource"),
    one_of("format", "markdown", "json"),
    one_of("source", "caller", "agent", "observer"),
    sa.CheckConstraint("version >= 1", name="version"),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    tenant_column(),
    id_column(),
    sa.Column("prefix", sa.Text, nullable=False),
    sa.Column("hash", BYTEA, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("resource_id", sa.Text),
    sa.Column("thread", sa.Text),
    sa.Column("read_only", sa.Boolean, nullable=False, server_default=sa.text("false")),
    time("created_at", now=True),
    time("expires_at"),
    time("revoked_at"),
    time("last_used_at"),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.UniqueConstraint("hash"),
    sa.CheckConstraint("thread IS NULL OR resource_id IS NOT NULL", name="reach"),
)
