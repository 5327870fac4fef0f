-- fragment: live_as_run
SELECT {live_run_columns} FROM tickwork_run

-- fragment: history_as_run
SELECT {history_run_columns} FROM tickwork_history

-- name: get_runs
{live_as_run} WHERE id = ANY (:ids::uuid[])
UNION ALL
{history_as_run} WHERE id = ANY (:ids::uuid[]);

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

-- name: list_live
{live_as_run}

-- name: list_history
{history_as_run}

-- name: list_live_ids
SELECT id FROM tickwork_run

-- name: list_history_ids
SELECT id FROM tickwork_history

-- name: summarize_live
SELECT id, job, status, created_at, due_at, started_at, NULL, reason, target, args
FROM tickwork_run

-- name: summarize_history
SELECT id, job, status, created_at, due_at, started_at, ended_at, reason, target, args
FROM tickwork_history

-- fragment: is_amiss
-- One status other than completed: the condition of the index.
status <> 'completed'

-- fragment: are_amiss
-- Several of them.
status <> 'completed'

-- fragment: is_running
lease_until IS NOT NULL

-- fragment: has_tag
-- Tags are a JSON list of names, and no name contains a quotation mark.
strpos(tags, :tag::text) > 0

-- name: get_attempts
SELECT {attempt_columns} FROM tickwork_attempt
WHERE run = :id::uuid
ORDER BY token;

-- name: get_log
SELECT {log_columns} FROM tickwork_log WHERE run = :id::uuid ORDER BY line;

-- name: count_phases
-- Each count stops at the cap, so that it is cheap with a million runs.
SELECT 'waiting', queue, count(*) FROM (
    SELECT queue FROM tickwork_run WHERE phase = 'waiting' LIMIT :cap::bigint
) AS waiting GROUP BY queue
UNION ALL
SELECT 'ready', queue, count(*) FROM (
    SELECT queue FROM tickwork_run WHERE phase = 'ready' LIMIT :cap::bigint
) AS ready GROUP BY queue
UNION ALL
SELECT 'blocked', queue, count(*) FROM (
    SELECT queue FROM tickwork_run WHERE blocked_on IS NOT NULL LIMIT :cap::bigint
) AS blocked GROUP BY queue
UNION ALL
SELECT 'running', queue, count(*) FROM (
    SELECT queue FROM tickwork_run WHERE lease_until IS NOT NULL LIMIT :cap::bigint
) AS running GROUP BY queue;

-- name: slot_holders
SELECT run FROM tickwork_slot WHERE key = :key::text ORDER BY run LIMIT :limit::bigint;

-- name: list_jobs
SELECT {job_columns} FROM tickwork_job
WHERE :tenant::text IS NULL OR tenant = :tenant::text
ORDER BY tenant, name;

-- name: list_ended
SELECT id, job, status, ended_at, result IS NOT NULL FROM tickwork_history
WHERE ended_at >= :after::bigint
  AND (ended_at > :after::bigint OR id > :after_id::uuid)
  AND ended_at < :before::bigint
ORDER BY ended_at, id
LIMIT :limit::bigint;

-- name: lock_ended
SELECT id FROM tickwork_history
WHERE id = ANY (:ids::uuid[])
ORDER BY id
FOR UPDATE SKIP LOCKED;

-- name: clear_results
UPDATE tickwork_history SET result = NULL, reason = :reason::text
WHERE id = ANY (:ids::uuid[]);

-- name: old_runs
-- Two concurrent prunes take different rows.
SELECT id FROM tickwork_history
WHERE ended_at < :before::bigint
ORDER BY ended_at
LIMIT :limit::bigint
FOR UPDATE SKIP LOCKED;

-- name: prune_runs
DELETE FROM tickwork_attempt WHERE run = ANY (:ids::uuid[]);
DELETE FROM tickwork_log WHERE run = ANY (:ids::uuid[]);
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
-- A prepared transaction counts like an open one. Sessions that this user may not see have no start
-- time.
SELECT pg_database_size(current_database()), NULL,
       (SELECT (extract(epoch FROM min(began_at)) * 1000000)::bigint
        FROM (
            SELECT xact_start AS began_at FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()
            UNION ALL
            SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()
        ) AS transactions);

-- name: health_of_tables
SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid)
FROM pg_stat_user_tables
WHERE relid = ANY (ARRAY(
    SELECT to_regclass(name)::oid
    FROM unnest(ARRAY[
        'tickwork_run', 'tickwork_history', 'tickwork_attempt', 'tickwork_log', 'tickwork_slot',
        'tickwork_gate', 'tickwork_limit', 'tickwork_rate', 'tickwork_start', 'tickwork_unique',
        'tickwork_schedule', 'tickwork_job', 'tickwork_pause', 'tickwork_worker', 'tickwork_lock'
    ]) AS name
))
ORDER BY pg_total_relation_size(relid) DESC, relname;
