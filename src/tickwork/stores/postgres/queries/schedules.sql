-- name: insert_schedules
-- One that is there already is locked, not changed: it must not vanish before it is read.
INSERT INTO tickwork_schedule ({new_schedule_columns})
SELECT {new_schedule_columns}
FROM unnest({new_schedule_arrays}) AS new ({new_schedule_columns})
ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name WHERE false;

-- name: update_schedule
UPDATE tickwork_schedule
SET {schedule_changes},
    next_due_at = :next_due_at::bigint,
    seen_at = :now::bigint,
    revision = revision + 1
WHERE id = :id::uuid AND revision = :revision::integer;

-- name: get_schedules
SELECT schedule.*
FROM jsonb_array_elements(:names::jsonb) AS wanted
CROSS JOIN LATERAL (
    SELECT {schedule_columns} FROM tickwork_schedule
    WHERE tenant = wanted ->> 0 AND name = wanted ->> 1
    OFFSET 0
) AS schedule;

-- name: scheduled_jobs
-- By skipping from one job to the next: a million schedules may be of the same.
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

-- name: get_schedule_by_id
SELECT {schedule_columns} FROM tickwork_schedule WHERE id = :id::uuid;

-- name: list_schedules
SELECT {schedule_columns} FROM tickwork_schedule
WHERE (:tenant::text IS NULL OR tenant = :tenant::text)
  AND (
      :after_tenant::text IS NULL
      OR (tenant, name) > (:after_tenant::text, :after_name::text)
  )
ORDER BY tenant, name
LIMIT :limit::bigint;

-- name: delete_schedule
DELETE FROM tickwork_schedule WHERE id = :id::uuid;

-- name: stamp_schedules
-- A schedule that is being fired was seen by somebody; it is stamped the next time.
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
-- A look at the first of those that are due, bounded: a backlog that others must fire costs no more.
-- A schedule that another ticker holds is left to it. Found again by their place on the page: one
-- that has moved since was fired.
SELECT schedule.*
FROM (
    SELECT place
    FROM (
        SELECT ctid AS place, job, origin, seen_at, paused_at, paused_until FROM tickwork_schedule
        WHERE {is_due}
        ORDER BY next_due_at, id
        LIMIT :look::bigint
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
-- Paused as the index has it.
next_due_at <= :now::bigint AND (paused_at IS NULL OR paused_until IS NOT NULL)

-- name: count_due
SELECT count(*) FROM (
    SELECT FROM tickwork_schedule WHERE {is_due} LIMIT :look::bigint
) AS due;

-- name: due_by_job
-- The first of each job, then the first of those, locked as in due_schedules. Each job gives twice
-- as many as are wanted: half of them may be in another's hands. Job and time are asked for as one,
-- so that nothing but their own index will do.
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
-- Compare and set: whoever moved it first has fired it. The rows are locked already. IS TRUE keeps
-- the planner from walking through all that is due instead of looking them up.
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

-- name: next_firing
SELECT min(next_due_at) FROM tickwork_schedule
WHERE next_due_at IS NOT NULL
  AND (paused_at IS NULL OR paused_until IS NOT NULL)
  AND {is_not_retired};

-- name: next_firing_of
-- The first of each job: those of jobs that nobody here knows may have been due for a year.
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
-- Coalesced, it says nothing about how many there are: a planner that takes them for none would go
-- by any index.
coalesce(:seen_after::bigint IS NULL OR origin <> 'code' OR seen_at >= :seen_after::bigint, false)
