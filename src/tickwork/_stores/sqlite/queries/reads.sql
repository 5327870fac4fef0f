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

-- fragment: is_unsuccessful
-- One status other than completed: the condition of the index.
status <> 'completed'

-- fragment: are_unsuccessful
-- Several of them.
status <> 'completed'

-- fragment: is_running
-- By the index of leases: to sort by id, SQLite would otherwise read all rows.
id IN (SELECT id FROM tickwork_run WHERE lease_until IS NOT NULL)

-- fragment: has_tag
-- Tags are a JSON list of names. Only a quotation mark that begins one follows a space or the first
-- bracket: those inside of names are escaped.
instr(' ' || substr(tags, 2), :tag) > 0

-- fragment: minute_of_creation
created_at / 60000000

-- name: live_outcomes
SELECT {live_outcome_columns}
FROM json_each(:names) AS name
CROSS JOIN tickwork_run AS run
    ON run.id IN (
        SELECT newest.id FROM tickwork_run AS newest
        WHERE newest.schedule = name.value ->> 1 AND newest.tenant = name.value ->> 0
          AND newest.nominal_at >= :since
          AND newest.nominal_at < :before
        ORDER BY newest.nominal_at DESC
        LIMIT :limit
    );

-- name: history_outcomes
SELECT {history_outcome_columns}
FROM json_each(:names) AS name
CROSS JOIN tickwork_history AS run
    ON run.id IN (
        SELECT newest.id FROM tickwork_history AS newest
        WHERE newest.schedule = name.value ->> 1 AND newest.tenant = name.value ->> 0
          AND newest.id >= :since_id
          AND newest.id < :before_id
        ORDER BY newest.id DESC
        LIMIT :limit
    );

-- name: list_waiting
{live_as_run}
WHERE phase = 'waiting' AND due_at >= :since AND due_at <= :until
  AND (:job IS NULL OR job = :job)
  AND (:schedule IS NULL OR schedule = :schedule)
ORDER BY due_at
LIMIT :limit;

-- name: first_of_pairs
-- Of each queue and job, the first ready run after a priority.
SELECT pair.value ->> 0, pair.value ->> 1, run.priority, run.due_at
FROM json_each(:pairs) AS pair
CROSS JOIN tickwork_run AS run
    ON run.id = (
        SELECT best.id FROM tickwork_run AS best
        WHERE best.phase = 'ready'
          AND best.queue = pair.value ->> 0
          AND best.job = pair.value ->> 1
          AND best.priority > pair.value ->> 2
        ORDER BY best.priority, best.due_at
        LIMIT 1
    );

-- name: queue_phases
-- The queues that have runs, with phases in which these may be. Skips from one queue to the next.
WITH RECURSIVE
ready (queue) AS (
    SELECT min(queue) FROM tickwork_run WHERE phase = 'ready'
    UNION ALL
    SELECT (SELECT min(queue) FROM tickwork_run WHERE phase = 'ready' AND queue > ready.queue)
    FROM ready
    WHERE ready.queue IS NOT NULL
),
hidden (queue) AS (
    SELECT min(queue) FROM tickwork_run WHERE {is_hidden}
    UNION ALL
    SELECT (SELECT min(queue) FROM tickwork_run WHERE {is_hidden} AND queue > hidden.queue)
    FROM hidden
    WHERE hidden.queue IS NOT NULL
)
SELECT queue, 'ready' FROM ready WHERE queue IS NOT NULL
UNION ALL
SELECT queue, 'waiting' FROM hidden WHERE queue IS NOT NULL
UNION ALL
SELECT queue, 'blocked' FROM hidden WHERE queue IS NOT NULL
LIMIT :limit;

-- fragment: is_hidden
-- The condition of the index, literally.
(phase = 'waiting' OR phase = 'blocked')

-- name: count_phases
-- Each count stops at its cap, so that it is cheap with a million runs.
SELECT pair.value ->> 0, pair.value ->> 1,
       CASE pair.value ->> 1 WHEN 'ready' THEN (
           SELECT count(*) FROM (
               SELECT 1 FROM tickwork_run
               WHERE phase = 'ready' AND queue = pair.value ->> 0
               LIMIT :cap
           )
       ) ELSE (
           SELECT count(*) FROM (
               SELECT 1 FROM tickwork_run
               WHERE {is_hidden} AND queue = pair.value ->> 0 AND phase = pair.value ->> 1
               LIMIT :cap
           )
       ) END
FROM json_each(:pairs) AS pair;

-- name: count_running
SELECT queue, count(*) FROM (
    SELECT queue FROM tickwork_run WHERE lease_until IS NOT NULL LIMIT :cap
) GROUP BY queue;

-- name: prune_runs
DELETE FROM tickwork_attempt WHERE run IN (SELECT value FROM json_each(:ids));
DELETE FROM tickwork_log WHERE run IN (SELECT value FROM json_each(:ids));
DELETE FROM tickwork_step WHERE run IN (SELECT value FROM json_each(:ids));
-- A later skip must not be added to a deleted row.
UPDATE tickwork_schedule
SET skip_id = NULL, skip_reason = NULL, skip_last_at = NULL
WHERE skip_id IN (SELECT value FROM json_each(:ids));
DELETE FROM tickwork_history WHERE id IN (SELECT value FROM json_each(:ids));

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

-- name: health
SELECT page_count * page_size, freelist_count * page_size, NULL
FROM pragma_page_count, pragma_page_size, pragma_freelist_count;

-- name: health_of_tables
-- SQLite would read a whole table to find its size.
SELECT '', 0, 0, 0 WHERE false;
