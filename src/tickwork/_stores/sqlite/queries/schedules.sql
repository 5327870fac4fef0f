-- name: insert_schedules
INSERT INTO tickwork_schedule ({new_schedule_columns}) VALUES ({new_schedule_places})
ON CONFLICT (tenant, name) DO NOTHING;

-- name: get_schedules
SELECT {schedule_columns} FROM tickwork_schedule
WHERE (tenant, name) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:names));

-- name: scheduled_jobs
-- Skips from one job to the next: a job may have a million schedules.
WITH RECURSIVE jobs (job) AS (
    SELECT min(job) FROM tickwork_schedule WHERE job <> ''
    UNION ALL
    SELECT (
        SELECT min(job) FROM tickwork_schedule
        WHERE tickwork_schedule.job > jobs.job AND tickwork_schedule.job <> ''
    )
    FROM jobs
    WHERE jobs.job IS NOT NULL
)
SELECT job FROM jobs WHERE job IS NOT NULL;

-- name: list_schedules
SELECT {schedule_columns} FROM tickwork_schedule
WHERE (:tenant IS NULL OR tenant = :tenant)
  AND (:after_tenant IS NULL OR (tenant, name) > (:after_tenant, :after_name))
ORDER BY tenant, name
LIMIT :limit;

-- name: stamp_schedules
UPDATE tickwork_schedule SET seen_at = :now WHERE id IN (SELECT value FROM json_each(:ids));

-- name: stamp_jobs
INSERT INTO tickwork_job (tenant, name, seen_at)
VALUES ('', ?, ?)
ON CONFLICT (tenant, name) DO UPDATE SET seen_at = excluded.seen_at;

-- name: stamp_definitions
INSERT INTO tickwork_definition ({definition_columns}) VALUES ({definition_places})
ON CONFLICT (kind, name, application) DO UPDATE SET
    handler = excluded.handler,
    seen_at = excluded.seen_at;

-- name: pause_schedule
UPDATE tickwork_schedule
SET paused_at = :now,
    pause_note = :note,
    paused_until = :until,
    next_due_at = CASE WHEN :until IS NULL THEN next_due_at ELSE :next_due_at END
WHERE id = :id;

-- name: resume_schedule
UPDATE tickwork_schedule
SET paused_at = NULL, pause_note = '', paused_until = NULL, next_due_at = :next_due_at
WHERE id = :id;

-- name: due_schedules
-- Reads a bounded number of due schedules, so that a backlog for other workers costs no more.
SELECT {schedule_columns}
FROM (
    SELECT {schedule_columns} FROM tickwork_schedule
    WHERE {is_due}
    ORDER BY next_due_at, id
    LIMIT :head_size
)
WHERE (paused_at IS NULL OR paused_until <= :now)
  AND (:jobs IS NULL OR job IN (SELECT value FROM json_each(:jobs)))
  AND {is_not_retired}
LIMIT :limit;

-- fragment: is_due
-- The condition on pauses is that of the index.
next_due_at <= :now AND (paused_at IS NULL OR paused_until IS NOT NULL)

-- name: count_due
SELECT count(*) FROM (SELECT 1 FROM tickwork_schedule WHERE {is_due} LIMIT :head_size);

-- name: due_by_job
-- The first schedules of each job, then the first of those.
SELECT {schedule_columns}
FROM tickwork_schedule
WHERE id IN (
    SELECT schedule.id
    FROM json_each(:jobs) AS wanted
    CROSS JOIN tickwork_schedule AS schedule
        ON schedule.id IN (
            SELECT id FROM tickwork_schedule AS due
            WHERE due.job = wanted.value
              AND {is_due}
              AND (paused_at IS NULL OR paused_until <= :now)
              AND {is_not_retired}
            ORDER BY due.next_due_at, due.id
            LIMIT :limit
        )
)
ORDER BY next_due_at, id
LIMIT :limit;

-- name: move_schedules
-- Compare and set: the schedule was fired by the ticker that moved it first.
UPDATE tickwork_schedule
SET next_due_at = ?3,
    last_fired_at = CASE
        WHEN ?4 IS NULL THEN last_fired_at
        ELSE max(coalesce(last_fired_at, ?4), ?4)
    END,
    paused_at = NULL,
    pause_note = '',
    paused_until = NULL
WHERE id = ?1 AND next_due_at = ?2;

-- name: next_firing
SELECT min(next_due_at) FROM tickwork_schedule
WHERE next_due_at IS NOT NULL
  AND (paused_at IS NULL OR paused_until IS NOT NULL)
  AND {is_not_retired};

-- name: next_firing_of
-- The first schedule of each known job: schedules of unknown jobs may have been due for a long
-- time.
SELECT min((
    SELECT next_due_at FROM tickwork_schedule
    WHERE job = wanted.value
      AND next_due_at IS NOT NULL
      AND (paused_at IS NULL OR paused_until IS NOT NULL)
      AND {is_not_retired}
    ORDER BY next_due_at
    LIMIT 1
))
FROM json_each(:jobs) AS wanted;

-- fragment: is_not_retired
(:seen_after IS NULL OR origin <> 'code' OR seen_at >= :seen_after)
