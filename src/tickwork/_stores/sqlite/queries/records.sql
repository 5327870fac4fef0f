-- name: extend_leases
UPDATE tickwork_run
SET lease_until = max(lease_until, ?),
    started_at = coalesce(started_at, ?)
WHERE id = ? AND token = ? AND {is_claimed};

-- fragment: is_claimed
-- As is_unclaimed, without rows that are inconsistent.
status = 'running' AND phase = 'running' AND blocked_on IS NULL

-- name: hand_over
UPDATE tickwork_run SET external_id = ? WHERE id = ? AND token = ? AND {is_claimed};

-- name: accept_runs
UPDATE tickwork_run
SET token = token + 1,
    claim_tag = ?,
    worker = ?,
    lease_until = max(lease_until, ?),
    started_at = ?
WHERE id = ? AND token = ? AND {is_claimed} AND cancel_requested_at IS NULL;

-- name: accepted_runs
SELECT {claim_columns} FROM tickwork_run
WHERE id IN (SELECT value FROM json_each(:ids)) AND worker = :worker AND claim_tag = :tag
ORDER BY priority, due_at, id;

-- name: lock_running
SELECT id, token FROM tickwork_run
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'running';

-- name: finish_runs
-- The token guards each row: a claim that was lost moves no row, and the row count shows that.
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {moved_columns}, ?3, attempt - ?4, crashes + ?5, cancel_requested_at,
       coalesce(?6, started_at), ?7, ?8, ?9, ?10
FROM tickwork_run
WHERE id = ?1 AND token = ?2 AND status = 'running';
DELETE FROM tickwork_run WHERE id = ?1 AND token = ?2 AND status = 'running';

-- name: finish_plain
-- The same for runs that succeeded at the first attempt, which are most. One statement for all of
-- them takes two thirds of the time; another statement deletes the moved rows by their ids.
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {run.moved_columns}, 'completed', attempt, crashes, cancel_requested_at,
       coalesce(step.column3, started_at), step.column4, 'succeeded', step.column5, ''
FROM (VALUES :rows) AS step
CROSS JOIN tickwork_run AS run
WHERE run.id = step.column1 AND token = step.column2 AND status = 'running';

-- name: drop_finished
DELETE FROM tickwork_run WHERE id IN (SELECT value FROM json_each(:ids));

-- name: free_keys
-- Most databases have no unique keys at all; then no id is read.
DELETE FROM tickwork_unique
WHERE run IN (
    SELECT value
    FROM json_each(CASE WHEN EXISTS (SELECT 1 FROM tickwork_unique) THEN :ids ELSE '[]' END)
)
  AND (until IS NULL OR until <= :now);

-- name: find_finished
SELECT id, token, status FROM tickwork_history WHERE id IN (SELECT value FROM json_each(:ids));

-- name: return_runs
UPDATE tickwork_run
SET status = ?3,
    phase = ?4,
    due_at = ?5,
    attempt = attempt - ?6,
    crashes = crashes + ?7,
    postponements = postponements + ?8,
    attempts_max = coalesce(?9, attempts_max),
    reason = ?10,
    links = links | ?11,
    -- A run that is suspended has started in time.
    expires_at = CASE WHEN ?11 = 0 THEN expires_at END,
    claim_tag = NULL,
    lease_until = NULL,
    worker = NULL,
    started_at = NULL
WHERE id = ?1 AND token = ?2 AND status = 'running';

-- name: insert_attempts
INSERT OR IGNORE INTO tickwork_attempt (
    run, token, attempt, outcome, started_at, ended_at, error, traceback, worker
)
SELECT id, token, ?3, ?4, coalesce(?5, started_at), ?6, ?7, ?8, worker
FROM tickwork_run
WHERE id = ?1 AND token = ?2;

-- name: insert_steps
-- The token guards each row. A step that exists was stored by an earlier call whose answer was lost.
INSERT OR IGNORE INTO tickwork_step (run, {step_columns})
SELECT id, ?2, ?3, ?4, ?5, token, ?7, ?8, ?9, ?10, ?11, ?12, ?13
FROM tickwork_run
WHERE id = ?1 AND token = ?6 AND status = 'running';

-- name: insert_edges
INSERT OR IGNORE INTO tickwork_edge (child, parent, step, is_own) VALUES (?, ?, ?, ?);

