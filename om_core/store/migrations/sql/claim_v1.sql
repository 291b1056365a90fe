-- The claim (DESIGN 5), run by om_system in one round trip. A claim takes the tenant's advisory lock, then locks one job
-- row; everything else is read without locks, each statement with a fresh snapshot. Sums are over running rows, so what
-- a killed worker held needs no tidying, and two claims of one tenant never both pass a limit.

-- Whether this attempt may call the model: NULL, or when to ask again. It becomes the probe of a breaker whose time is up;
-- a probe whose attempt is no longer running is nobody's.
CREATE FUNCTION om_breaker_gate_v1(p_model text, p_job bigint, p_attempt bigint) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_breaker breakers%ROWTYPE;
BEGIN
    SELECT * INTO v_breaker FROM breakers WHERE model = p_model AND state <> 'closed';
    IF NOT FOUND OR (v_breaker.probe_job = p_job AND v_breaker.probe_attempt = p_attempt) THEN
        RETURN NULL;
    END IF;
    IF v_breaker.state = 'open' AND v_breaker.opened_until > v_now THEN
        RETURN v_breaker.opened_until;
    END IF;
    IF v_breaker.state = 'half_open' AND EXISTS (
        SELECT FROM jobs WHERE id = v_breaker.probe_job AND attempt = v_breaker.probe_attempt AND state = 'running'
           AND lease_expires_at > v_now) THEN
        RETURN v_now + interval '5 seconds';
    END IF;
    UPDATE breakers SET state = 'half_open', probe_job = p_job, probe_attempt = p_attempt, updated_at = v_now
     WHERE model = p_model AND state = v_breaker.state AND opened_until = v_breaker.opened_until
       AND probe_job IS NOT DISTINCT FROM v_breaker.probe_job
       AND probe_attempt IS NOT DISTINCT FROM v_breaker.probe_attempt;
    RETURN CASE WHEN FOUND THEN NULL ELSE v_now + interval '5 seconds' END;
END $$;

-- What a job's next run may take, before anything is known but sizes: input with instructions, and an answer.
-- `prices`: {model: [US dollars per input token, per output token]}; a model that is not there costs the most of them.
CREATE FUNCTION om_estimate_v1(p_tenant text, p_kind text, p_thread bigint, p_memory bigint, p_chunk bigint,
                               p_models text[], p_prices json, OUT tokens bigint, OUT usd numeric)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_in bigint;
    v_out bigint;
BEGIN
    IF p_kind = 'reflect' THEN  -- a ladder of calls, of which the second is seldom needed
        SELECT 2 * (log_tokens + 3000), log_tokens + 3000 INTO v_in, v_out
          FROM memories WHERE tenant_id = p_tenant AND id = p_memory;
    ELSE
        IF p_kind IN ('rebuild', 'extract') THEN
            SELECT message_tokens INTO v_in FROM chunks WHERE tenant_id = p_tenant AND id = p_chunk;
        ELSE
            SELECT least(unbuffered_tokens, 200000) INTO v_in FROM threads WHERE tenant_id = p_tenant AND id = p_thread;
        END IF;
        v_in := coalesce(v_in, 0) + 5000;
        v_out := 500 + v_in / 4;
    END IF;
    tokens := v_in + v_out;
    SELECT coalesce(max((value ->> 0)::numeric * v_in + (value ->> 1)::numeric * v_out)
                    FILTER (WHERE key = ANY (p_models)),
                    max((value ->> 0)::numeric * v_in + (value ->> 1)::numeric * v_out), 0)
      INTO usd FROM json_each(coalesce(p_prices, '{}'));
END $$;

