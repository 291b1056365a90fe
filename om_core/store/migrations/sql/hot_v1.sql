-- The two statements of every step (DESIGN 3.2). PL/pgSQL, so that plans are made once per connection, also behind a
-- transaction pooler. Invoker's rights: row-level security binds inside as outside.

-- Lock a thread and read, in later statements with fresh snapshots, what an append needs to decide.
CREATE FUNCTION om_lock_thread_v1(p_resource text, p_external text, p_ids text[], p_tail integer)
RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    v_tenant text := current_setting('om.tenant');
    v_thread threads%ROWTYPE;
    v_memory json;
    v_jobs json;
    v_known json;
    v_tail json;
BEGIN
    SELECT * INTO v_thread FROM threads
     WHERE tenant_id = v_tenant AND resource_id = p_resource AND external_id = p_external
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT row_to_json(m) INTO v_memory FROM memories m WHERE m.tenant_id = v_tenant AND m.id = v_thread.memory_id;
    SELECT json_agg(json_build_array(j.kind, j.state)) INTO v_jobs FROM jobs j
     WHERE j.tenant_id = v_tenant
       AND j.target IN ('thread:' || v_thread.id, 'memory:' || v_thread.memory_id)
       AND j.state IN ('available', 'running', 'retryable');
    IF p_ids IS NOT NULL THEN
        SELECT json_agg(k ORDER BY k.seq) INTO v_known FROM (
            SELECT seq, client_id, role, author, parts, timezone, metadata, created_at, tokens, turn, continues,
                   removed_at, encode(fingerprint, 'hex') AS fingerprint
              FROM messages
             WHERE tenant_id = v_tenant AND thread_id = v_thread.id AND client_id = ANY (p_ids)
             UNION ALL
            SELECT c.seq, f.client_id, c.role, c.author, c.parts, c.timezone, c.metadata, c.created_at, c.tokens,
                   c.turn, c.continues, c.removed_at, encode(c.fingerprint, 'hex')
              FROM messages f
              JOIN messages c ON c.tenant_id = f.tenant_id AND c.thread_id = f.thread_id AND c.continues = f.seq
             WHERE f.tenant_id = v_tenant AND f.thread_id = v_thread.id AND f.client_id = ANY (p_ids)
        ) k;
    END IF;
    IF p_tail > 0 THEN
        SELECT json_agg(json_build_array(k.seq, encode(k.fingerprint, 'hex'), k.client_id) ORDER BY k.seq) INTO v_tail FROM (
            SELECT seq, fingerprint, client_id FROM messages
             WHERE tenant_id = v_tenant AND thread_id = v_thread.id AND removed_at IS NULL
             ORDER BY seq DESC LIMIT p_tail
        ) k;
    END IF;
    RETURN json_build_object('thread', row_to_json(v_thread), 'memory', v_memory, 'jobs', v_jobs,
                             'known', v_known, 'tail', v_tail, 'now', clock_timestamp());
END $$;

-- Write an append to a locked thread: rows, the thread's new state, jobs and events. Returns the jobs inserted.
CREATE FUNCTION om_append_v1(p_thread bigint, p_state json, p_messages json, p_jobs json, p_events json)
RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    v_tenant text := current_setting('om.tenant');
    v_jobs json;
BEGIN
    INSERT INTO messages (tenant_id, thread_id, seq, client_id, role, author, parts, tokens, fingerprint, created_at,
                          timezone, metadata, turn, continues)
    SELECT v_tenant, p_thread, x.seq, x.client_id, x.role, x.author, x.parts, x.tokens, decode(x.fingerprint, 'hex'),
           x.created_at, x.timezone, x.metadata, x.turn, x.continues
      FROM json_to_recordset(p_messages) AS x (
           seq bigint, client_id text, role text, author text, parts json, tokens bigint, fingerprint text,
           created_at timestamptz, timezone text, metadata json, turn bigint, continues bigint);
    UPDATE threads t
       SET head_seq = s.head_seq, cut_seq = s.cut_seq, pending_tokens = s.pending_tokens,
           unbuffered_tokens = s.unbuffered_tokens, held_tokens = s.held_tokens, open_calls = s.open_calls,
           turn = s.turn, turn_open = s.turn_open, question_seq = s.question_seq, last_model = s.last_model,
           last_activity_at = clock_timestamp(),
           oldest_pending_at = coalesce(t.oldest_pending_at, clock_timestamp()),
           idle_due_at = least(t.idle_due_at, s.idle_due_at),
           early_activation = coalesce(s.early_activation, t.early_activation)
      FROM json_to_record(p_state) AS s (
           head_seq bigint, cut_seq bigint, pending_tokens bigint, unbuffered_tokens bigint, held_tokens bigint,
           open_calls json, turn bigint, turn_open boolean, question_seq bigint, last_model text,
           idle_due_at timestamptz, early_activation json)
     WHERE t.tenant_id = v_tenant AND t.id = p_thread;
    IF p_jobs IS NOT NULL THEN
        v_jobs := om_insert_jobs_v1(p_jobs);
    END IF;
    IF p_events IS NOT NULL THEN
        PERFORM om_insert_events_v1(p_events);
    END IF;
    RETURN v_jobs;
