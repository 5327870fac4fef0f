-- name: set_limits
INSERT INTO tickwork_limit (name, slots) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET slots = excluded.slots;

-- name: override_limit
INSERT INTO tickwork_limit (name, slots, override) VALUES (:name, 0, :slots)
ON CONFLICT (name) DO UPDATE SET override = excluded.override;

-- name: insert_pause
INSERT INTO tickwork_pause ({pause_columns}) VALUES ({pause_params})
ON CONFLICT (kind, name) DO UPDATE
SET paused_at = excluded.paused_at, note = excluded.note, until = excluded.until;

-- name: take_lock
INSERT INTO tickwork_lock ({lock_columns}) VALUES ({lock_params})
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner,
    host = excluded.host,
    pid = excluded.pid,
    acquired_at = excluded.acquired_at,
    until = excluded.until
WHERE tickwork_lock.until <= :now OR tickwork_lock.owner = excluded.owner;

-- name: renew_lock
UPDATE tickwork_lock SET until = :until WHERE name = :name AND owner = :owner AND until > :now;

-- name: beat_worker
INSERT INTO tickwork_worker ({worker_columns}) VALUES ({worker_params})
ON CONFLICT (id) DO UPDATE
SET beat_at = excluded.beat_at,
    queues = excluded.queues,
    jobs = excluded.jobs,
    slots = excluded.slots,
    running = excluded.running;
