-- name: read_rates
-- Each key with the starts that leave its window next: the requested number, and one for each
-- unblocked run that may start first.
SELECT rate.key, rate.number, rate.idle_at, rate.next_start_at, rate.opened, start.number, start.at
FROM json_each(:wanted) AS wanted
CROSS JOIN tickwork_rate AS rate ON rate.key = wanted.value ->> 0
LEFT JOIN tickwork_start AS start
    ON start.key = rate.key
    AND start.number > rate.number - (wanted.value ->> 1)
    AND start.number <= rate.number - (wanted.value ->> 1) + rate.opened + (wanted.value ->> 2);

-- name: save_rates
INSERT INTO tickwork_rate (key, number, idle_at, next_start_at, opened)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET number = excluded.number,
    idle_at = excluded.idle_at,
    next_start_at = excluded.next_start_at,
    opened = excluded.opened;

-- name: insert_starts
INSERT INTO tickwork_start (key, number, at) VALUES (?, ?, ?)
ON CONFLICT (key, number) DO UPDATE SET at = excluded.at;

-- name: forget_starts
DELETE FROM tickwork_start WHERE key = ? AND number <= ?;

-- name: reset_rates
-- For rows that cannot be read: the key starts anew.
DELETE FROM tickwork_start WHERE key = ?;
DELETE FROM tickwork_rate WHERE key = ?;

-- name: keys_waiting
SELECT value FROM json_each(:keys)
WHERE EXISTS (SELECT 1 FROM tickwork_run WHERE blocked_on = value);

-- name: unblock_expired
UPDATE tickwork_run
SET phase = 'ready', blocked_on = NULL
WHERE id IN (
    SELECT id FROM tickwork_run
    WHERE blocked_on = ? AND expires_at < ? AND phase = 'blocked' AND {is_unclaimed}
    ORDER BY expires_at
    LIMIT ?
);

-- name: advance_turns
-- Their next turn is due at once, so that the changed limit is applied now.
UPDATE tickwork_rate
SET next_start_at = 0
WHERE next_start_at IS NOT NULL AND (key = :name OR (key >= :name || '=' AND key < :name || '>'));

-- name: set_turns
INSERT INTO tickwork_rate (key, number, next_start_at, opened)
VALUES (?, 0, 0, 0)
ON CONFLICT (key) DO UPDATE SET next_start_at = 0;

-- name: queue_position
-- The position of a blocked run among those that wait for the same key, counted up to a cap.
SELECT count(*) FROM (
    SELECT 1 FROM tickwork_run AS run
    JOIN tickwork_run AS other
        ON other.blocked_on = run.blocked_on
        AND (other.priority, other.due_at, other.id) <= (run.priority, run.due_at, run.id)
    WHERE run.id = :id
    LIMIT :cap
);

-- name: delete_rates
DELETE FROM tickwork_start
WHERE key IN (
    SELECT key FROM tickwork_rate
    WHERE key IN (SELECT value FROM json_each(:keys)) AND next_start_at IS NULL AND idle_at < :before
);
DELETE FROM tickwork_rate
WHERE key IN (SELECT value FROM json_each(:keys)) AND next_start_at IS NULL AND idle_at < :before;
