-- Tables of DESIGN 3.1, as `om_core.store.tables` and `tables_service` describe them (a test compares the two).

CREATE TABLE api_keys (
    tenant_id TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    prefix TEXT NOT NULL,
    hash BYTEA NOT NULL,
    name TEXT NOT NULL,
    resource_id TEXT,
    thread TEXT,
    read_only BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT api_keys_hash_key UNIQUE (hash),
    CONSTRAINT api_keys_reach_check CHECK (thread IS NULL OR resource_id IS NOT NULL)
);


CREATE TABLE memories (
    tenant_id TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    scope TEXT NOT NULL,
    scope_key TEXT NOT NULL,
    config JSON DEFAULT '{}' NOT NULL,
    version BIGINT DEFAULT 0 NOT NULL,
    generation BIGINT DEFAULT 0 NOT NULL,
    log_tokens BIGINT DEFAULT 0 NOT NULL,
    base_tokens BIGINT DEFAULT 0 NOT NULL,
    next_position BIGINT DEFAULT 1 NOT NULL,
    reflected_position BIGINT DEFAULT 0 NOT NULL,
    log_version BIGINT DEFAULT 0 NOT NULL,
    log_reason TEXT,
    buffered_generation BIGINT,
    repair_position BIGINT,
    stuck_log_tokens BIGINT,
    discarded_version BIGINT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT memories_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT memories_tenant_id_scope_scope_key_key UNIQUE (tenant_id, scope, scope_key),
    CONSTRAINT memories_scope_check CHECK (scope IN ('thread', 'resource')),
    CONSTRAINT memories_positions_check CHECK (reflected_position < next_position),
    CONSTRAINT memories_tokens_check CHECK (log_tokens >= base_tokens AND base_tokens >= 0)
)
 WITH (fillfactor = 70);


CREATE TABLE usage (
    tenant_id TEXT NOT NULL,
    day DATE NOT NULL,
    thread_id BIGINT NOT NULL,
    resource_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    calls BIGINT DEFAULT 0 NOT NULL,
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    cost_usd NUMERIC(16, 8) DEFAULT 0 NOT NULL,
    CONSTRAINT usage_pkey PRIMARY KEY (tenant_id, day, thread_id, kind, model)
);


CREATE TABLE spending (
    tenant_id TEXT NOT NULL,
    day DATE NOT NULL,
    scope TEXT NOT NULL,
    scope_key TEXT NOT NULL,
    tokens BIGINT DEFAULT 0 NOT NULL,
    cost_usd NUMERIC(16, 8) DEFAULT 0 NOT NULL,
    CONSTRAINT spending_pkey PRIMARY KEY (tenant_id, day, scope, scope_key),
    CONSTRAINT spending_scope_check CHECK (scope IN ('resource', 'tenant'))
)
 WITH (fillfactor = 50);


CREATE TABLE breakers (
    model TEXT NOT NULL,
    state TEXT DEFAULT 'closed' NOT NULL,
    failures BIGINT DEFAULT 0 NOT NULL,
    openings BIGINT DEFAULT 0 NOT NULL,
    opened_until TIMESTAMP WITH TIME ZONE,
    probe_job BIGINT,
    probe_attempt BIGINT,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT breakers_pkey PRIMARY KEY (model),
    CONSTRAINT breakers_state_check CHECK (state IN ('closed', 'open', 'half_open')),
    CONSTRAINT breakers_opened_check CHECK ((state = 'closed') = (opened_until IS NULL))
);


CREATE TABLE workers (
    name TEXT NOT NULL,
    queues TEXT[] NOT NULL,
    slots BIGINT DEFAULT 0 NOT NULL,
    running BIGINT DEFAULT 0 NOT NULL,
    version TEXT DEFAULT '' NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT workers_pkey PRIMARY KEY (name)
);


