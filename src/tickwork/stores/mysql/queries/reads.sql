-- fragment: live_as_run
SELECT {live_run_columns} FROM tickwork_run

-- fragment: history_as_run
SELECT {history_run_columns} FROM tickwork_history

-- name: get_runs
{live_as_run} FORCE INDEX (PRIMARY) WHERE id IN (:ids)
UNION ALL
{history_as_run} FORCE INDEX (PRIMARY) WHERE id IN (:ids);

-- name: find_run_ids
SELECT id FROM (
    (
        SELECT id FROM tickwork_run FORCE INDEX (PRIMARY)
        WHERE id >= :prefix AND id < concat(:prefix, 'g')
        ORDER BY id
        LIMIT :limit
    )
    UNION
    (
        SELECT id FROM tickwork_history FORCE INDEX (PRIMARY)
        WHERE id >= :prefix AND id < concat(:prefix, 'g')
        ORDER BY id
        LIMIT :limit
    )
) AS found
ORDER BY id
LIMIT :limit;

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
-- One status other than completed: the index is by status and id.
status = :status_0

-- fragment: are_amiss
-- Several of them: the index does not have their rows in the order of ids.
true

-- fragment: is_running
lease_until IS NOT NULL

-- fragment: has_tag
-- Tags are a JSON list of names, and no name contains a quotation mark.
instr(tags, :tag) > 0

-- name: get_attempts
SELECT {attempt_columns} FROM tickwork_attempt
WHERE run = :id
ORDER BY token;

-- name: get_log
SELECT {log_columns} FROM tickwork_log WHERE run = :id ORDER BY line;

-- name: count_phases
-- Each count stops at the cap, so that it is cheap with a million runs.
SELECT 'waiting', queue, count(*) FROM (
    SELECT queue FROM tickwork_run FORCE INDEX (ready) WHERE phase = 'waiting' LIMIT :cap
) AS waiting GROUP BY queue
UNION ALL
SELECT 'ready', queue, count(*) FROM (
    SELECT queue FROM tickwork_run FORCE INDEX (ready) WHERE phase = 'ready' LIMIT :cap
) AS ready GROUP BY queue
UNION ALL
SELECT 'blocked', queue, count(*) FROM (
    SELECT queue FROM tickwork_run FORCE INDEX (ready) WHERE phase = 'blocked' LIMIT :cap
) AS blocked GROUP BY queue
UNION ALL
SELECT 'running', queue, count(*) FROM (
    SELECT queue FROM tickwork_run FORCE INDEX (ready) WHERE phase = 'running' LIMIT :cap
) AS running GROUP BY queue;

-- name: slot_holders
SELECT run FROM tickwork_slot FORCE INDEX (taken) WHERE `key` = :key ORDER BY run LIMIT :limit;

-- name: list_jobs
SELECT {job_columns} FROM tickwork_job
WHERE :tenant IS NULL OR tenant = :tenant
ORDER BY tenant, name;

-- name: list_ended
SELECT id, job, status, ended_at, result IS NOT NULL FROM tickwork_history FORCE INDEX (ended)
WHERE ended_at >= :after AND (ended_at > :after OR id > :after_id) AND ended_at < :before
ORDER BY ended_at, id
LIMIT :limit;

-- name: lock_ended
SELECT id FROM tickwork_history FORCE INDEX (PRIMARY)
WHERE id IN (:ids)
ORDER BY id
FOR UPDATE SKIP LOCKED;

-- name: clear_results
UPDATE tickwork_history FORCE INDEX (PRIMARY) SET result = NULL, reason = :reason
WHERE id IN (:ids);

-- name: old_runs
-- Two concurrent prunes take different rows.
SELECT id FROM tickwork_history FORCE INDEX (ended)
WHERE ended_at < :before
ORDER BY ended_at
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: prune_runs
DELETE attempt
FROM {these_ids}
STRAIGHT_JOIN tickwork_attempt AS attempt FORCE INDEX (PRIMARY) ON attempt.run = wanted.id;
DELETE log
FROM {these_ids}
STRAIGHT_JOIN tickwork_log AS log FORCE INDEX (PRIMARY) ON log.run = wanted.id;
-- A later skip must not be added to a deleted row.
UPDATE tickwork_schedule FORCE INDEX (skip)
SET skip_id = NULL, skip_reason = NULL, skip_last_at = NULL
WHERE skip_id IN (:ids);
DELETE finished
FROM {these_ids}
STRAIGHT_JOIN tickwork_history AS finished FORCE INDEX (PRIMARY) ON finished.id = wanted.id;