END $$;

CREATE FUNCTION om_insert_jobs_v1(p_jobs json) RETURNS json LANGUAGE sql AS $$
    WITH inserted AS (
        INSERT INTO jobs (tenant_id, kind, queue, target, thread, memory_id, thread_id, chunk_id, reason, policy,
                          input, prompt_version, traceparent, models)
        SELECT current_setting('om.tenant'), x.kind, x.queue, x.target, x.thread, x.memory_id, x.thread_id,
               x.chunk_id, x.reason, x.policy, coalesce(x.input, '{}'), x.prompt_version, x.traceparent,
               coalesce(x.models, '{}')
          FROM json_to_recordset(p_jobs) AS x (
               kind text, queue text, target text, thread text, memory_id bigint, thread_id bigint, chunk_id bigint,
               reason text, policy json, input json, prompt_version text, traceparent text, models text[])
            ON CONFLICT (tenant_id, target, kind) WHERE state IN ('available', 'running', 'retryable') DO NOTHING
        RETURNING id, tenant_id, kind, queue, thread, attempt
    )
    SELECT json_agg(inserted) FROM inserted
$$;

CREATE FUNCTION om_insert_events_v1(p_events json) RETURNS void LANGUAGE sql AS $$
    INSERT INTO events (tenant_id, thread_id, resource_id, type, payload)
    SELECT current_setting('om.tenant'), x.thread_id, x.resource_id, x.type, x.payload
      FROM json_to_recordset(p_events) AS x (thread_id bigint, resource_id text, type text, payload json)
$$;

-- Thread, memory and live work by id, or by the caller's ids; without a resource `matches` says how many have the thread.
CREATE FUNCTION om_snapshot_v1(p_id bigint, p_resource text, p_external text)
RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_tenant text := current_setting('om.tenant');
    v_thread threads%ROWTYPE;
    v_matches integer := 1;
    v_memory json;
    v_jobs json;
    v_ready json;
BEGIN
    IF p_id IS NOT NULL THEN
        SELECT * INTO v_thread FROM threads WHERE tenant_id = v_tenant AND id = p_id;
    ELSIF p_resource IS NOT NULL THEN
        SELECT * INTO v_thread FROM threads
         WHERE tenant_id = v_tenant AND resource_id = p_resource AND external_id = p_external;
    ELSE
        SELECT count(*) INTO v_matches FROM (
            SELECT FROM threads WHERE tenant_id = v_tenant AND external_id = p_external LIMIT 2) k;
        SELECT * INTO v_thread FROM threads WHERE tenant_id = v_tenant AND external_id = p_external LIMIT 1;
    END IF;
    IF v_thread.id IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT row_to_json(m) INTO v_memory FROM memories m WHERE m.tenant_id = v_tenant AND m.id = v_thread.memory_id;
    SELECT json_agg(json_build_array(j.kind, j.state)) INTO v_jobs FROM jobs j
     WHERE j.tenant_id = v_tenant
       AND j.target IN ('thread:' || v_thread.id, 'memory:' || v_thread.memory_id)
       AND j.state IN ('available', 'running', 'retryable');
    IF v_thread.buffered_seq > v_thread.observed_seq THEN  -- up to the first stale one: activation stops before it
        SELECT json_agg(c.message_tokens ORDER BY c.from_seq) FILTER (WHERE NOT c.blocked) INTO v_ready FROM (
            SELECT message_tokens, from_seq, bool_or(stale) OVER (ORDER BY from_seq) AS blocked FROM chunks
             WHERE tenant_id = v_tenant AND thread_id = v_thread.id AND from_seq > v_thread.observed_seq) c;
    END IF;
    RETURN json_build_object('thread', row_to_json(v_thread), 'memory', v_memory, 'jobs', v_jobs, 'matches', v_matches,
                             'ready', v_ready);
