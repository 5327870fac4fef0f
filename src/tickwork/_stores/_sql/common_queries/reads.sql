-- fragment: live_as_run
SELECT {live_run_columns} FROM tickwork_run

-- fragment: history_as_run
SELECT {history_run_columns} FROM tickwork_history

-- name: get_runs
{live_as_run} FORCE INDEX (PRIMARY) WHERE id {in_ids}
UNION ALL
{history_as_run} FORCE INDEX (PRIMARY) WHERE id {in_ids};

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

-- fragment: live_outcome_columns
run.schedule, run.tenant, run.id, run.status, run.nominal_at, 1, run.started_at, NULL

-- fragment: history_outcome_columns
run.schedule, run.tenant, run.id, run.status, run.nominal_at, run.instants, run.started_at,
run.ended_at

-- name: count_starts
-- Only the latest starts of a key are kept, as many as the rate allows.
SELECT count(*) FROM tickwork_start FORCE INDEX (PRIMARY)
WHERE {key} = :key::text AND at > :since::bigint;

-- name: find_retries
SELECT id FROM tickwork_run FORCE INDEX (retry_of) WHERE retry_of = :id::uuid
UNION ALL
SELECT id FROM tickwork_history FORCE INDEX (retry_of) WHERE retry_of = :id::uuid
LIMIT :limit::bigint;

-- name: live_floor
SELECT id FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id >= :since::uuid
ORDER BY id DESC
LIMIT 1 OFFSET :most::bigint;

-- name: history_floor
SELECT id FROM tickwork_history FORCE INDEX (PRIMARY)
WHERE id >= :since::uuid
ORDER BY id DESC
LIMIT 1 OFFSET :most::bigint;

-- name: count_created
SELECT queue, minute, count(*) FROM (
    SELECT queue, {minute_of_creation} AS minute FROM tickwork_run FORCE INDEX (PRIMARY)
    WHERE id >= :since::uuid
    UNION ALL
    SELECT queue, {minute_of_creation} FROM tickwork_history FORCE INDEX (PRIMARY)
    WHERE id >= :since::uuid
) AS created
GROUP BY queue, minute;

-- name: get_attempts
SELECT {attempt_columns} FROM tickwork_attempt
WHERE run = :id::uuid
ORDER BY token;

-- name: get_steps
SELECT {step_columns} FROM tickwork_step
WHERE run = :id::uuid
ORDER BY place, name;

-- name: get_log
SELECT {log_columns} FROM tickwork_log WHERE run = :id::uuid ORDER BY line;

-- name: slot_holders
SELECT run FROM tickwork_slot FORCE INDEX (taken)
WHERE {key} = :key::text
ORDER BY run
LIMIT :limit::bigint;

-- name: list_jobs
SELECT {job_columns} FROM tickwork_job
WHERE :tenant::text IS NULL OR tenant = :tenant::text
ORDER BY tenant, name;

-- name: list_ended
SELECT id, job, status, ended_at, result IS NOT NULL FROM tickwork_history FORCE INDEX (ended)
WHERE ended_at >= :after::bigint
  AND (ended_at > :after::bigint OR id > :after_id::uuid)
  AND ended_at < :before::bigint
ORDER BY ended_at, id
LIMIT :limit::bigint;

-- name: lock_ended
SELECT id FROM tickwork_history FORCE INDEX (PRIMARY)
WHERE id {in_ids}
ORDER BY id
{skip_locked};

-- name: clear_results
UPDATE tickwork_history FORCE INDEX (PRIMARY) SET result = NULL, reason = :reason::text
WHERE id {in_ids};

-- name: old_runs
-- Two concurrent prunes take different rows.
SELECT id FROM tickwork_history FORCE INDEX (ended)
WHERE ended_at < :before::bigint
ORDER BY ended_at
LIMIT :limit::bigint
{skip_locked};
