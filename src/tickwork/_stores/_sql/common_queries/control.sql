-- name: list_limits
SELECT {limit_columns} FROM tickwork_limit ORDER BY name;

-- name: delete_pause
DELETE FROM tickwork_pause WHERE kind = :kind::text AND name = :name::text;

-- name: list_pauses
SELECT {pause_columns} FROM tickwork_pause ORDER BY kind, name;

-- name: get_lock
SELECT {lock_columns} FROM tickwork_lock WHERE name = :name::text;

-- name: release_lock
DELETE FROM tickwork_lock
WHERE name = :name::text AND (:owner::text IS NULL OR owner = :owner::text);

-- name: delete_worker
DELETE FROM tickwork_worker WHERE id = :id::uuid;

-- name: list_workers
SELECT {worker_columns} FROM tickwork_worker
ORDER BY beat_at DESC, id;
