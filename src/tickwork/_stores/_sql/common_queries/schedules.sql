-- name: update_schedule
UPDATE tickwork_schedule
SET {schedule_changes},
    next_due_at = :next_due_at::bigint,
    seen_at = :now::bigint,
    revision = revision + 1
WHERE id = :id::uuid AND revision = :revision::integer;

-- name: get_schedule_by_id
SELECT {schedule_columns} FROM tickwork_schedule WHERE id = :id::uuid;

-- name: list_expected_schedules
SELECT {schedule_columns} FROM tickwork_schedule
WHERE expect_within IS NOT NULL
ORDER BY tenant, name
LIMIT :limit::bigint;

-- name: delete_schedule
DELETE FROM tickwork_schedule WHERE id = :id::uuid;

-- name: list_definitions
SELECT {definition_columns} FROM tickwork_definition
WHERE seen_at >= :since::bigint
ORDER BY kind, name, application;

-- name: prune_definitions
DELETE FROM tickwork_definition WHERE seen_at < :before::bigint;
