-- name: find_run_ids
(
    SELECT id FROM tickwork_run
    WHERE id BETWEEN {first_like_this} AND {last_like_this}
    ORDER BY id
    LIMIT :limit::bigint
)
UNION
(
    SELECT id FROM tickwork_history
    WHERE id BETWEEN {first_like_this} AND {last_like_this}
    ORDER BY id
    LIMIT :limit::bigint
)
ORDER BY id
LIMIT :limit::bigint;

-- fragment: first_like_this
CASE
    WHEN {can_be_an_id}
    THEN (:prefix::text
          || substr('00000000-0000-0000-0000-000000000000', length(:prefix::text) + 1))::uuid
END

-- fragment: last_like_this
CASE
    WHEN {can_be_an_id}
    THEN (:prefix::text
          || substr('ffffffff-ffff-ffff-ffff-ffffffffffff', length(:prefix::text) + 1))::uuid
END

-- fragment: can_be_an_id
translate(:prefix::text, '0123456789abcdef', 'ffffffffffffffff')
    = left('ffffffff-ffff-ffff-ffff-ffffffffffff', length(:prefix::text))

-- fragment: is_unsuccessful
-- One status other than completed: the condition of the index.
status <> 'completed'

-- fragment: are_unsuccessful
-- Several of them.
status <> 'completed'

-- fragment: is_running
lease_until IS NOT NULL

-- fragment: has_tag
-- Tags are a JSON list of names. Only a quotation mark that begins one follows a space or the first
-- bracket: those inside of names are escaped.
strpos(' ' || substr(tags, 2), :tag::text) > 0

-- fragment: minute_of_creation
created_at / 60000000

-- name: live_outcomes
SELECT {live_outcome_columns}
FROM jsonb_array_elements(:names::jsonb) AS name
CROSS JOIN LATERAL (
    SELECT schedule, tenant, id, status, nominal_at, started_at FROM tickwork_run
    WHERE schedule = name ->> 1 AND tenant = name ->> 0
      AND nominal_at >= :since::bigint
      AND nominal_at < :before::bigint
    ORDER BY schedule DESC, tenant DESC, nominal_at DESC
    LIMIT :limit::bigint
) AS run;

-- name: history_outcomes
SELECT {history_outcome_columns}
FROM jsonb_array_elements(:names::jsonb) AS name
CROSS JOIN LATERAL (
    SELECT schedule, tenant, id, status, nominal_at, instants, started_at, ended_at
    FROM tickwork_history
    WHERE schedule = name ->> 1 AND tenant = name ->> 0
      AND id >= :since_id::uuid
      AND id < :before_id::uuid
    ORDER BY schedule DESC, tenant DESC, id DESC
    LIMIT :limit::bigint
) AS run;

-- name: list_waiting
{live_as_run}
WHERE phase = 'waiting' AND due_at >= :since::bigint AND due_at <= :until::bigint
  AND (:job::text IS NULL OR job = :job::text)
  AND (:schedule::text IS NULL OR schedule = :schedule::text)
ORDER BY due_at
LIMIT :limit::bigint;

-- name: first_of_pairs
-- Of each queue and job, the first ready run after a priority. The job is a range, as in
-- pick_by_pairs.
{all_eras}
SELECT pair ->> 0, pair ->> 1, first.priority, first.due_at
FROM jsonb_array_elements(:pairs::jsonb) AS pair
CROSS JOIN LATERAL (
    SELECT run.priority, run.due_at
    FROM eras
    CROSS JOIN LATERAL (
        SELECT priority, due_at FROM tickwork_run
        WHERE phase = 'ready' AND era = eras.era
          AND queue = pair ->> 0
          AND job BETWEEN pair ->> 1 AND pair ->> 1
          AND priority > (pair ->> 2)::integer
        ORDER BY job, priority, due_at
        LIMIT 1
    ) AS run
    ORDER BY run.priority, run.due_at
    LIMIT 1
) AS first;