END $$;

-- What other threads of a memory hold that is not in its log yet, for `p_most` of them, most recently active first: the
-- notes that wait for activation, and the newest words since. They are found by their buffered chunks and by the time at
-- which the sweep looks for pending messages, so this costs the same however many threads there are.
CREATE FUNCTION om_others_v1(p_thread bigint, p_memory bigint, p_most integer)
RETURNS json LANGUAGE sql STABLE AS $$
    WITH found AS (
        SELECT thread_id AS id FROM (
            SELECT thread_id FROM chunks
             WHERE tenant_id = current_setting('om.tenant') AND memory_id = p_memory AND position IS NULL
               AND thread_id <> p_thread
             ORDER BY id DESC LIMIT 64) c
         UNION
        SELECT id FROM (
            SELECT id FROM threads
             WHERE tenant_id = current_setting('om.tenant') AND memory_id = p_memory AND idle_due_at IS NOT NULL
               AND id <> p_thread
             ORDER BY idle_due_at DESC LIMIT 32) t),
    chosen AS (
        SELECT t.* FROM threads t JOIN found f USING (id)
         WHERE t.tenant_id = current_setting('om.tenant') AND t.head_seq > t.observed_seq
         ORDER BY t.last_activity_at DESC NULLS LAST, t.id DESC LIMIT p_most)
    SELECT json_agg(json_build_object(
               'thread', t.external_id, 'timezone', t.timezone,
               'notes', (
                   SELECT json_agg(c.text ORDER BY c.from_seq) FROM (
                       SELECT text, from_seq FROM chunks
                        WHERE tenant_id = t.tenant_id AND thread_id = t.id AND from_seq > t.observed_seq
                          AND NOT stale AND text <> ''
                        ORDER BY from_seq DESC LIMIT 16) c),
               'messages', (
                   SELECT json_agg(row_to_json(m) ORDER BY m.seq) FROM (
                       SELECT seq, client_id, role, author, parts, timezone, NULL AS metadata, created_at, tokens, turn,
                              continues, removed_at
                         FROM messages
                        WHERE tenant_id = t.tenant_id AND thread_id = t.id AND seq > t.buffered_seq
                          AND role IN ('user', 'assistant') AND removed_at IS NULL AND tokens <= 4000
                        ORDER BY seq DESC LIMIT 16) m))
               ORDER BY t.last_activity_at DESC NULLS LAST, t.id DESC)
      FROM chosen t
$$;

-- What a context shows beside the log and the messages: the active reflection, the newest working memory of the thread
-- and of its resource, the extracted values of the memory, and the newest of other threads (`p_others`; 0: none).
CREATE FUNCTION om_kept_v1(p_thread bigint, p_resource text, p_memory bigint, p_generation bigint, p_others integer)
RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_tenant text := current_setting('om.tenant');
    v_reflection json;
    v_working json;
    v_extractions json;
    v_others json;
BEGIN
    IF p_others > 0 THEN
        v_others := om_others_v1(p_thread, p_memory, p_others);
    END IF;
    IF p_generation > 0 THEN
        SELECT row_to_json(r) INTO v_reflection FROM reflections r
         WHERE r.tenant_id = v_tenant AND r.memory_id = p_memory AND r.generation = p_generation;
    END IF;
    SELECT json_agg(w ORDER BY w.scope) INTO v_working FROM (
        (SELECT * FROM working_memory
          WHERE tenant_id = v_tenant AND scope = 'resource' AND scope_key = p_resource
          ORDER BY version DESC LIMIT 1)
         UNION ALL
        (SELECT * FROM working_memory
          WHERE tenant_id = v_tenant AND scope = 'thread' AND scope_key = p_thread::text
          ORDER BY version DESC LIMIT 1)) w;
    SELECT json_agg(e ORDER BY e.slug) INTO v_extractions FROM extractions e
     WHERE e.tenant_id = v_tenant AND e.memory_id = p_memory;
    RETURN json_build_object('reflection', v_reflection, 'working_memory', v_working, 'extractions', v_extractions,
                             'others', v_others);
END $$;
