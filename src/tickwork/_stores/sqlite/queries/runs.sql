-- name: find_ids
-- Which of these runs exist, unfinished or finished: for a repeat after a lost answer.
SELECT id FROM tickwork_run WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id FROM tickwork_history WHERE id IN (SELECT value FROM json_each(:ids));

-- name: insert_runs
INSERT INTO tickwork_run (status, {new_run_columns}) VALUES ('pending', {new_run_places});

-- name: replace_runs
-- The rows are locked already.
UPDATE tickwork_run SET {replaced_run_changes} WHERE id = ?1;

-- name: protect_keys
-- A key is taken over when its window has passed, or, without a window, when its run is finished.
INSERT INTO tickwork_unique (key, run, until)
VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET run = excluded.run, until = excluded.until
WHERE CASE
    WHEN tickwork_unique.until IS NULL
    THEN NOT EXISTS (SELECT 1 FROM tickwork_run WHERE tickwork_run.id = tickwork_unique.run)
    ELSE tickwork_unique.until <= ?
END;

-- name: stage_runs
UPDATE tickwork_run
SET phase = 'ready'
WHERE id IN (
    SELECT id FROM tickwork_run
    WHERE phase = 'waiting' AND due_at <= :now AND blocked_on IS NULL AND {is_unclaimed}
    ORDER BY due_at
    LIMIT :limit
);

-- fragment: is_unclaimed
-- A row that another program made inconsistent would violate a constraint of the table, and the
-- statement would fail for the other runs, too.
(status = 'pending' OR status = 'failed') AND lease_until IS NULL

-- name: pending_work
-- One row, each value from the end of an index: the cost does not depend on the number of runs.
SELECT
    (SELECT min(due_at) FROM tickwork_run WHERE phase = 'waiting'),
    (SELECT min(lease_until) FROM tickwork_run WHERE lease_until IS NOT NULL),
    (SELECT min(blocked_on) FROM tickwork_run WHERE blocked_on IS NOT NULL),
    (SELECT min(priority) FROM tickwork_run WHERE phase = 'ready'),
    (SELECT min(next_start_at) FROM tickwork_rate WHERE next_start_at IS NOT NULL),
    (SELECT 1 FROM tickwork_outbox LIMIT 1);

-- name: next_due
SELECT (SELECT min(due_at) FROM tickwork_run WHERE phase = 'waiting'), (SELECT min(next_start_at) FROM tickwork_rate WHERE next_start_at IS NOT NULL), (SELECT 1 FROM tickwork_outbox LIMIT 1);

-- name: pick_ready
-- Reads a bounded number of rows from the head of the index, so that a backlog for other workers
-- costs no more.
SELECT {claim_columns}
FROM (
    SELECT {claim_columns} FROM tickwork_run
    WHERE phase = 'ready'
    ORDER BY priority, due_at, id
    LIMIT :head_size
)
WHERE {is_wanted}
LIMIT :limit;