-- Today's use (UTC) of every budget that applies to a thread: what was booked, and what running jobs have reserved.
-- `p_budgets`: [[scope, unit, limit], ...].
CREATE FUNCTION om_budget_v1(p_tenant text, p_thread bigint, p_budgets json)
RETURNS TABLE (scope text, unit text, day_limit numeric, used numeric, reserved numeric) LANGUAGE sql STABLE AS $$
    WITH mine AS (SELECT resource_id FROM threads WHERE tenant_id = p_tenant AND id = p_thread),
    booked AS (
        SELECT 'thread' AS scope, coalesce(sum(input_tokens + output_tokens), 0) AS tokens,
               coalesce(sum(cost_usd), 0) AS usd
          FROM usage WHERE tenant_id = p_tenant AND day = (now() AT TIME ZONE 'UTC')::date AND thread_id = p_thread
         UNION ALL
        SELECT s.scope, s.tokens, s.cost_usd FROM spending s
         WHERE s.tenant_id = p_tenant AND s.day = (now() AT TIME ZONE 'UTC')::date
           AND (s.scope = 'tenant' AND s.scope_key = ''
                OR s.scope = 'resource' AND s.scope_key = (SELECT resource_id FROM mine))),
    running AS (
        SELECT j.thread_id, t.resource_id, j.reserved_tokens AS tokens, j.reserved_usd AS usd
          FROM jobs j JOIN threads t ON t.tenant_id = j.tenant_id AND t.id = j.thread_id
         WHERE j.tenant_id = p_tenant AND j.state = 'running'),
    budgets AS (
        SELECT value ->> 0 AS scope, value ->> 1 AS unit, (value ->> 2)::numeric AS day_limit
          FROM json_array_elements(p_budgets))
    SELECT b.scope, b.unit, b.day_limit,
           coalesce((SELECT CASE b.unit WHEN 'usd' THEN k.usd ELSE k.tokens END FROM booked k WHERE k.scope = b.scope), 0),
           coalesce((SELECT sum(CASE b.unit WHEN 'usd' THEN r.usd ELSE r.tokens END) FROM running r
                      WHERE b.scope = 'tenant'
                         OR b.scope = 'resource' AND r.resource_id = (SELECT resource_id FROM mine)
                         OR b.scope = 'thread' AND r.thread_id = p_thread), 0)
      FROM budgets b
$$;

-- Put off due jobs that would be refused as this one was: those for the same models, or (`p_tenant`) of the same tenant.
CREATE FUNCTION om_put_off_v1(p_queue text, p_tenant text, p_models text[], p_until timestamptz) RETURNS void
LANGUAGE sql AS $$
    UPDATE jobs j SET run_at = p_until + random() * interval '1 second'
      FROM (SELECT d.tenant_id, d.id FROM (
                SELECT tenant_id, id, models FROM jobs
                 WHERE queue = p_queue AND state IN ('available', 'retryable') AND run_at <= now()
                   AND (p_tenant IS NULL OR tenant_id = p_tenant)
                 ORDER BY awaited DESC, run_at LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED) d
             WHERE p_models IS NULL OR d.models = p_models) due
     WHERE j.tenant_id = due.tenant_id AND j.id = due.id
$$;

-- Kinds that only newer code knows are left to it: their names stand here, as this function belongs to this version.
-- Claim one job of a tenant: the one named, else its best due one in the queue. Says how it went: claimed, gone (nothing
-- due), capped, busy (another claim is at this tenant, and `p_wait` is false), or refused (breaker or budget; put off).
CREATE FUNCTION om_claim_of_v1(p_queue text, p_tenant text, p_job bigint, p_owner text, p_lease double precision,
                               p_limits json, p_wait boolean, OUT verdict text, OUT job_id bigint, OUT running integer)
LANGUAGE plpgsql AS $$
DECLARE
    v_key bigint := hashtextextended('om.claim:' || p_tenant, 0);
    v_lane boolean;
    v_model text;
    v_until timestamptz;
    v_gate timestamptz;
    v_tokens bigint := 0;
    v_usd numeric := 0;
    v_scope text;
    v_job record;