CREATE TABLE working_memory (
    tenant_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    scope_key TEXT NOT NULL,
    version BIGINT NOT NULL,
    format TEXT NOT NULL,
    content TEXT NOT NULL,
    source TEXT NOT NULL,
    base_version BIGINT,
    thread_id BIGINT,
    chunk_id BIGINT,
    job_id BIGINT,
    from_seq BIGINT,
    to_seq BIGINT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT working_memory_pkey PRIMARY KEY (tenant_id, scope, scope_key, version),
    CONSTRAINT working_memory_scope_check CHECK (scope IN ('thread', 'resource')),
    CONSTRAINT working_memory_format_check CHECK (format IN ('markdown', 'json')),
    CONSTRAINT working_memory_source_check CHECK (source IN ('caller', 'agent', 'observer')),
    CONSTRAINT working_memory_version_check CHECK (version >= 1)
);


CREATE TABLE extractions (
    tenant_id TEXT NOT NULL,
    memory_id BIGINT NOT NULL,
    slug TEXT NOT NULL,
    value JSON,
    signal TEXT,
    error TEXT,
    thread_id BIGINT,
    chunk_id BIGINT,
    generation BIGINT,
    job_id BIGINT,
    from_seq BIGINT,
    to_seq BIGINT,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT extractions_pkey PRIMARY KEY (tenant_id, memory_id, slug),
    CONSTRAINT extractions_tenant_id_memory_id_fkey FOREIGN KEY(tenant_id, memory_id) REFERENCES memories (tenant_id, id)
);


CREATE TABLE reflections (
    tenant_id TEXT NOT NULL,
    memory_id BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    base_generation BIGINT NOT NULL,
    through_position BIGINT NOT NULL,
    state TEXT NOT NULL,
    text TEXT NOT NULL,
    tokens BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    extracted JSON DEFAULT '{}' NOT NULL,
    job_id BIGINT,
    attempt BIGINT,
    level BIGINT,
    model TEXT,
    prompt_version TEXT,
    cost_usd NUMERIC(16, 8),
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    activated_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT reflections_pkey PRIMARY KEY (tenant_id, memory_id, generation),
    CONSTRAINT reflections_tenant_id_memory_id_fkey FOREIGN KEY(tenant_id, memory_id) REFERENCES memories (tenant_id, id),
    CONSTRAINT reflections_state_check CHECK (state IN ('buffered', 'active', 'superseded', 'discarded', 'erased')),
    CONSTRAINT reflections_generation_check CHECK (generation >= 1 AND base_generation >= 0 AND base_generation < generation),
    CONSTRAINT reflections_through_check CHECK (through_position >= 0 AND tokens >= 0)
);

CREATE UNIQUE INDEX reflections_active_key ON reflections (tenant_id, memory_id) WHERE state = 'active';