-- name: touch_jobs
INSERT INTO tickwork_job (
    tenant, name, last_run_at, last_success_at, last_error_at, last_error, failures
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (tenant, name) DO UPDATE
SET last_run_at = max(coalesce(last_run_at, 0), excluded.last_run_at),
    last_success_at = nullif(
        max(coalesce(last_success_at, 0), coalesce(excluded.last_success_at, 0)), 0
    ),
    last_error_at = nullif(max(coalesce(last_error_at, 0), coalesce(excluded.last_error_at, 0)), 0),
    last_error = CASE WHEN excluded.last_error_at IS NULL THEN last_error ELSE excluded.last_error END,
    failures = CASE WHEN ?8 THEN excluded.failures ELSE failures + excluded.failures END;

-- name: release_worker
UPDATE tickwork_run
SET lease_until = :now
WHERE worker = :worker AND lease_until > :now AND {is_claimed};

-- name: cancel_waiting
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {moved_columns}, 'canceled', attempt, crashes, coalesce(cancel_requested_at, :now), started_at,
       :now, 'canceled', NULL, :reason
FROM tickwork_run
WHERE id IN (SELECT value FROM json_each(:ids)) AND status <> 'running';
DELETE FROM tickwork_run
WHERE id IN (SELECT value FROM json_each(:ids)) AND status <> 'running';

-- name: runs_of_schedules
SELECT run.id, run.status, run.limit_keys, run.links
FROM json_each(:names) AS wanted
CROSS JOIN tickwork_run AS run
    ON run.schedule = wanted.value ->> 1 AND run.tenant = wanted.value ->> 0
LIMIT :limit;

-- name: request_cancel_of_schedules
UPDATE tickwork_run
SET cancel_requested_at = coalesce(cancel_requested_at, ?)
WHERE schedule = ? AND tenant = ? AND {is_claimed};

-- name: save_progress
UPDATE tickwork_run
SET progress = coalesce(:progress, progress), checkpoint = coalesce(:checkpoint, checkpoint)
WHERE id = :id AND token = :token AND status = 'running';

-- name: count_logs
-- Only of existing runs: lines of a pruned run would stay forever.
SELECT id, (SELECT count(*) FROM tickwork_log WHERE run = known.id)
FROM (
    SELECT id FROM tickwork_run WHERE id IN (SELECT value FROM json_each(:ids))
    UNION ALL
    SELECT id FROM tickwork_history WHERE id IN (SELECT value FROM json_each(:ids))
) AS known;

-- name: insert_log
INSERT OR IGNORE INTO tickwork_log (run, line, at, level, logger, message)
VALUES (?, ?, ?, ?, ?, ?);

-- name: lock_marks
-- SQLite has one writer at a time: there is nothing to lock.
SELECT value FROM json_each(:names);

-- name: skip_marks
-- With the first unfinished and the first finished firing after the newest row of skips, if there
-- are any. The ids of firings begin with their instant.
SELECT schedule.tenant, schedule.name, schedule.skip_id, history.reason, schedule.skip_last_at,
       (SELECT min(nominal_at) FROM tickwork_run AS run
        WHERE run.schedule = schedule.name
          AND run.tenant = schedule.tenant
          AND run.nominal_at > schedule.skip_last_at),
       (SELECT min(nominal_at) FROM tickwork_history AS finished
        WHERE finished.schedule = schedule.name
          AND finished.tenant = schedule.tenant
          AND finished.id > schedule.skip_id
          AND finished.nominal_at > schedule.skip_last_at
          AND finished.status <> 'skipped')
FROM tickwork_schedule AS schedule
CROSS JOIN tickwork_history AS history ON history.id = schedule.skip_id
WHERE (schedule.tenant, schedule.name) IN (
    SELECT value ->> 0, value ->> 1 FROM json_each(:names)
)
  AND history.instants BETWEEN 1 AND 1000000000;

-- name: firings_between
-- Of each schedule, those between two skips: unfinished ones, and finished ones.
SELECT run.tenant, run.schedule, run.nominal_at
FROM json_each(:spans) AS span
CROSS JOIN tickwork_run AS run
    ON run.schedule = span.value ->> 1
    AND run.tenant = span.value ->> 0
    AND run.nominal_at > span.value ->> 2
    AND run.nominal_at < span.value ->> 3
UNION ALL
SELECT finished.tenant, finished.schedule, finished.nominal_at
FROM json_each(:spans) AS span
CROSS JOIN tickwork_history AS finished
    ON finished.schedule = span.value ->> 1
    AND finished.tenant = span.value ->> 0
    AND finished.id > span.value ->> 4
    AND finished.nominal_at > span.value ->> 2
    AND finished.nominal_at < span.value ->> 3
    AND finished.status <> 'skipped';

-- name: set_skip_marks
UPDATE tickwork_schedule
SET skip_id = ?, skip_reason = ?, skip_last_at = ?
WHERE tenant = ? AND name = ?;

-- name: clear_skip_marks
UPDATE tickwork_schedule
SET skip_id = NULL, skip_reason = NULL, skip_last_at = NULL
WHERE tenant = ? AND name = ? AND skip_last_at < ?;

-- name: merge_skips
UPDATE tickwork_history
SET instants = instants + ?1, last_nominal_at = ?2, ended_at = ?3
WHERE id = ?4;

-- name: drop_history
DELETE FROM tickwork_history WHERE id = ?;
DELETE FROM tickwork_log WHERE run = ?;

-- name: insert_skips
INSERT OR IGNORE INTO tickwork_history (
    id, tenant, job, queue, priority, status, due_at, args, attempt, attempts_max, crashes,
    postponements, token, schedule, nominal_at, last_nominal_at, instants, created_at, ended_at,
    outcome, reason
)
VALUES (?, ?, ?, ?, ?, 'skipped', ?, ?, 0, 1, 0, 0, 0, ?, ?, ?, ?, ?, ?, 'skipped', ?);