BEGIN
    IF p_wait THEN
        PERFORM pg_advisory_xact_lock(v_key);
    ELSIF NOT pg_try_advisory_xact_lock(v_key) THEN
        verdict := 'busy';
        RETURN;
    END IF;
    SELECT count(*) INTO running FROM jobs
     WHERE tenant_id = p_tenant AND state = 'running' AND lease_expires_at > clock_timestamp();
    IF running >= (p_limits ->> 'in_flight')::integer THEN
        verdict := 'capped';
        RETURN;
    END IF;
    verdict := 'gone';
    IF p_job IS NOT NULL THEN
        SELECT id, queue, kind, attempt, thread_id, memory_id, chunk_id, models INTO v_job FROM jobs
         WHERE tenant_id = p_tenant AND id = p_job AND state IN ('available', 'retryable') AND run_at <= clock_timestamp()
           AND kind IN ('observe', 'rebuild', 'extract', 'reflect', 'index')
           FOR NO KEY UPDATE SKIP LOCKED;
    ELSE
        FOREACH v_lane IN ARRAY ARRAY[true, false] LOOP
            SELECT id, queue, kind, attempt, thread_id, memory_id, chunk_id, models INTO v_job FROM jobs
             WHERE queue = p_queue AND tenant_id = p_tenant AND awaited = v_lane
               AND state IN ('available', 'retryable') AND run_at <= now()
               AND kind IN ('observe', 'rebuild', 'extract', 'reflect', 'index')
             ORDER BY run_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
            EXIT WHEN FOUND;
        END LOOP;
    END IF;
    IF v_job.id IS NULL THEN
        RETURN;
    END IF;
    IF json_array_length(p_limits -> 'budgets') > 0 THEN
        SELECT e.tokens, e.usd INTO v_tokens, v_usd
          FROM om_estimate_v1(p_tenant, v_job.kind, v_job.thread_id, v_job.memory_id, v_job.chunk_id, v_job.models,
                              p_limits -> 'prices') e;
        -- The first job of a day always fits, or one larger than the limit would wait for ever.
        SELECT b.scope INTO v_scope FROM om_budget_v1(p_tenant, v_job.thread_id, p_limits -> 'budgets') b
         WHERE b.used + b.reserved > 0
           AND b.used + b.reserved + CASE b.unit WHEN 'usd' THEN v_usd ELSE v_tokens END > b.day_limit
         ORDER BY b.scope = 'tenant' DESC LIMIT 1;
        IF FOUND THEN
            verdict := 'refused';
            v_until := least(clock_timestamp() + interval '60 seconds',
                             (date_trunc('day', now() AT TIME ZONE 'UTC') + interval '1 day') AT TIME ZONE 'UTC');
            UPDATE jobs SET run_at = v_until WHERE tenant_id = p_tenant AND id = v_job.id;
            IF v_scope = 'tenant' THEN
                PERFORM om_put_off_v1(v_job.queue, p_tenant, NULL, v_until);
            END IF;
            RETURN;
        END IF;
    END IF;
    FOREACH v_model IN ARRAY v_job.models LOOP  -- in the order in which they are asked
        v_gate := om_breaker_gate_v1(v_model, v_job.id, v_job.attempt + 1);
        IF v_gate IS NULL THEN
            v_until := NULL;
            EXIT;
        END IF;
        v_until := least(v_until, v_gate);
    END LOOP;
    IF v_until IS NOT NULL THEN
        verdict := 'refused';
        UPDATE jobs SET run_at = v_until + random() * interval '1 second' WHERE tenant_id = p_tenant AND id = v_job.id;
        PERFORM om_put_off_v1(v_job.queue, NULL, v_job.models, v_until);
        RETURN;
    END IF;
    UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_owner = p_owner,
           lease_expires_at = clock_timestamp() + p_lease * interval '1 second',
           started_at = coalesce(started_at, clock_timestamp()), reserved_tokens = v_tokens, reserved_usd = v_usd,
           rung_at = NULL, rings = 0  -- answered: when it is due again, its first ring must not wait
     WHERE tenant_id = p_tenant AND id = v_job.id;
    verdict := 'claimed';
    job_id := v_job.id;
    running := running + 1;
END $$;

-- Tenants with due work in a queue, best first: waited for, then fewest live leases, then age. Bounded, whatever the
-- backlog: a window of 32 tenants after `p_after`, and those of the 16 oldest due jobs; one index probe per tenant.
CREATE FUNCTION om_due_tenants_v1(p_queue text, p_after text, p_in_flight integer)
RETURNS TABLE (tenant_id text, awaited boolean, leases bigint, run_at timestamptz, last text)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE walk(tenant_id, n) AS (
        (SELECT j.tenant_id, 1 FROM jobs j
          WHERE j.queue = p_queue AND j.state IN ('available', 'retryable') AND j.tenant_id > p_after
          ORDER BY j.tenant_id LIMIT 1)
         UNION ALL
        SELECT (SELECT j.tenant_id FROM jobs j
                 WHERE j.queue = p_queue AND j.state IN ('available', 'retryable') AND j.tenant_id > w.tenant_id
                 ORDER BY j.tenant_id LIMIT 1), w.n + 1
          FROM walk w WHERE w.tenant_id IS NOT NULL AND w.n < 32),
    lanes AS (SELECT unnest(ARRAY[true, false]) AS awaited),
    found AS (
        SELECT w.tenant_id FROM walk w WHERE w.tenant_id IS NOT NULL
         UNION
        SELECT o.tenant_id FROM lanes l CROSS JOIN LATERAL (
            SELECT j.tenant_id FROM jobs j
             WHERE j.queue = p_queue AND j.awaited = l.awaited AND j.state IN ('available', 'retryable')
               AND j.run_at <= now() AND j.kind IN ('observe', 'rebuild', 'extract', 'reflect', 'index')
             ORDER BY j.run_at LIMIT 16) o),
    ready AS MATERIALIZED (
        SELECT f.tenant_id, d.awaited, d.run_at, (
                   SELECT count(*) FROM jobs r
                    WHERE r.tenant_id = f.tenant_id AND r.state = 'running' AND r.lease_expires_at > now()) AS leases
          FROM found f CROSS JOIN LATERAL (
            SELECT l.awaited, o.run_at FROM lanes l CROSS JOIN LATERAL (
                SELECT j.run_at FROM jobs j
                 WHERE j.queue = p_queue AND j.tenant_id = f.tenant_id AND j.awaited = l.awaited
                   AND j.state IN ('available', 'retryable') AND j.run_at <= now()
                   AND j.kind IN ('observe', 'rebuild', 'extract', 'reflect', 'index')
                 ORDER BY j.run_at LIMIT 1) o
             ORDER BY l.awaited DESC LIMIT 1) d)
    SELECT r.tenant_id, r.awaited, r.leases, r.run_at, (SELECT w.tenant_id FROM walk w WHERE w.n = 32)
      FROM ready r WHERE r.leases < p_in_flight ORDER BY r.awaited DESC, r.leases, r.run_at LIMIT 8