-- fragment: is_wanted
(:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
  AND (:jobs IS NULL OR job IN (SELECT value FROM json_each(:jobs)))
  AND (:is_ahead = 0 OR (limit_keys IS NULL AND token = 0))
  AND queue NOT IN (
      SELECT name FROM tickwork_pause WHERE kind = 'queue' AND coalesce(until > :now, 1)
  )
  AND job NOT IN (
      SELECT name FROM tickwork_pause WHERE kind = 'job' AND coalesce(until > :now, 1)
  )

-- name: count_head
SELECT count(*) FROM (SELECT 1 FROM tickwork_run WHERE phase = 'ready' LIMIT :head_size);

-- name: ready_pairs
-- The (queue, job) pairs that have ready runs. Skips from one pair to the next, in the same queue
-- or else in the next one. With (queue, job) > (…), SQLite would read the whole queue.
WITH RECURSIVE pairs (queue, job) AS (
    SELECT queue, job FROM (
        SELECT queue, job FROM tickwork_run
        WHERE phase = 'ready'
        ORDER BY queue, job LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.job
    FROM pairs
    CROSS JOIN tickwork_run AS next ON next.id = coalesce(
        (SELECT id FROM tickwork_run
         WHERE phase = 'ready' AND queue = pairs.queue AND job > pairs.job
         ORDER BY queue, job LIMIT 1),
        (SELECT id FROM tickwork_run
         WHERE phase = 'ready' AND queue > pairs.queue
         ORDER BY queue, job LIMIT 1)
    )
)
SELECT queue, job FROM pairs;

-- name: pick_by_pairs
-- The first runs of each pair, then the first of those.
SELECT {claim_columns}
FROM tickwork_run
WHERE id IN (
    SELECT run.id
    FROM json_each(:pairs) AS pair
    CROSS JOIN tickwork_run AS run
        ON run.id IN (
            SELECT id FROM tickwork_run AS best
            WHERE best.phase = 'ready'
              AND best.queue = pair.value ->> 0
              AND best.job = pair.value ->> 1
            ORDER BY best.priority, best.due_at, best.id
            LIMIT :limit
        )
)
  AND {is_wanted}
ORDER BY priority, due_at, id
LIMIT :limit;

-- name: take_runs
UPDATE tickwork_run
SET status = 'running',
    phase = 'running',
    token = token + 1,
    attempt = attempt + 1,
    claim_tag = :tag,
    lease_until = :lease_until,
    worker = :worker,
    started_at = :started_at,
    external_id = NULL,
    -- When a run that waited behind another of its schedule starts, the next one may wait.
    overlap_key = CASE WHEN overlap_key LIKE 'waiting:%' THEN NULL ELSE overlap_key END
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: end_unusable
-- A row that cannot be used is moved to history with the reason, so that it does not stop other
-- runs.
INSERT OR IGNORE INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {moved_columns}, ?4, attempt, crashes, cancel_requested_at, started_at, ?2, ?5, NULL, ?3
FROM tickwork_run WHERE id = ?1;
DELETE FROM tickwork_run WHERE id = ?1;
DELETE FROM tickwork_slot WHERE run = ?1;

-- name: held_slots
SELECT run, key FROM tickwork_slot WHERE run IN (SELECT value FROM json_each(:ids));

-- name: lock_gates
-- SQLite has one writer at a time: there is nothing to lock.
SELECT value FROM json_each(:gates);

-- name: try_gates
SELECT value FROM json_each(:gates);

-- name: orphan_slots
SELECT run, key FROM tickwork_slot
WHERE key IN (SELECT value FROM json_each(:keys))
  AND NOT EXISTS (SELECT 1 FROM tickwork_run WHERE id = tickwork_slot.run);

-- name: insert_slots
INSERT OR IGNORE INTO tickwork_slot (run, key) VALUES (?, ?);

-- name: delete_slots
DELETE FROM tickwork_slot WHERE run = ? AND key = ?;

-- name: block_runs
UPDATE tickwork_run SET phase = 'blocked', blocked_on = ? WHERE id = ?;

-- name: unblock
UPDATE tickwork_run
SET phase = 'ready', blocked_on = NULL
WHERE id IN (
    SELECT id FROM tickwork_run
    WHERE blocked_on = ? AND phase = 'blocked' AND {is_unclaimed}
    ORDER BY priority, due_at, id
    LIMIT ?
);

-- name: keys_blocked
-- Skips from one key to the next: a hundred thousand runs may wait for the same key.
WITH RECURSIVE keys (key) AS (
    SELECT min(blocked_on) FROM tickwork_run WHERE blocked_on > :after
    UNION ALL
    SELECT (SELECT min(blocked_on) FROM tickwork_run WHERE blocked_on > keys.key)
    FROM keys
    WHERE keys.key IS NOT NULL
)
SELECT key FROM keys WHERE key IS NOT NULL LIMIT :limit;

-- name: keys_blocked_by
SELECT DISTINCT blocked_on FROM tickwork_run
WHERE blocked_on = :name OR (blocked_on >= :name || '=' AND blocked_on < :name || '>');
