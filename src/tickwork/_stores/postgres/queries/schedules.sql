-- name: insert_schedules
-- An existing row is locked, not changed, so that it cannot be deleted before it is read.
INSERT INTO tickwork_schedule ({new_schedule_columns})
SELECT {new_schedule_columns}
FROM unnest({new_schedule_arrays}) AS new ({new_schedule_columns})
ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name WHERE false;

-- name: get_schedules
SELECT schedule.*
FROM jsonb_array_elements(:names::jsonb) AS wanted
CROSS JOIN LATERAL (
    SELECT {schedule_columns} FROM tickwork_schedule
    WHERE tenant = wanted ->> 0 AND name = wanted ->> 1
    OFFSET 0
) AS schedule;

-- name: scheduled_jobs
-- Skips from one job to the next: a job may have a million schedules.
WITH RECURSIVE jobs AS (
    (SELECT job FROM tickwork_schedule WHERE job <> '' ORDER BY job LIMIT 1)
    UNION ALL
    SELECT next.job
    FROM jobs
    CROSS JOIN LATERAL (
        SELECT job FROM tickwork_schedule
        WHERE job > jobs.job AND job <> ''
        ORDER BY job
        LIMIT 1
    ) AS next
)
SELECT job FROM jobs;

-- name: list_schedules
SELECT {schedule_columns} FROM tickwork_schedule
WHERE (:tenant::text IS NULL OR tenant = :tenant::text)
  AND (
      :after_tenant::text IS NULL
      OR (tenant, name) > (:after_tenant::text, :after_name::text)
  )
ORDER BY tenant, name
LIMIT :limit::bigint;

-- name: stamp_schedules
-- Skips locked rows: a ticker is firing those schedules, and the next stamp will include them.
UPDATE tickwork_schedule
SET seen_at = :now::bigint
WHERE id = ANY (ARRAY(
    SELECT id FROM tickwork_schedule
    WHERE id = ANY (:ids::uuid[])
    ORDER BY id
    FOR UPDATE SKIP LOCKED
));

-- name: stamp_jobs
INSERT INTO tickwork_job (tenant, name, seen_at)
SELECT '', name, max(seen_at)
FROM unnest(:c1::text[], :c2::bigint[]) AS seen (name, seen_at)
GROUP BY name
ORDER BY name COLLATE "C"
ON CONFLICT (tenant, name) DO UPDATE SET seen_at = excluded.seen_at;

-- name: stamp_definitions
INSERT INTO tickwork_definition ({definition_columns})
SELECT {definition_columns}
FROM unnest({definition_arrays}) AS seen ({definition_columns})
ORDER BY kind COLLATE "C", name COLLATE "C", application COLLATE "C"
ON CONFLICT (kind, name, application) DO UPDATE SET
    handler = excluded.handler,
    seen_at = excluded.seen_at;

-- name: pause_schedule
UPDATE tickwork_schedule
SET paused_at = :now::bigint,
    pause_note = :note::text,
    paused_until = :until::bigint,
    next_due_at = CASE
        WHEN :until::bigint IS NULL THEN next_due_at
        ELSE :next_due_at::bigint
    END
WHERE id = :id::uuid;

-- name: resume_schedule
UPDATE tickwork_schedule
SET paused_at = NULL,
    pause_note = '',
    paused_until = NULL,
    next_due_at = :next_due_at::bigint
WHERE id = :id::uuid;

-- name: due_schedules
-- Reads a bounded number of due schedules, so that a backlog for other workers costs no more. Then
-- it locks the wanted ones and skips those that another ticker has locked. Rows are found again by
-- ctid: a schedule that was updated since was fired.
SELECT schedule.*
FROM (
    SELECT place
    FROM (
        SELECT ctid AS place, job, origin, seen_at, paused_at, paused_until FROM tickwork_schedule
        WHERE {is_due}
        ORDER BY next_due_at, id
        LIMIT :head_size::bigint
    ) AS head
    WHERE (paused_at IS NULL OR paused_until <= :now::bigint)
      AND (:jobs::text[] IS NULL OR job = ANY (:jobs::text[]))
      AND {is_not_retired}
) AS wanted
CROSS JOIN LATERAL (
    SELECT {schedule_columns} FROM tickwork_schedule
    WHERE ctid = wanted.place AND next_due_at <= :now::bigint
    FOR UPDATE SKIP LOCKED
) AS schedule
LIMIT :limit::bigint;