$$;

-- Claim the rung job if it is due and its tenant holds few leases, else the best due job of the queue.
-- `p_limits`: {"in_flight": n, "favour": leases from which a ring no longer favours its own job, "budgets", "prices"}.
CREATE FUNCTION om_claim_v1(p_queue text, p_job bigint, p_owner text, p_lease double precision, p_after text,
                            p_limits json, OUT tenant text, OUT job_id bigint, OUT capped boolean, OUT next_after text,
                            OUT breakers json)
LANGUAGE plpgsql AS $$
DECLARE
    v_cap integer := (p_limits ->> 'in_flight')::integer;
    v_wait boolean := true;  -- only the first lock may be waited for: two claims with two tenants each would wait for ever
    v_tenant text;
    v_leases integer;
    v_try record;
    v_due record;
BEGIN
    next_after := p_after;
    IF p_job IS NOT NULL THEN
        SELECT j.tenant_id INTO v_tenant FROM jobs j
         WHERE j.id = p_job AND j.state IN ('available', 'retryable') AND j.run_at <= clock_timestamp();
        IF FOUND THEN
            SELECT count(*) INTO v_leases FROM jobs j
             WHERE j.tenant_id = v_tenant AND j.state = 'running' AND j.lease_expires_at > clock_timestamp();
            IF v_leases < least(v_cap, (p_limits ->> 'favour')::integer) THEN
                v_wait := false;
                SELECT * INTO v_try FROM om_claim_of_v1(p_queue, v_tenant, p_job, p_owner, p_lease, p_limits, true);
                IF v_try.verdict = 'claimed' THEN
                    tenant := v_tenant;
                END IF;
            END IF;
        END IF;
    END IF;
    IF tenant IS NULL THEN
        next_after := '';
        FOR v_due IN SELECT d.tenant_id, d.last FROM om_due_tenants_v1(p_queue, p_after, v_cap) d LOOP
            next_after := coalesce(v_due.last, '');
            SELECT * INTO v_try
              FROM om_claim_of_v1(p_queue, v_due.tenant_id, NULL, p_owner, p_lease, p_limits, v_wait);
            v_wait := false;
            IF v_try.verdict = 'claimed' THEN
                tenant := v_due.tenant_id;
                EXIT;
            END IF;
        END LOOP;
    END IF;
    IF tenant IS NOT NULL THEN
        job_id := v_try.job_id;
        capped := v_try.running >= v_cap;
        SELECT json_object_agg(b.model, b.state) INTO breakers FROM breakers b WHERE b.state <> 'closed' OR b.failures > 0;
    END IF;
END $$;

-- An outage of a model. The breaker opens at the `p_most`th in a row, and again, for twice as long, when its probe fails.
CREATE FUNCTION om_breaker_failed_v1(p_model text, p_job bigint, p_attempt bigint, p_most integer,
                                     p_base double precision, p_cap double precision, p_after double precision)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_state text;
BEGIN
    INSERT INTO breakers AS b (model, failures) VALUES (p_model, 1)
        ON CONFLICT (model) DO UPDATE SET failures = b.failures + 1, updated_at = clock_timestamp();
    UPDATE breakers b
       SET state = 'open', openings = b.openings + 1, probe_job = NULL, probe_attempt = NULL,
           opened_until = clock_timestamp()
               + least(greatest(p_base * 2 ^ least(b.openings, 30), p_after), p_cap) * interval '1 second'
     WHERE b.model = p_model
       AND (b.state = 'closed' AND b.failures >= p_most
            OR b.state = 'half_open' AND b.probe_job = p_job AND b.probe_attempt = p_attempt);
    SELECT b.state INTO v_state FROM breakers b WHERE b.model = p_model;
    RETURN v_state;
END $$;