CREATE TABLE threads (
    tenant_id TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    external_id TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    memory_id BIGINT NOT NULL,
    title TEXT,
    title_seq BIGINT,
    metadata JSON DEFAULT '{}' NOT NULL,
    timezone TEXT,
    version BIGINT DEFAULT 0 NOT NULL,
    head_seq BIGINT DEFAULT 0 NOT NULL,
    buffered_seq BIGINT DEFAULT 0 NOT NULL,
    observed_seq BIGINT DEFAULT 0 NOT NULL,
    cut_seq BIGINT DEFAULT 0 NOT NULL,
    pending_tokens BIGINT DEFAULT 0 NOT NULL,
    unbuffered_tokens BIGINT DEFAULT 0 NOT NULL,
    held_tokens BIGINT DEFAULT 0 NOT NULL,
    stale_tokens BIGINT DEFAULT 0 NOT NULL,
    open_calls JSON DEFAULT '[]' NOT NULL,
    turn BIGINT DEFAULT 0 NOT NULL,
    turn_open BOOLEAN DEFAULT false NOT NULL,
    question_seq BIGINT DEFAULT 0 NOT NULL,
    last_model TEXT,
    last_activity_at TIMESTAMP WITH TIME ZONE,
    oldest_pending_at TIMESTAMP WITH TIME ZONE,
    idle_due_at TIMESTAMP WITH TIME ZONE,
    wait_latch_seq BIGINT,
    shown_from_seq BIGINT DEFAULT 0 NOT NULL,
    shown_position BIGINT DEFAULT 0 NOT NULL,
    shown_version BIGINT DEFAULT 0 NOT NULL,
    pins BIGINT[] DEFAULT '{}' NOT NULL,
    hints JSON DEFAULT '{}' NOT NULL,
    early_activation JSON,
    prefix_version BIGINT DEFAULT 0 NOT NULL,
    prefix_reason TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT threads_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT threads_tenant_id_resource_id_external_id_key UNIQUE (tenant_id, resource_id, external_id),
    CONSTRAINT threads_tenant_id_memory_id_fkey FOREIGN KEY(tenant_id, memory_id) REFERENCES memories (tenant_id, id),
    CONSTRAINT threads_cursor_order_check CHECK (head_seq >= buffered_seq AND buffered_seq >= observed_seq AND observed_seq >= 0),
    CONSTRAINT threads_seq_range_check CHECK (cut_seq BETWEEN 0 AND head_seq AND question_seq BETWEEN 0 AND head_seq),
    CONSTRAINT threads_tokens_check CHECK (pending_tokens >= unbuffered_tokens AND unbuffered_tokens >= held_tokens AND held_tokens >= 0 AND stale_tokens >= 0)
)
 WITH (fillfactor = 70);

CREATE INDEX threads_external_idx ON threads (tenant_id, external_id);
CREATE INDEX threads_idle_due_idx ON threads (idle_due_at) WHERE idle_due_at IS NOT NULL;
CREATE INDEX threads_memory_idx ON threads (tenant_id, memory_id);
CREATE INDEX threads_pending_idx ON threads (tenant_id, memory_id, idle_due_at) WHERE idle_due_at IS NOT NULL;

CREATE TABLE chunks (
    tenant_id TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    memory_id BIGINT NOT NULL,
    thread_id BIGINT NOT NULL,
    from_seq BIGINT NOT NULL,
    to_seq BIGINT NOT NULL,
    follows_seq BIGINT GENERATED ALWAYS AS (nullif(from_seq - 1, 0)) STORED,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    stale BOOLEAN DEFAULT false NOT NULL,
    position BIGINT,
    text TEXT NOT NULL,
    tokens BIGINT NOT NULL,
    message_tokens BIGINT NOT NULL,
    job_id BIGINT,
    attempt BIGINT,
    shared_chunk_id BIGINT,
    shown_chunks BIGINT[] DEFAULT '{}' NOT NULL,
    shown_generation BIGINT,
    hints JSON DEFAULT '{}' NOT NULL,
    extracted JSON DEFAULT '{}' NOT NULL,
    model TEXT,
    prompt_version TEXT,
    cost_usd NUMERIC(16, 8),
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    activated_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT chunks_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT chunks_tenant_id_memory_id_fkey FOREIGN KEY(tenant_id, memory_id) REFERENCES memories (tenant_id, id),
    CONSTRAINT chunks_tenant_id_thread_id_fkey FOREIGN KEY(tenant_id, thread_id) REFERENCES threads (tenant_id, id),
    CONSTRAINT chunks_tenant_id_thread_id_from_seq_key UNIQUE (tenant_id, thread_id, from_seq),
    CONSTRAINT chunks_tenant_id_thread_id_to_seq_key UNIQUE (tenant_id, thread_id, to_seq),
    CONSTRAINT chunks_tile_fkey FOREIGN KEY(tenant_id, thread_id, follows_seq) REFERENCES chunks (tenant_id, thread_id, to_seq),
    CONSTRAINT chunks_tenant_id_memory_id_position_key UNIQUE (tenant_id, memory_id, position),
    CONSTRAINT chunks_kind_check CHECK (kind IN ('observed', 'parked', 'empty')),
    CONSTRAINT chunks_state_check CHECK (state IN ('buffered', 'active')),
    CONSTRAINT chunks_range_check CHECK (from_seq >= 1 AND from_seq <= to_seq),
    CONSTRAINT chunks_position_check CHECK ((state = 'active') = (position IS NOT NULL)),
    CONSTRAINT chunks_empty_check CHECK (kind <> 'empty' OR (text = '' AND tokens = 0)),
    CONSTRAINT chunks_shared_check CHECK (shared_chunk_id IS NULL OR kind = 'empty'),
    CONSTRAINT chunks_tokens_check CHECK (tokens >= 0 AND message_tokens >= 0)
);

