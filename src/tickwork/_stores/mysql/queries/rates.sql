-- fragment: these_keys
JSON_TABLE(:json_keys, '$[*]' COLUMNS (`key` {a_name} PATH '$')) AS wanted

-- name: read_rates
-- Each key with the starts that leave its window next: the requested number, and one for each
-- unblocked run that may start first. This must not be one statement with the lock of the gate. The
-- key is compared as a range, so that the index is also searched by number: with an equality, the
-- server would read every start of the key.
SELECT rate.`key`, rate.number, rate.idle_at, rate.next_start_at, rate.opened, start.number, start.at
FROM JSON_TABLE(:json_wanted, '$[*]' COLUMNS (
    `key` {a_name} PATH '$[0]', starts BIGINT PATH '$[1]', most BIGINT PATH '$[2]'
)) AS wanted
STRAIGHT_JOIN tickwork_rate AS rate FORCE INDEX (PRIMARY) ON rate.`key` = wanted.`key`
LEFT JOIN tickwork_start AS start FORCE INDEX (PRIMARY)
    ON start.`key` >= rate.`key`
    AND start.`key` <= rate.`key`
    AND start.number > {last_start} - wanted.starts
    AND start.number <= {last_start} - wanted.starts + rate.opened + wanted.most;

-- fragment: last_start
-- A number out of range must not make the arithmetic fail: the row is then found to be unreadable.
least(greatest(rate.number, 0), 1000000000000000000)

-- name: save_rates
INSERT INTO tickwork_rate (`key`, number, idle_at, next_start_at, opened)
VALUES [[(?1, ?2, ?3, ?4, ?5)]]
ON DUPLICATE KEY UPDATE
    number = VALUES(number),
    idle_at = VALUES(idle_at),
    next_start_at = VALUES(next_start_at),
    opened = VALUES(opened);

-- name: insert_starts
INSERT INTO tickwork_start (`key`, number, at) VALUES [[(?1, ?2, ?3)]]
ON DUPLICATE KEY UPDATE at = VALUES(at);

-- name: forget_starts
-- One statement for each key: for several keys at once the server would read every start.
DELETE FROM tickwork_start WHERE `key` = ?1 AND number <= ?2;

-- name: reset_rates
-- For rows that cannot be read: the key starts anew.
DELETE FROM tickwork_start WHERE `key` = ?1;
DELETE FROM tickwork_rate WHERE `key` = ?1;

-- name: keys_waiting
SELECT wanted.`key` FROM {these_keys}
WHERE (
    SELECT 1 FROM tickwork_run AS run FORCE INDEX (blocked)
    WHERE run.blocked_on = wanted.`key`
    LIMIT 1
);

-- name: unblock_expired
UPDATE (
    [[rows BY UNION ALL
    (
        SELECT id FROM tickwork_run FORCE INDEX (expiring)
        WHERE blocked_on = ?1 AND expires_at < ?2 AND phase = 'blocked' AND {is_unclaimed}
        ORDER BY expires_at
        LIMIT ?3
        FOR UPDATE SKIP LOCKED
    )]]
) AS expired
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = expired.id
SET run.phase = 'ready', run.blocked_on = NULL;

-- name: advance_turns
-- Their next turn is due at once, so that the changed limit is applied now.
UPDATE tickwork_rate FORCE INDEX (PRIMARY)
SET next_start_at = 0
WHERE next_start_at IS NOT NULL
  AND (`key` = :name OR (`key` >= concat(:name, '=') AND `key` < concat(:name, '>')));

-- name: set_turns
INSERT INTO tickwork_rate (`key`, number, next_start_at, opened) VALUES [[(?1, 0, 0, 0)]]
ON DUPLICATE KEY UPDATE next_start_at = 0;

-- name: queue_position
-- The position of a blocked run among those that wait for the same key, counted up to a cap.
SELECT blocked_on, priority, due_at, id FROM tickwork_run WHERE id = :id AND blocked_on IS NOT NULL;
SELECT count(*) FROM (
    SELECT 1 FROM tickwork_run FORCE INDEX (blocked)
    WHERE blocked_on = :found_1
      AND (
          priority < :found_2
          OR (priority = :found_2 AND due_at < :found_3)
          OR (priority = :found_2 AND due_at = :found_3 AND id <= :found_4)
      )
    LIMIT :cap
) AS better;

-- name: delete_rates
-- The gates of these keys are locked: no other transaction adds a start.
DELETE start
FROM {these_keys}
STRAIGHT_JOIN tickwork_rate AS rate FORCE INDEX (PRIMARY) ON rate.`key` = wanted.`key`
STRAIGHT_JOIN tickwork_start AS start FORCE INDEX (PRIMARY) ON start.`key` = rate.`key`
WHERE rate.next_start_at IS NULL AND rate.idle_at < :before;
DELETE rate
FROM {these_keys}
STRAIGHT_JOIN tickwork_rate AS rate FORCE INDEX (PRIMARY) ON rate.`key` = wanted.`key`
WHERE rate.next_start_at IS NULL AND rate.idle_at < :before;
