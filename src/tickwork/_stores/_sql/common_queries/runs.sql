-- name: key_holders
-- Read without a lock before the insert: in a test on MariaDB that reduced deadlocks from 1,204
-- to 6.
SELECT {key}, run FROM tickwork_unique FORCE INDEX (PRIMARY)
WHERE {key} {in_keys} AND {is_protected};

-- fragment: is_protected
CASE
    WHEN until IS NULL
    THEN EXISTS (SELECT 1 FROM tickwork_run WHERE tickwork_run.id = tickwork_unique.run)
    ELSE until > :now::bigint
END

-- name: overlap_holders
SELECT overlap_key, id FROM tickwork_run FORCE INDEX (overlap) WHERE overlap_key {in_keys};

-- name: lock_waiting
-- In the order of ids, as everywhere. A run that was claimed has lost its key.
SELECT overlap_key, id, created_at, due_at, phase, queue, limit_keys, blocked_on
FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id {in_ids}
ORDER BY id
{for_update};

-- name: taken_keys
-- Overlap keys of unfinished runs, and unique keys that are held. `others` are the keys that may be
-- unique keys.
SELECT overlap_key FROM tickwork_run FORCE INDEX (overlap) WHERE overlap_key {in_keys}
UNION ALL
SELECT {key} FROM tickwork_unique FORCE INDEX (PRIMARY) WHERE {key} {in_others} AND {is_protected};

-- name: count_slots
SELECT {key}, count(*) FROM tickwork_slot FORCE INDEX (taken) WHERE {key} {in_keys} GROUP BY {key};

-- name: slots_and_limits
-- This must not be one statement with the lock: it would count the slots as they were before the
-- lock was granted.
SELECT 0, {key}, count(*), NULL::integer FROM tickwork_slot FORCE INDEX (taken)
WHERE {key} {in_keys}
GROUP BY {key}
UNION ALL
SELECT 1, name, slots, override FROM tickwork_limit;

-- name: lock_run
SELECT status, phase, token, limit_keys, links FROM tickwork_run WHERE id = :id::uuid {for_update};

-- name: is_finished
SELECT count(*) FROM tickwork_history WHERE id = :id::uuid;

-- name: move_run
UPDATE tickwork_run
SET {set_era}
    due_at = :due_at::bigint,
    phase = CASE
        WHEN :due_at::bigint > :now::bigint THEN 'waiting'
        WHEN phase = 'waiting' THEN 'ready'
        ELSE phase
    END,
    blocked_on = CASE WHEN :due_at::bigint > :now::bigint THEN NULL ELSE blocked_on END
WHERE id = :id::uuid;