CREATE INDEX chunks_job_idx ON chunks (tenant_id, job_id);
CREATE INDEX chunks_memory_idx ON chunks (tenant_id, memory_id, id);
CREATE INDEX chunks_buffered_idx ON chunks (tenant_id, memory_id, id) WHERE position IS NULL;

CREATE TABLE events (
    tenant_id TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    thread_id BIGINT NOT NULL,
    resource_id TEXT NOT NULL,
    type TEXT NOT NULL,
    payload JSON DEFAULT '{}' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT events_tenant_id_thread_id_fkey FOREIGN KEY(tenant_id, thread_id) REFERENCES threads (tenant_id, id)
);

CREATE INDEX events_resource_idx ON events (tenant_id, resource_id, xid, id);
CREATE INDEX events_settled_idx ON events (xid, id);
CREATE INDEX events_thread_idx ON events (tenant_id, thread_id, xid, id);

CREATE TABLE messages (
    tenant_id TEXT NOT NULL,
    thread_id BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    client_id TEXT,
    role TEXT NOT NULL,
    author TEXT,
    parts JSON,
    tokens BIGINT NOT NULL,
    fingerprint BYTEA,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    stored_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    timezone TEXT,
    metadata JSON,
    turn BIGINT NOT NULL,
    continues BIGINT,
    copied_thread_id BIGINT,
    copied_seq BIGINT,
    copied_resource_id TEXT,
    removed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT messages_pkey PRIMARY KEY (tenant_id, thread_id, seq),
    CONSTRAINT messages_tenant_id_thread_id_fkey FOREIGN KEY(tenant_id, thread_id) REFERENCES threads (tenant_id, id),
    CONSTRAINT messages_role_check CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    CONSTRAINT messages_seq_check CHECK (seq > 0 AND tokens >= 0),
    CONSTRAINT messages_continues_check CHECK (continues IS NULL OR (continues < seq AND client_id IS NULL)),
    CONSTRAINT messages_copied_check CHECK ((copied_thread_id IS NULL) = (copied_seq IS NULL)),
    CONSTRAINT messages_tombstone_check CHECK ((removed_at IS NULL) = (parts IS NOT NULL))
);

CREATE UNIQUE INDEX messages_client_id_key ON messages (tenant_id, thread_id, client_id) WHERE client_id IS NOT NULL;
CREATE INDEX messages_copied_idx ON messages (tenant_id, copied_thread_id, copied_seq) WHERE copied_thread_id IS NOT NULL;
CREATE INDEX messages_copied_resource_idx ON messages (tenant_id, copied_resource_id) WHERE copied_resource_id IS NOT NULL;
CREATE INDEX messages_fingerprint_idx ON messages (tenant_id, thread_id, fingerprint);

