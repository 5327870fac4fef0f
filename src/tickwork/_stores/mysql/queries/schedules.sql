-- name: insert_schedules
-- An existing row is locked, not changed, so that it cannot be deleted before it is read.
INSERT INTO tickwork_schedule ({new_schedule_columns}) VALUES [[({new_schedule_places})]]
ON DUPLICATE KEY UPDATE name = VALUES(name);

-- name: get_schedules
SELECT {schedule_columns} FROM tickwork_schedule FORCE INDEX (name)
WHERE (tenant, name) IN (:names);

-- name: scheduled_jobs
-- Skips from one job to the next: a job may have a million schedules.
SELECT DISTINCT job FROM tickwork_schedule FORCE INDEX (job_due) WHERE job <> '';

-- name: list_schedules
SELECT {schedule_columns} FROM tickwork_schedule FORCE INDEX (name)
WHERE (:tenant IS NULL OR tenant = :tenant)
  AND (
      :after_tenant IS NULL
      OR tenant > :after_tenant
      OR (tenant = :after_tenant AND name > :after_name)
  )
ORDER BY tenant, name
LIMIT :limit;

-- name: stamp_schedules
-- Skips locked rows: a ticker is firing those schedules, and the next stamp will include them.
UPDATE (
    SELECT id FROM tickwork_schedule FORCE INDEX (PRIMARY)
    WHERE id IN (:ids)
    ORDER BY id
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) AS seen
STRAIGHT_JOIN tickwork_schedule AS schedule FORCE INDEX (PRIMARY) ON schedule.id = seen.id
SET schedule.seen_at = :now;

-- name: stamp_jobs
INSERT INTO tickwork_job (tenant, name, seen_at) VALUES [[('', ?1, ?2)]]
ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at);

-- name: stamp_definitions
INSERT INTO tickwork_definition ({definition_columns}) VALUES [[({definition_places})]]
ON DUPLICATE KEY UPDATE handler = VALUES(handler), seen_at = VALUES(seen_at);

-- name: pause_schedule
-- Depending on a flag of the connection, the row count of an UPDATE excludes unchanged rows, so the
-- rows are counted by a query.
UPDATE tickwork_schedule
SET paused_at = :now,
    pause_note = :note,
    paused_until = :until,
    next_due_at = CASE WHEN :until IS NULL THEN next_due_at ELSE :next_due_at END
WHERE id = :id;
SELECT count(*) FROM tickwork_schedule WHERE id = :id;

-- name: resume_schedule
UPDATE tickwork_schedule
SET paused_at = NULL, pause_note = '', paused_until = NULL, next_due_at = :next_due_at
WHERE id = :id;
SELECT count(*) FROM tickwork_schedule WHERE id = :id;

-- name: due_schedules
-- Reads a bounded number of due schedules, so that a backlog for other workers costs no more, and
-- locks none of them. Then it locks the wanted ones and skips those that another ticker has locked.
SELECT {schedule_columns}
FROM (
    SELECT id AS place
    FROM (
        SELECT id, job, origin, seen_at, paused_at, paused_until
        FROM tickwork_schedule FORCE INDEX (due)
        WHERE fires_at <= :now
        ORDER BY fires_at, id
        LIMIT :head_size
    ) AS head
    WHERE {is_not_paused} AND (:no_jobs OR job IN (:jobs)) AND {is_not_retired}
    LIMIT :head_size
) AS wanted
STRAIGHT_JOIN tickwork_schedule FORCE INDEX (PRIMARY) ON id = place
WHERE fires_at <= :now AND {is_not_paused}
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- fragment: is_not_paused
(paused_at IS NULL OR paused_until <= :now)

-- name: count_due
SELECT count(*) FROM (
    SELECT 1 FROM tickwork_schedule FORCE INDEX (due) WHERE fires_at <= :now LIMIT :head_size
) AS due;

-- name: due_by_job
-- The first schedules of each job, then the first of those, locked as in due_schedules. Each job
-- gives twice the limit, because other tickers may have locked half of them.
SELECT {schedule_columns}
FROM (
    SELECT place
    FROM (
        [[jobs BY UNION ALL
        (
            SELECT id AS place, fires_at FROM tickwork_schedule FORCE INDEX (job_due)
            WHERE job = ?1 AND fires_at <= :now AND {is_not_paused} AND {is_not_retired}
            ORDER BY fires_at, id
            LIMIT :limit*2
        )]]
    ) AS first
    ORDER BY fires_at, place
    LIMIT :limit*4
) AS wanted
STRAIGHT_JOIN tickwork_schedule FORCE INDEX (PRIMARY) ON id = place
WHERE fires_at <= :now AND {is_not_paused}
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: move_schedules
-- Compare and set: the schedule was fired by the ticker that moved it first. The rows are locked
-- already.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    id {id} PATH '$[0]', due_at BIGINT PATH '$[1]', next_due_at BIGINT PATH '$[2]',
    last_fired_at BIGINT PATH '$[3]'
)) AS move
STRAIGHT_JOIN tickwork_schedule AS schedule FORCE INDEX (PRIMARY) ON schedule.id = move.id
SET schedule.next_due_at = move.next_due_at,
    schedule.last_fired_at = coalesce(
        greatest(schedule.last_fired_at, move.last_fired_at), move.last_fired_at,
        schedule.last_fired_at
    ),
    schedule.paused_at = NULL,
    schedule.pause_note = '',
    schedule.paused_until = NULL
WHERE schedule.next_due_at = move.due_at;

-- name: move_together
-- The same for schedules that move from one time to the same next one. An UPDATE of one table takes
-- half the time of one with a join.
UPDATE tickwork_schedule FORCE INDEX (PRIMARY)
SET next_due_at = :next_due_at,
    last_fired_at = coalesce(
        greatest(last_fired_at, :last_fired_at), :last_fired_at, last_fired_at
    ),
    paused_at = NULL,
    pause_note = '',
    paused_until = NULL
WHERE id IN (:ids) AND next_due_at = :due_at;

-- name: next_firing
SELECT (
    SELECT fires_at FROM tickwork_schedule FORCE INDEX (due)
    WHERE fires_at IS NOT NULL AND {is_not_retired}
    ORDER BY fires_at, id
    LIMIT 1
);

-- name: next_firing_of
-- The first schedule of each known job: schedules of unknown jobs may have been due for a long
-- time.
SELECT min((
    SELECT fires_at FROM tickwork_schedule FORCE INDEX (job_due)
    WHERE job = wanted.job AND fires_at IS NOT NULL AND {is_not_retired}
    ORDER BY fires_at
    LIMIT 1
))
FROM JSON_TABLE(:json_jobs, '$[*]' COLUMNS (job {a_name} PATH '$')) AS wanted;

-- fragment: is_not_retired
(:seen_after IS NULL OR origin <> 'code' OR seen_at >= :seen_after)