-- fragment: is_due
-- The condition on pauses is that of the index.
next_due_at <= :now::bigint AND (paused_at IS NULL OR paused_until IS NOT NULL)

-- name: count_due
SELECT count(*) FROM (
    SELECT FROM tickwork_schedule WHERE {is_due} LIMIT :head_size::bigint
) AS due;

-- name: due_by_job
-- The first schedules of each job, then the first of those, locked as in due_schedules. Each job
-- gives twice the limit, because other tickers may have locked half of them. Job and time are
-- compared as one row, so that the planner can use only the index on both.
SELECT schedule.*
FROM (
    SELECT first.place
    FROM unnest(:jobs::text[]) AS wanted (job)
    CROSS JOIN LATERAL (
        SELECT ctid AS place, next_due_at, id FROM tickwork_schedule
        WHERE job >= wanted.job
          AND (job, next_due_at) <= (wanted.job, :now::bigint)
          AND next_due_at IS NOT NULL
          AND (paused_at IS NULL OR paused_until IS NOT NULL)
          AND (paused_at IS NULL OR paused_until <= :now::bigint)
          AND {is_not_retired}
        ORDER BY job, next_due_at, id
        LIMIT 2 * :limit::bigint
    ) AS first
    ORDER BY first.next_due_at, first.id
    LIMIT 4 * :limit::bigint
) AS wanted
CROSS JOIN LATERAL (
    SELECT {schedule_columns} FROM tickwork_schedule
    WHERE ctid = wanted.place AND next_due_at <= :now::bigint
    FOR UPDATE SKIP LOCKED
) AS schedule
LIMIT :limit::bigint;

-- name: move_schedules
-- Compare and set: the schedule was fired by the ticker that moved it first. The rows are locked
-- already. IS TRUE keeps the planner from reading all due schedules instead of finding these by id.
WITH move AS (
    SELECT id, due_at, next_due_at, last_fired_at
    FROM unnest(:c1::uuid[], :c2::bigint[], :c3::bigint[], :c4::bigint[])
        AS move (id, due_at, next_due_at, last_fired_at)
)
UPDATE tickwork_schedule AS schedule
SET next_due_at = move.next_due_at,
    last_fired_at = greatest(schedule.last_fired_at, move.last_fired_at),
    paused_at = NULL,
    pause_note = '',
    paused_until = NULL
FROM move
WHERE schedule.id = move.id
  AND schedule.id = ANY (:c1::uuid[])
  AND (schedule.next_due_at = move.due_at) IS TRUE;

-- name: move_together
-- The same for schedules that move from one time to the same next one.
UPDATE tickwork_schedule
SET next_due_at = :next_due_at::bigint,
    last_fired_at = greatest(last_fired_at, :last_fired_at::bigint),
    paused_at = NULL,
    pause_note = '',
    paused_until = NULL
WHERE id = ANY (:ids::uuid[]) AND (next_due_at = :due_at::bigint) IS TRUE;

-- name: next_firing
SELECT min(next_due_at) FROM tickwork_schedule
WHERE next_due_at IS NOT NULL
  AND (paused_at IS NULL OR paused_until IS NOT NULL)
  AND {is_not_retired};

-- name: next_firing_of
-- The first schedule of each known job: schedules of unknown jobs may have been due for a long
-- time.
SELECT min(first.next_due_at)
FROM unnest(:jobs::text[]) AS wanted (job)
CROSS JOIN LATERAL (
    SELECT next_due_at FROM tickwork_schedule
    WHERE job BETWEEN wanted.job AND wanted.job
      AND next_due_at IS NOT NULL
      AND (paused_at IS NULL OR paused_until IS NOT NULL)
      AND {is_not_retired}
    ORDER BY job, next_due_at, id
    LIMIT 1
) AS first;

-- fragment: is_not_retired
-- coalesce() hides the selectivity: a planner that expects no rows would choose any index.
coalesce(:seen_after::bigint IS NULL OR origin <> 'code' OR seen_at >= :seen_after::bigint, false)