CREATE TABLE jobs (
    tenant_id TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    target TEXT NOT NULL,
    thread TEXT NOT NULL,
    memory_id BIGINT NOT NULL,
    thread_id BIGINT,
    chunk_id BIGINT,
    from_seq BIGINT,
    to_seq BIGINT,
    state TEXT DEFAULT 'available' NOT NULL,
    attempt BIGINT DEFAULT 0 NOT NULL,
    failures BIGINT DEFAULT 0 NOT NULL,
    expired_leases BIGINT DEFAULT 0 NOT NULL,
    awaited BOOLEAN DEFAULT false NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    run_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    rung_at TIMESTAMP WITH TIME ZONE,
    rings BIGINT DEFAULT 0 NOT NULL,
    lease_owner TEXT,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    policy JSON DEFAULT '{}' NOT NULL,
    prompt_version TEXT DEFAULT '' NOT NULL,
    traceparent TEXT DEFAULT '' NOT NULL,
    input JSON DEFAULT '{}' NOT NULL,
    partial JSON DEFAULT '[]' NOT NULL,
    error JSON,
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    cost_usd NUMERIC(16, 8) DEFAULT 0 NOT NULL,
    attempts JSON DEFAULT '[]' NOT NULL,
    models TEXT[] DEFAULT '{}' NOT NULL,
    reserved_tokens BIGINT DEFAULT 0 NOT NULL,
    reserved_usd NUMERIC(16, 8) DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT jobs_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT jobs_tenant_id_memory_id_fkey FOREIGN KEY(tenant_id, memory_id) REFERENCES memories (tenant_id, id),
    CONSTRAINT jobs_tenant_id_thread_id_fkey FOREIGN KEY(tenant_id, thread_id) REFERENCES threads (tenant_id, id),
    CONSTRAINT jobs_tenant_id_chunk_id_fkey FOREIGN KEY(tenant_id, chunk_id) REFERENCES chunks (tenant_id, id),
    CONSTRAINT jobs_kind_check CHECK (kind IN ('observe', 'rebuild', 'extract', 'reflect', 'index')),
    CONSTRAINT jobs_queue_check CHECK (queue IN ('observation', 'buffering', 'reflection', 'indexing', 'maintenance')),
    CONSTRAINT jobs_state_check CHECK (state IN ('available', 'running', 'retryable', 'completed', 'discarded', 'cancelled', 'superseded')),
    CONSTRAINT jobs_lease_check CHECK ((state = 'running') = (lease_owner IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT jobs_finished_check CHECK ((state IN ('completed', 'discarded', 'cancelled', 'superseded')) = (finished_at IS NOT NULL))
)
 WITH (fillfactor = 70);

CREATE INDEX jobs_due_idx ON jobs (queue, awaited DESC, run_at) WHERE state IN ('available', 'retryable');
CREATE INDEX jobs_due_tenant_idx ON jobs (queue, tenant_id, awaited, run_at) WHERE state IN ('available', 'retryable');
CREATE INDEX jobs_discarded_idx ON jobs (kind) WHERE state = 'discarded';
CREATE INDEX jobs_id_idx ON jobs (id);
CREATE INDEX jobs_lease_idx ON jobs (lease_expires_at) WHERE state = 'running';
CREATE UNIQUE INDEX jobs_live_key ON jobs (tenant_id, target, kind) WHERE state IN ('available', 'running', 'retryable');
CREATE INDEX jobs_state_idx ON jobs (tenant_id, state, id);
CREATE INDEX jobs_thread_idx ON jobs (tenant_id, thread_id);

CREATE TABLE webhooks (
    tenant_id TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    types TEXT[] NOT NULL,
    resource_id TEXT,
    xid xid8 NOT NULL,
    number BIGINT NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    last_error TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT webhooks_pkey PRIMARY KEY (tenant_id, id)
);

CREATE INDEX webhooks_due_idx ON webhooks (due_at);

CREATE TABLE webhook_deliveries (
    tenant_id TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    webhook_id BIGINT NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    status INTEGER,
    error TEXT,
    duration_ms INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT webhook_deliveries_tenant_id_webhook_id_fkey FOREIGN KEY(tenant_id, webhook_id) REFERENCES webhooks (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX webhook_deliveries_webhook_idx ON webhook_deliveries (tenant_id, webhook_id, id);
