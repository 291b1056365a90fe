-- Roles and row-level security (DESIGN 3.2). `om_app` works for one tenant at a time, named in the transaction; without
-- a tenant it sees nothing. `om_system` finds work and holds leases, across tenants, and can read no content.

DO $$
BEGIN
    CREATE ROLE om_app NOLOGIN NOBYPASSRLS;
EXCEPTION WHEN duplicate_object THEN NULL;  -- roles belong to the server: another database may have made them
END $$;
DO $$
BEGIN
    CREATE ROLE om_system NOLOGIN NOBYPASSRLS;
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

DO $$
DECLARE
    v_table text;
BEGIN
    FOREACH v_table IN ARRAY ARRAY['memories', 'threads', 'messages', 'chunks', 'reflections', 'jobs', 'events', 'usage', 'spending',
                                   'extractions', 'working_memory', 'api_keys', 'webhooks', 'webhook_deliveries'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', v_table);
        EXECUTE format('CREATE POLICY tenant ON %I TO om_app USING (tenant_id = nullif(current_setting(''om.tenant'', true), ''''))',
                       v_table);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO om_app', v_table);
    END LOOP;
END $$;
GRANT SELECT ON workers TO om_app;

CREATE POLICY find_work ON jobs TO om_system USING (true);
CREATE POLICY find_work ON threads TO om_system USING (true);
CREATE POLICY find_key ON api_keys TO om_system USING (true);
CREATE POLICY find_work ON webhooks TO om_system USING (true);
CREATE POLICY find_news ON events TO om_system USING (true);
CREATE POLICY sums ON usage TO om_system USING (true);
CREATE POLICY sums ON spending TO om_system USING (true);
CREATE POLICY sizes ON memories TO om_system USING (true);
CREATE POLICY sizes ON chunks TO om_system USING (true);
GRANT SELECT (tenant_id, id, kind, queue, target, thread, memory_id, thread_id, chunk_id, from_seq, to_seq, state, attempt, failures,
              expired_leases, awaited, run_at, rung_at, rings, lease_owner, lease_expires_at, models, reserved_tokens,
              reserved_usd, input_tokens, output_tokens, cost_usd, created_at, started_at, finished_at) ON jobs TO om_system;
GRANT UPDATE (state, attempt, from_seq, to_seq, run_at, rung_at, rings, lease_owner, lease_expires_at, started_at, reserved_tokens,
              reserved_usd) ON jobs TO om_system;
GRANT SELECT (tenant_id, id, resource_id, memory_id, head_seq, buffered_seq, observed_seq, cut_seq, pending_tokens,
              unbuffered_tokens, held_tokens, stale_tokens, last_activity_at, oldest_pending_at, idle_due_at)
   ON threads TO om_system;
GRANT UPDATE (idle_due_at) ON threads TO om_system;
GRANT SELECT (tenant_id, id, hash, resource_id, thread, read_only, expires_at, revoked_at) ON api_keys TO om_system;
GRANT SELECT (tenant_id, xid, id, thread_id, resource_id) ON events TO om_system;
GRANT SELECT (tenant_id, id, resource_id, xid, number, due_at) ON webhooks TO om_system;
GRANT UPDATE (due_at) ON webhooks TO om_system;
GRANT SELECT ON usage, spending TO om_system;
GRANT SELECT (tenant_id, id, log_tokens) ON memories TO om_system;
GRANT SELECT (tenant_id, id, message_tokens) ON chunks TO om_system;
GRANT SELECT, INSERT, UPDATE ON breakers TO om_system;
GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO om_system;
