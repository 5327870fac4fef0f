-- name: set_limits
INSERT INTO tickwork_limit (name, slots) VALUES [[(?1, ?2)]]
ON DUPLICATE KEY UPDATE slots = VALUES(slots);

-- name: override_limit
INSERT INTO tickwork_limit (name, slots, override) VALUES (:name, 0, :slots)
ON DUPLICATE KEY UPDATE override = VALUES(override);

-- name: insert_pause
INSERT INTO tickwork_pause ({pause_columns}) VALUES ({pause_params})
ON DUPLICATE KEY UPDATE
    paused_at = VALUES(paused_at), note = VALUES(note), until = VALUES(until);

-- name: take_lock
-- The server evaluates assignments from left to right, each with the new values of those before it.
-- So `until`, which decides whether the lock is free, comes last; a new owner counts as the owner
-- in the assignments after it.
INSERT INTO tickwork_lock ({lock_columns}) VALUES ({lock_params})
ON DUPLICATE KEY UPDATE
    owner = CASE WHEN {is_free} THEN VALUES(owner) ELSE owner END,
    host = CASE WHEN {is_free} THEN VALUES(host) ELSE host END,
    pid = CASE WHEN {is_free} THEN VALUES(pid) ELSE pid END,
    acquired_at = CASE WHEN {is_free} THEN VALUES(acquired_at) ELSE acquired_at END,
    until = CASE WHEN {is_free} THEN VALUES(until) ELSE until END;

-- fragment: is_free
until <= :now OR owner = VALUES(owner)

-- name: renew_lock
-- Depending on a flag of the connection, the row count of an UPDATE excludes unchanged rows, so the
-- rows are counted by a query.
UPDATE tickwork_lock SET until = :until WHERE name = :name AND owner = :owner AND until > :now;
SELECT count(*) FROM tickwork_lock WHERE name = :name AND owner = :owner AND until = :until;

-- name: beat_worker
INSERT INTO tickwork_worker ({worker_columns}) VALUES ({worker_params})
ON DUPLICATE KEY UPDATE
    beat_at = VALUES(beat_at),
    queues = VALUES(queues),
    jobs = VALUES(jobs),
    slots = VALUES(slots),
    running = VALUES(running);
