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

-- fragment: is_unsuccessful
-- One status other than completed: the index is by status and id.
status = :status_0

-- fragment: are_unsuccessful
-- Several of them: the index does not have their rows in the order of ids.
true

-- fragment: is_running
lease_until IS NOT NULL

-- fragment: has_tag
-- Tags are a JSON list of names. Only a quotation mark that begins one follows a space or the first
-- bracket: those inside of names are escaped.
instr(concat(' ', substr(tags, 2)), :tag) > 0

-- fragment: minute_of_creation
created_at DIV 60000000

-- name: live_outcomes
[[names BY UNION ALL (
    SELECT {live_outcome_columns} FROM tickwork_run AS run FORCE INDEX (schedule)
    WHERE run.schedule = ?2 AND run.tenant = ?1
      AND run.nominal_at >= :since
      AND run.nominal_at < :before
    ORDER BY run.nominal_at DESC
    LIMIT :limit
)]];

-- name: history_outcomes
[[names BY UNION ALL (
    SELECT {history_outcome_columns} FROM tickwork_history AS run FORCE INDEX (schedule)
    WHERE run.schedule = ?2 AND run.tenant = ?1
      AND run.id >= :since_id
      AND run.id < :before_id
    ORDER BY run.id DESC
    LIMIT :limit
)]];

-- name: list_waiting
{live_as_run} FORCE INDEX (waiting)
WHERE waiting_at >= :since AND waiting_at <= :until
  AND (:job IS NULL OR job = :job)
  AND (:schedule IS NULL OR schedule = :schedule)
ORDER BY waiting_at
LIMIT :limit;

-- name: first_of_pairs
-- Of each queue and job, the first ready run after a priority.
[[pairs BY UNION ALL (
    SELECT queue, job, priority, due_at FROM tickwork_run FORCE INDEX (pairs)
    WHERE phase = 'ready' AND queue = ?1 AND job = ?2 AND priority > ?3
    ORDER BY priority, due_at
    LIMIT 1
)]];

-- name: queue_phases
-- The queues that have runs, with the phases of these. Skips from one to the next.
(SELECT queue, phase FROM tickwork_run FORCE INDEX (pairs)
 WHERE phase = 'ready' GROUP BY phase, queue LIMIT :limit)
UNION ALL
(SELECT queue, phase FROM tickwork_run FORCE INDEX (pairs)
 WHERE phase = 'waiting' GROUP BY phase, queue LIMIT :limit)
UNION ALL
(SELECT queue, phase FROM tickwork_run FORCE INDEX (pairs)
 WHERE phase = 'blocked' GROUP BY phase, queue LIMIT :limit);

-- name: count_phases
-- Each count stops at its cap, so that it is cheap with a million runs.
[[pairs BY UNION ALL
SELECT ?1, ?2, count(*) FROM (
    SELECT 1 FROM tickwork_run FORCE INDEX (pairs) WHERE phase = ?2 AND queue = ?1 LIMIT :cap
) AS counted]];

-- name: count_running
SELECT queue, count(*) FROM (
    SELECT queue FROM tickwork_run FORCE INDEX (pairs) WHERE phase = 'running' LIMIT :cap
) AS running GROUP BY queue;

-- name: prune_runs
DELETE attempt
FROM {these_ids}
STRAIGHT_JOIN tickwork_attempt AS attempt FORCE INDEX (PRIMARY) ON attempt.run = wanted.id;
DELETE log
FROM {these_ids}
STRAIGHT_JOIN tickwork_log AS log FORCE INDEX (PRIMARY) ON log.run = wanted.id;
DELETE step
FROM {these_ids}
STRAIGHT_JOIN tickwork_step AS step FORCE INDEX (PRIMARY) ON step.run = wanted.id;
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
      'tickwork_run', 'tickwork_history', 'tickwork_attempt', 'tickwork_log', 'tickwork_step',
      'tickwork_event', 'tickwork_wait', 'tickwork_outbox', 'tickwork_slot', 'tickwork_gate',
      'tickwork_limit', 'tickwork_unique', 'tickwork_schedule', 'tickwork_job',
      'tickwork_definition', 'tickwork_pause', 'tickwork_worker', 'tickwork_lock', 'tickwork_rate',
      'tickwork_start', 'tickwork_audit', 'tickwork_request', 'tickwork_rollup', 'tickwork_meta',
      'tickwork_alert', 'tickwork_edge', 'tickwork_change_counter'
  )
ORDER BY data_length + index_length DESC, table_name;