-- name: prune_keys
DELETE held
FROM (
    SELECT `key` FROM tickwork_unique FORCE INDEX (until)
    WHERE until < :before
    ORDER BY until
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS past
STRAIGHT_JOIN tickwork_unique AS held FORCE INDEX (PRIMARY) ON held.`key` = past.`key`;

-- name: old_schedules
SELECT old.id FROM tickwork_schedule AS old WHERE {is_old_schedule} LIMIT :limit;

-- fragment: is_old_schedule
old.origin = 'code'
  AND old.seen_at < :before
  AND old.paused_at IS NULL
  AND NOT EXISTS (
      SELECT 1 FROM tickwork_run AS run FORCE INDEX (schedule)
      WHERE run.schedule = old.name AND run.tenant = old.tenant
  )

-- name: prune_schedules
-- Checked again by a SELECT: a DELETE would lock the rows that it reads in other tables, and wait
-- for them.
SELECT old.id FROM tickwork_schedule AS old FORCE INDEX (PRIMARY)
WHERE old.id IN (:ids) AND {is_old_schedule};
DELETE schedule
FROM (
    SELECT id FROM tickwork_schedule FORCE INDEX (PRIMARY)
    WHERE id IN (:found) AND origin = 'code' AND seen_at < :before AND paused_at IS NULL
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) AS stale
STRAIGHT_JOIN tickwork_schedule AS schedule FORCE INDEX (PRIMARY) ON schedule.id = stale.id;

-- name: old_jobs
SELECT old.tenant, old.name FROM tickwork_job AS old
WHERE {is_old_job}
  AND NOT EXISTS (SELECT 1 FROM tickwork_run AS run WHERE run.job = old.name)
LIMIT :limit;

-- fragment: is_old_job
coalesce(old.seen_at, old.last_run_at) < :before
  AND coalesce(old.last_run_at, old.seen_at) < :before
  AND NOT EXISTS (
      SELECT 1 FROM tickwork_pause AS pause WHERE pause.kind = 'job' AND pause.name = old.name
  )

-- name: prune_jobs
-- A run that was added since finds no row, and creates one when it ends.
SELECT old.tenant, old.name FROM tickwork_job AS old FORCE INDEX (PRIMARY)
WHERE (old.tenant, old.name) IN (:names) AND {is_old_job};
DELETE job
FROM (
    SELECT tenant, name FROM tickwork_job FORCE INDEX (PRIMARY)
    WHERE (tenant, name) IN (:found)
      AND coalesce(seen_at, last_run_at) < :before
      AND coalesce(last_run_at, seen_at) < :before
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) AS stale
STRAIGHT_JOIN tickwork_job AS job FORCE INDEX (PRIMARY)
    ON job.tenant = stale.tenant AND job.name = stale.name;

-- name: health
-- The oldest transaction is a query of its own: it needs a privilege that the user may not have.
SELECT CAST(coalesce(sum(data_length + index_length), 0) AS SIGNED),
       CAST(coalesce(sum(data_free), 0) AS SIGNED), NULL
FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE';

-- name: health_of_tables
-- The server does not report how many rows of a table wait for purge.
SELECT table_name, CAST(table_rows AS SIGNED), 0, CAST(data_length + index_length AS SIGNED)
FROM information_schema.tables
WHERE table_schema = DATABASE()
  AND table_name IN (
      'tickwork_run', 'tickwork_history', 'tickwork_attempt', 'tickwork_log', 'tickwork_slot',
      'tickwork_gate', 'tickwork_limit', 'tickwork_rate', 'tickwork_start', 'tickwork_unique',
      'tickwork_schedule', 'tickwork_job', 'tickwork_pause', 'tickwork_worker', 'tickwork_lock'
  )
ORDER BY data_length + index_length DESC, table_name;
