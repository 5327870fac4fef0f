-- name: set_limits
INSERT INTO tickwork_limit (name, slots) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET slots = excluded.slots;

-- name: override_limit
INSERT INTO tickwork_limit (name, slots, override) VALUES (:name, 0, :slots)
ON CONFLICT (name) DO UPDATE SET override = excluded.override;

-- name: list_limits
SELECT {limit_columns} FROM tickwork_limit ORDER BY name;

-- name: insert_pause
INSERT INTO tickwork_pause ({pause_columns}) VALUES ({pause_params})
ON CONFLICT (kind, name) DO UPDATE
SET paused_at = excluded.paused_at, note = excluded.note, until = excluded.until;

-- name: delete_pause
DELETE FROM tickwork_pause WHERE kind = :kind AND name = :name;
SELECT changes();

-- name: list_pauses
SELECT {pause_columns} FROM tickwork_pause ORDER BY kind, name;

-- name: take_lock
INSERT INTO tickwork_lock ({lock_columns}) VALUES ({lock_params})
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner,
    host = excluded.host,
    pid = excluded.pid,
    acquired_at = excluded.acquired_at,
    until = excluded.until
WHERE tickwork_lock.until <= :now OR tickwork_lock.owner = excluded.owner;

-- name: get_lock
SELECT {lock_columns} FROM tickwork_lock WHERE name = :name;

-- name: renew_lock
UPDATE tickwork_lock SET until = :until WHERE name = :name AND owner = :owner AND until > :now;
SELECT changes();

-- name: release_lock
DELETE FROM tickwork_lock WHERE name = :name AND (:owner IS NULL OR owner = :owner);
SELECT changes();

-- name: beat_worker
INSERT INTO tickwork_worker ({worker_columns}) VALUES ({worker_params})
ON CONFLICT (id) DO UPDATE
SET beat_at = excluded.beat_at,
    queues = excluded.queues,
    jobs = excluded.jobs,
    slots = excluded.slots,
    running = excluded.running;

-- name: delete_worker
DELETE FROM tickwork_worker WHERE id = :id;

-- name: list_workers
SELECT {worker_columns} FROM tickwork_worker
ORDER BY beat_at DESC, id;
