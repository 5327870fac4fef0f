-- fragment: live_as_run
SELECT {live_run_columns} FROM tickwork_run

-- fragment: history_as_run
SELECT {history_run_columns} FROM tickwork_history

-- name: get_runs
{live_as_run} WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
{history_as_run} WHERE id IN (SELECT value FROM json_each(:ids));

-- name: find_run_ids
-- Each side stops at the limit, so that a prefix that a million ids share is cheap.
SELECT id FROM (
    SELECT id FROM tickwork_run WHERE id >= :prefix AND id < :prefix || 'g' ORDER BY id LIMIT :limit
)
UNION
SELECT id FROM (
    SELECT id FROM tickwork_history
    WHERE id >= :prefix AND id < :prefix || 'g'
    ORDER BY id
    LIMIT :limit
)
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
-- One status other than completed: the condition of the index.
status <> 'completed'

-- fragment: are_amiss
-- Several of them.
status <> 'completed'

-- fragment: is_running
-- By the index of leases: to sort by id, SQLite would otherwise read all rows.
id IN (SELECT id FROM tickwork_run WHERE lease_until IS NOT NULL)

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
    SELECT queue FROM tickwork_run WHERE phase = 'waiting' LIMIT :cap
) GROUP BY queue
UNION ALL
SELECT 'ready', queue, count(*) FROM (
    SELECT queue FROM tickwork_run WHERE phase = 'ready' LIMIT :cap
) GROUP BY queue
UNION ALL
SELECT 'blocked', queue, count(*) FROM (
    SELECT queue FROM tickwork_run WHERE blocked_on IS NOT NULL LIMIT :cap
) GROUP BY queue
UNION ALL
SELECT 'running', queue, count(*) FROM (
    SELECT queue FROM tickwork_run WHERE lease_until IS NOT NULL LIMIT :cap
) GROUP BY queue;

-- name: slot_holders
SELECT run FROM tickwork_slot WHERE key = :key ORDER BY run LIMIT :limit;

-- name: list_jobs
SELECT {job_columns} FROM tickwork_job
WHERE :tenant IS NULL OR tenant = :tenant
ORDER BY tenant, name;

-- name: list_ended
SELECT id, job, status, ended_at, result IS NOT NULL FROM tickwork_history
WHERE ended_at >= :after AND (ended_at > :after OR id > :after_id) AND ended_at < :before
ORDER BY ended_at, id
LIMIT :limit;

-- name: lock_ended
-- The transaction holds the only write lock.
SELECT id FROM tickwork_history WHERE id IN (SELECT value FROM json_each(:ids));

-- name: clear_results
UPDATE tickwork_history SET result = NULL, reason = :reason
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: old_runs
SELECT id FROM tickwork_history WHERE ended_at < :before ORDER BY ended_at LIMIT :limit;

-- name: prune_runs
DELETE FROM tickwork_attempt WHERE run IN (SELECT value FROM json_each(:ids));
DELETE FROM tickwork_log WHERE run IN (SELECT value FROM json_each(:ids));
-- A later skip must not be added to a deleted row.
UPDATE tickwork_schedule
SET skip_id = NULL, skip_reason = NULL, skip_last_at = NULL
WHERE skip_id IN (SELECT value FROM json_each(:ids));
DELETE FROM tickwork_history WHERE id IN (SELECT value FROM json_each(:ids));
SELECT changes();

-- name: prune_keys
DELETE FROM tickwork_unique
WHERE key IN (SELECT key FROM tickwork_unique WHERE until < :before ORDER BY until LIMIT :limit);

-- name: old_schedules
SELECT id FROM tickwork_schedule AS old WHERE {is_old_schedule} LIMIT :limit;

-- fragment: is_old_schedule
origin = 'code'
  AND seen_at < :before
  AND paused_at IS NULL
  AND NOT EXISTS (
      SELECT 1 FROM tickwork_run
      WHERE tickwork_run.schedule = old.name AND tickwork_run.tenant = old.tenant
  )

-- name: prune_schedules
DELETE FROM tickwork_schedule
WHERE id IN (
    SELECT id FROM tickwork_schedule AS old
    WHERE id IN (SELECT value FROM json_each(:ids)) AND {is_old_schedule}
);
SELECT changes();

-- name: old_jobs
-- Unfinished runs are searched for old jobs only, one by one, and the search stops at the first.
SELECT tenant, name FROM tickwork_job AS old
WHERE {is_old_job}
  AND NOT EXISTS (SELECT 1 FROM tickwork_run WHERE tickwork_run.job = old.name)
LIMIT :limit;

-- fragment: is_old_job
coalesce(seen_at, last_run_at) < :before
  AND coalesce(last_run_at, seen_at) < :before
  AND NOT EXISTS (SELECT 1 FROM tickwork_pause WHERE kind = 'job' AND name = old.name)

-- name: prune_jobs
-- A run that was added since finds no row, and creates one when it ends.
DELETE FROM tickwork_job
WHERE (tenant, name) IN (
    SELECT tenant, name FROM tickwork_job AS old
    WHERE (tenant, name) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:names))
      AND {is_old_job}
);
SELECT changes();

-- name: health
SELECT page_count * page_size, freelist_count * page_size, NULL
FROM pragma_page_count, pragma_page_size, pragma_freelist_count;

-- name: health_of_tables
-- SQLite would read a whole table to find its size.
SELECT '', 0, 0, 0 WHERE false;