-- name: queue_phases
-- The queues that have runs, with phases in which these may be. Skips from one queue to the next.
{all_eras},
ready AS (
    SELECT first.*
    FROM eras
    CROSS JOIN LATERAL (
        SELECT era, queue FROM tickwork_run
        WHERE phase = 'ready' AND era = eras.era
        ORDER BY queue, job
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT next.*
    FROM ready
    CROSS JOIN LATERAL (
        SELECT era, queue FROM tickwork_run
        WHERE phase = 'ready' AND era = ready.era AND queue > ready.queue
        ORDER BY queue, job
        LIMIT 1
    ) AS next
),
hidden (queue) AS (
    (SELECT queue FROM tickwork_run WHERE {is_hidden} ORDER BY queue, phase LIMIT 1)
    UNION ALL
    SELECT (
        SELECT queue FROM tickwork_run
        WHERE {is_hidden} AND queue > hidden.queue
        ORDER BY queue, phase
        LIMIT 1
    )
    FROM hidden
    WHERE hidden.queue IS NOT NULL
)
SELECT DISTINCT queue, 'ready' FROM ready
UNION ALL
SELECT queue, 'waiting' FROM hidden WHERE queue IS NOT NULL
UNION ALL
SELECT queue, 'blocked' FROM hidden WHERE queue IS NOT NULL
LIMIT :limit::bigint;

-- fragment: is_hidden
-- The condition of the index.
(phase = 'waiting' OR phase = 'blocked') AND queue >= ''

-- name: count_phases
-- Each count stops at its cap, so that it is cheap with a million runs.
{all_eras}
SELECT pair ->> 0, pair ->> 1, (
    CASE pair ->> 1 WHEN 'ready' THEN (
        SELECT count(*) FROM (
            SELECT
            FROM eras
            CROSS JOIN LATERAL (
                SELECT FROM tickwork_run
                WHERE phase = 'ready' AND era = eras.era AND queue = pair ->> 0
                ORDER BY queue, job, priority, due_at
                LIMIT :cap::bigint
            ) AS run
            LIMIT :cap::bigint
        ) AS ready
    ) ELSE (
        SELECT count(*) FROM (
            SELECT FROM tickwork_run
            WHERE {is_hidden} AND queue = pair ->> 0 AND phase = pair ->> 1
            ORDER BY queue, phase
            LIMIT :cap::bigint
        ) AS hidden
    ) END
)
FROM jsonb_array_elements(:pairs::jsonb) AS pair;

-- name: count_running
SELECT queue, count(*) FROM (
    SELECT queue FROM tickwork_run
    WHERE lease_until IS NOT NULL
    ORDER BY lease_until
    LIMIT :cap::bigint
) AS running GROUP BY queue;

-- name: prune_runs
DELETE FROM tickwork_attempt WHERE run = ANY (:ids::uuid[]);
DELETE FROM tickwork_log WHERE run = ANY (:ids::uuid[]);
DELETE FROM tickwork_step WHERE run = ANY (:ids::uuid[]);
-- A later skip must not be added to a deleted row.
UPDATE tickwork_schedule
SET skip_id = NULL, skip_reason = NULL, skip_last_at = NULL
WHERE id = ANY (ARRAY(
    SELECT id FROM tickwork_schedule WHERE skip_id = ANY (:ids::uuid[]) ORDER BY id FOR UPDATE
));
DELETE FROM tickwork_history WHERE id = ANY (:ids::uuid[]);

-- name: prune_keys
DELETE FROM tickwork_unique
WHERE key = ANY (ARRAY(
    SELECT key FROM tickwork_unique
    WHERE until < :before::bigint
    ORDER BY until
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
));

-- name: old_schedules
SELECT id FROM tickwork_schedule AS old WHERE {is_old_schedule} LIMIT :limit::bigint;

-- fragment: is_old_schedule
origin = 'code'
  AND seen_at < :before::bigint
  AND paused_at IS NULL
  AND NOT EXISTS (
      SELECT FROM tickwork_run
      WHERE tickwork_run.schedule = old.name AND tickwork_run.tenant = old.tenant
  )

-- name: prune_schedules
DELETE FROM tickwork_schedule
WHERE id = ANY (ARRAY(
    SELECT id FROM tickwork_schedule AS old
    WHERE id = ANY (:ids::uuid[]) AND {is_old_schedule}
    FOR UPDATE SKIP LOCKED
));

-- name: old_jobs
-- Unfinished runs are searched for old jobs only, one by one, and the search stops at the first.
SELECT tenant, name FROM tickwork_job AS old
WHERE {is_old_job}
  AND CASE
      WHEN coalesce(seen_at, last_run_at) < :before::bigint
      THEN NOT EXISTS (SELECT FROM tickwork_run WHERE tickwork_run.job = old.name)
  END
LIMIT :limit::bigint;

-- fragment: is_old_job
coalesce(seen_at, last_run_at) < :before::bigint
  AND coalesce(last_run_at, seen_at) < :before::bigint
  AND NOT EXISTS (SELECT FROM tickwork_pause WHERE kind = 'job' AND name = old.name)

-- name: prune_jobs
-- A run that was added since finds no row, and creates one when it ends.
WITH gone AS MATERIALIZED (
    SELECT tenant, name FROM tickwork_job AS old
    WHERE (tenant, name) IN (
        SELECT wanted ->> 0, wanted ->> 1 FROM jsonb_array_elements(:names::jsonb) AS wanted
    )
      AND {is_old_job}
    FOR UPDATE SKIP LOCKED
)
DELETE FROM tickwork_job
WHERE (tenant, name) IN (SELECT tenant, name FROM gone);

-- name: health
-- With the transaction whose snapshot or number is the oldest. A prepared one counts like an open one.
-- Sessions that this user may not see have no start time.
SELECT pg_database_size(current_database()), NULL, oldest.*
FROM (VALUES (1)) AS one_row
LEFT JOIN (
    SELECT (extract(epoch FROM began_at) * 1000000)::bigint, holder, query, ending
    FROM (
        SELECT xact_start AS began_at,
               greatest(age(backend_xid), age(backend_xmin)) AS age,
               'process ' || pid || ' (' || concat_ws(
                   ', ', 'user ' || usename, nullif(application_name, ''), host(client_addr), state
               ) || ')' AS holder,
               left(regexp_replace(query, '\s+', ' ', 'g'), 60) AS query,
               'SELECT pg_terminate_backend(' || pid || ')' AS ending
        FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
        UNION ALL
        SELECT prepared, age(transaction),
               'prepared transaction ' || gid || ' (user ' || owner || ')',
               '', 'ROLLBACK PREPARED ' || quote_literal(gid)
        FROM pg_prepared_xacts
        WHERE database = current_database()
    ) AS transactions
    WHERE began_at IS NOT NULL
    ORDER BY age DESC NULLS LAST, began_at
    LIMIT 1
) AS oldest ON true;

-- name: health_of_tables
SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid)
FROM pg_stat_user_tables
WHERE relid = ANY (ARRAY(
    SELECT to_regclass(name)::oid
    FROM unnest(ARRAY[
        'tickwork_run', 'tickwork_history', 'tickwork_attempt', 'tickwork_log', 'tickwork_step',
        'tickwork_event', 'tickwork_wait', 'tickwork_outbox', 'tickwork_slot', 'tickwork_gate',
        'tickwork_limit', 'tickwork_unique', 'tickwork_schedule', 'tickwork_job',
        'tickwork_definition', 'tickwork_pause', 'tickwork_worker', 'tickwork_lock',
        'tickwork_rate', 'tickwork_start', 'tickwork_audit', 'tickwork_request', 'tickwork_rollup',
        'tickwork_alert', 'tickwork_edge', 'tickwork_meta', 'tickwork_change_counter'
    ]) AS name
))
ORDER BY pg_total_relation_size(relid) DESC, relname;
