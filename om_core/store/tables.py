"""The tables of DESIGN 3.1, with every rule the database can enforce. SQLAlchemy Core; migrations build the same.

Every row carries `tenant_id`, and every key and foreign key leads with it, so no row can point across tenants.
`json` (not `jsonb`) holds what must come back byte for byte.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

from om_core.store.columns import count, flag, id_column, json_column, metadata, one_of, tenant_column, time

SCHEMA_VERSION: Final = "0001"
"""The Alembic revision this code was written for."""

LIVE = "state IN ('available', 'running', 'retryable')"

memories = sa.Table(
    "memories",
    metadata,
    tenant_column(),
    id_column(),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("scope_key", sa.Text, nullable=False),
    json_column("config", "'{}'"),
    count("version"),
    count("generation"),
    count("log_tokens"),
    count("base_tokens"),
    count("next_position", 1),
    count("reflected_position"),
    count("log_version"),
    sa.Column("log_reason", sa.Text),
    sa.Column("buffered_generation", sa.BigInteger),
    sa.Column("repair_position", sa.BigInteger),
    sa.Column("stuck_log_tokens", sa.BigInteger),
    sa.Column("discarded_version", sa.BigInteger),
    time("created_at", now=True),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.UniqueConstraint("tenant_id", "scope", "scope_key"),
    one_of("scope", "thread", "resource"),
    sa.CheckConstraint("reflected_position < next_position", name="positions"),
    sa.CheckConstraint("log_tokens >= base_tokens AND base_tokens >= 0", name="tokens"),
    postgresql_with={"fillfactor": "70"},
)

threads = sa.Table(
    "threads",
    metadata,
    tenant_column(),
    id_column(),
    sa.Column("external_id", sa.Text, nullable=False),
    sa.Column("resource_id", sa.Text, nullable=False),
    sa.Column("memory_id", sa.BigInteger, nullable=False),
    sa.Column("title", sa.Text),
    sa.Column("title_seq", sa.BigInteger),
    json_column("metadata", "'{}'"),
    sa.Column("timezone", sa.Text),
    count("version"),
    count("head_seq"),
    count("buffered_seq"),
    count("observed_seq"),
    count("cut_seq"),
    count("pending_tokens"),
    count("unbuffered_tokens"),
    count("held_tokens"),
    count("stale_tokens"),
    json_column("open_calls", "'[]'"),
    count("turn"),
    flag("turn_open"),
    count("question_seq"),
    sa.Column("last_model", sa.Text),
    time("last_activity_at"),
    time("oldest_pending_at"),
    time("idle_due_at"),
    sa.Column("wait_latch_seq", sa.BigInteger),
    count("shown_from_seq"),
    count("shown_position"),
    count("shown_version"),
    sa.Column("pins", ARRAY(sa.BigInteger), nullable=False, server_default=sa.text("'{}'")),
    json_column("hints", "'{}'"),
    json_column("early_activation"),
    count("prefix_version"),
    sa.Column("prefix_reason", sa.Text),
    time("created_at", now=True),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.UniqueConstraint("tenant_id", "resource_id", "external_id"),
    sa.ForeignKeyConstraint(["tenant_id", "memory_id"], ["memories.tenant_id", "memories.id"]),
    sa.CheckConstraint(
        "head_seq >= buffered_seq AND buffered_seq >= observed_seq AND observed_seq >= 0", name="cursor_order"
    ),
    sa.CheckConstraint("cut_seq BETWEEN 0 AND head_seq AND question_seq BETWEEN 0 AND head_seq", name="seq_range"),
    sa.CheckConstraint(
        "pending_tokens >= unbuffered_tokens AND unbuffered_tokens >= held_tokens AND held_tokens >= 0"
        " AND stale_tokens >= 0",
        name="tokens",
    ),
    postgresql_with={"fillfactor": "70"},
)
sa.Index("threads_external_idx", threads.c.tenant_id, threads.c.external_id)
sa.Index("threads_memory_idx", threads.c.tenant_id, threads.c.memory_id)
sa.Index(
    "threads_pending_idx",
    threads.c.tenant_id,
    threads.c.memory_id,
    threads.c.idle_due_at,
    postgresql_where=sa.text("idle_due_at IS NOT NULL"),
)
sa.Index("threads_idle_due_idx", threads.c.idle_due_at, postgresql_where=sa.text("idle_due_at IS NOT NULL"))

messages = sa.Table(
    "messages",
    metadata,
    tenant_column(),
    sa.Column("thread_id", sa.BigInteger, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("client_id", sa.Text),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("author", sa.Text),
    json_column("parts"),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("fingerprint", BYTEA),
    time("created_at", nullable=False),
    time("stored_at", now=True),
    sa.Column("timezone", sa.Text),
    json_column("metadata"),
    sa.Column("turn", sa.BigInteger, nullable=False),
    sa.Column("continues", sa.BigInteger),
    # Of a row that a clone has copied: from which row, and the resource for which it was stored first. A removal
    # follows them, whoever owns the clone.
    sa.Column("copied_thread_id", sa.BigInteger),
    sa.Column("copied_seq", sa.BigInteger),
    sa.Column("copied_resource_id", sa.Text),
    time("removed_at"),
    sa.PrimaryKeyConstraint("tenant_id", "thread_id", "seq"),
    sa.ForeignKeyConstraint(["tenant_id", "thread_id"], ["threads.tenant_id", "threads.id"]),
    one_of("role", "user", "assistant", "tool", "system"),
    sa.CheckConstraint("seq > 0 AND tokens >= 0", name="seq"),
    sa.CheckConstraint("continues IS NULL OR (continues < seq AND client_id IS NULL)", name="continues"),
    sa.CheckConstraint("(copied_thread_id IS NULL) = (copied_seq IS NULL)", name="copied"),
    sa.CheckConstraint("(removed_at IS NULL) = (parts IS NOT NULL)", name="tombstone"),
)
sa.Index(
    "messages_client_id_key",
    messages.c.tenant_id,
    messages.c.thread_id,
    messages.c.client_id,
    unique=True,
    postgresql_where=sa.text("client_id IS NOT NULL"),
)
sa.Index(
    "messages_copied_idx",
    messages.c.tenant_id,
    messages.c.copied_thread_id,
    messages.c.copied_seq,
    postgresql_where=sa.text("copied_thread_id IS NOT NULL"),
)
sa.Index(
    "messages_copied_resource_idx",
    messages.c.tenant_id,
    messages.c.copied_resource_id,
    postgresql_where=sa.text("copied_resource_id IS NOT NULL"),
)
sa.Index("messages_fingerprint_idx", messages.c.tenant_id, messages.c.thread_id, messages.c.fingerprint)

chunks = sa.Table(
    "chunks",
    metadata,
    tenant_column(),
    id_column(),
    sa.Column("memory_id", sa.BigInteger, nullable=False),
    sa.Column("thread_id", sa.BigInteger, nullable=False),
    sa.Column("from_seq", sa.BigInteger, nullable=False),
    sa.Column("to_seq", sa.BigInteger, nullable=False),
    sa.Column("follows_seq", sa.BigInteger, sa.Computed("nullif(from_seq - 1, 0)", persisted=True)),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    flag("stale"),
    sa.Column("position", sa.BigInteger),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("message_tokens", sa.BigInteger, nullable=False),
    sa.Column("job_id", sa.BigInteger),
    sa.Column("attempt", sa.BigInteger),
    sa.Column("shared_chunk_id", sa.BigInteger),
    sa.Column("shown_chunks", ARRAY(sa.BigInteger), nullable=False, server_default=sa.text("'{}'")),
    sa.Column("shown_generation", sa.BigInteger),
    json_column("hints", "'{}'"),
    json_column("extracted", "'{}'"),
    sa.Column("model", sa.Text),
    sa.Column("prompt_version", sa.Text),
    sa.Column("cost_usd", sa.Numeric(16, 8)),
    time("created_at", now=True),
    time("activated_at"),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.ForeignKeyConstraint(["tenant_id", "memory_id"], ["memories.tenant_id", "memories.id"]),
    sa.ForeignKeyConstraint(["tenant_id", "thread_id"], ["threads.tenant_id", "threads.id"]),
    # Ranges tile: each starts where exactly one other ends, or at 1. With both ends unique and this chain, chunks of a
    # thread can neither overlap nor leave a gap, whatever the code does.
    sa.UniqueConstraint("tenant_id", "thread_id", "from_seq"),
    sa.UniqueConstraint("tenant_id", "thread_id", "to_seq"),
    sa.ForeignKeyConstraint(
        ["tenant_id", "thread_id", "follows_seq"],
        ["chunks.tenant_id", "chunks.thread_id", "chunks.to_seq"],
        name="chunks_tile_fkey",
    ),
    sa.UniqueConstraint("tenant_id", "memory_id", "position"),
    one_of("kind", "observed", "parked", "empty"),
    one_of("state", "buffered", "active"),
    sa.CheckConstraint("from_seq >= 1 AND from_seq <= to_seq", name="range"),
    sa.CheckConstraint("(state = 'active') = (position IS NOT NULL)", name="position"),
    sa.CheckConstraint("kind <> 'empty' OR (text = '' AND tokens = 0)", name="empty"),
    sa.CheckConstraint("shared_chunk_id IS NULL OR kind = 'empty'", name="shared"),
    sa.CheckConstraint("tokens >= 0 AND message_tokens >= 0", name="tokens"),
)
sa.Index("chunks_job_idx", chunks.c.tenant_id, chunks.c.job_id)
sa.Index("chunks_memory_idx", chunks.c.tenant_id, chunks.c.memory_id, chunks.c.id)
sa.Index(
    "chunks_buffered_idx",
    chunks.c.tenant_id,
    chunks.c.memory_id,
    chunks.c.id,
    postgresql_where=sa.text("position IS NULL"),
)

reflections = sa.Table(
    "reflections",
    metadata,
    tenant_column(),
    sa.Column("memory_id", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("base_generation", sa.BigInteger, nullable=False),
    sa.Column("through_position", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    json_column("extracted", "'{}'"),
    sa.Column("job_id", sa.BigInteger),
    sa.Column("attempt", sa.BigInteger),
    sa.Column("level", sa.BigInteger),
    sa.Column("model", sa.Text),
    sa.Column("prompt_version", sa.Text),
    sa.Column("cost_usd", sa.Numeric(16, 8)),
    time("created_at", now=True),
    time("activated_at"),
    sa.PrimaryKeyConstraint("tenant_id", "memory_id", "generation"),
    sa.ForeignKeyConstraint(["tenant_id", "memory_id"], ["memories.tenant_id", "memories.id"]),
    one_of("state", "buffered", "active", "superseded", "discarded", "erased"),
    sa.CheckConstraint("generation >= 1 AND base_generation >= 0 AND base_generation < generation", name="generation"),
    sa.CheckConstraint("through_position >= 0 AND tokens >= 0", name="through"),
)
sa.Index(
    "reflections_active_key",
    reflections.c.tenant_id,
    reflections.c.memory_id,
    unique=True,
    postgresql_where=sa.text("state = 'active'"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    tenant_column(),
    id_column(),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("thread", sa.Text, nullable=False),
    sa.Column("memory_id", sa.BigInteger, nullable=False),
    sa.Column("thread_id", sa.BigInteger),
    sa.Column("chunk_id", sa.BigInteger),
    sa.Column("from_seq", sa.BigInteger),
    sa.Column("to_seq", sa.BigInteger),
    sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'available'")),
    count("attempt"),
    count("failures"),
    count("expired_leases"),
    flag("awaited"),
    sa.Column("reason", sa.Text, nullable=False, server_default=sa.text("''")),
    time("run_at", now=True),
    time("rung_at"),
    count("rings"),
    sa.Column("lease_owner", sa.Text),
    time("lease_expires_at"),
    json_column("policy", "'{}'"),
    sa.Column("prompt_version", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("traceparent", sa.Text, nullable=False, server_default=sa.text("''")),
    json_column("input", "'{}'"),
    json_column("partial", "'[]'"),
    json_column("error"),
    count("input_tokens"),
    count("output_tokens"),
    sa.Column("cost_usd", sa.Numeric(16, 8), nullable=False, server_default=sa.text("0")),
    json_column("attempts", "'[]'"),
    sa.Column("models", ARRAY(sa.Text), nullable=False, server_default=sa.text("'{}'")),
    count("reserved_tokens"),
    sa.Column("reserved_usd", sa.Numeric(16, 8), nullable=False, server_default=sa.text("0")),
    time("created_at", now=True),
    time("started_at"),
    time("finished_at"),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.ForeignKeyConstraint(["tenant_id", "memory_id"], ["memories.tenant_id", "memories.id"]),
    sa.ForeignKeyConstraint(["tenant_id", "thread_id"], ["threads.tenant_id", "threads.id"]),
    sa.ForeignKeyConstraint(["tenant_id", "chunk_id"], ["chunks.tenant_id", "chunks.id"]),
    one_of("kind", "observe", "rebuild", "extract", "reflect", "index"),
    one_of("queue", "observation", "buffering", "reflection", "indexing", "maintenance"),
    one_of("state", "available", "running", "retryable", "completed", "discarded", "cancelled", "superseded"),
    sa.CheckConstraint(
        "(state = 'running') = (lease_owner IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)",
        name="lease",
    ),
    sa.CheckConstraint(
        "(state IN ('completed', 'discarded', 'cancelled', 'superseded')) = (finished_at IS NOT NULL)", name="finished"
    ),
    postgresql_with={"fillfactor": "70"},
)
sa.Index("jobs_live_key", jobs.c.tenant_id, jobs.c.target, jobs.c.kind, unique=True, postgresql_where=sa.text(LIVE))
sa.Index(
    "jobs_due_idx",
    jobs.c.queue,
    jobs.c.awaited.desc(),
    jobs.c.run_at,
    postgresql_where=sa.text("state IN ('available', 'retryable')"),
)
sa.Index(
    "jobs_due_tenant_idx",
    jobs.c.queue,
    jobs.c.tenant_id,
    jobs.c.awaited,
    jobs.c.run_at,
    postgresql_where=sa.text("state IN ('available', 'retryable')"),
)
sa.Index("jobs_discarded_idx", jobs.c.kind, postgresql_where=sa.text("state = 'discarded'"))
sa.Index("jobs_id_idx", jobs.c.id)
sa.Index("jobs_lease_idx", jobs.c.lease_expires_at, postgresql_where=sa.text("state = 'running'"))
sa.Index("jobs_thread_idx", jobs.c.tenant_id, jobs.c.thread_id)
sa.Index("jobs_state_idx", jobs.c.tenant_id, jobs.c.state, jobs.c.id)
