-- Queries find rows by an index and lock them by id. The table is empty at one moment and has a
-- million rows at the next, so its statistics are always wrong, and a scan would lock rows of other
-- workers. Therefore queries name their index. Rows that a list names are joined to the list, in
-- its order, because a DELETE takes no index hint.

-- fragment: a_name
-- The collation of the columns for names and keys.
VARCHAR(512) CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */

-- fragment: a_text
-- In a JSON table, a text without a character set has the default of the database, and loses the
-- characters that are not in it.
LONGTEXT CHARACTER SET utf8mb4

-- fragment: a_word
-- A status, a phase or an outcome.
VARCHAR(32) CHARACTER SET ascii

-- fragment: of_run
-- MySQL must know which table is locked, because it cannot lock a JSON_TABLE. MariaDB locks no
-- JSON_TABLE, and has no such clause; it ignores the comment.
/*!80017 OF run */

-- fragment: these_ids
-- A list of ids as a table.
JSON_TABLE(:json_ids, '$[*]' COLUMNS (id {id} PATH '$')) AS wanted

-- name: find_ids
-- Which of these runs exist, unfinished or finished: for a repeat after a lost answer. Only a
-- locking read sees what was committed after the first read of a caller's transaction.
(SELECT id FROM tickwork_run FORCE INDEX (PRIMARY) WHERE id IN (:ids) LOCK IN SHARE MODE)
UNION ALL
(SELECT id FROM tickwork_history FORCE INDEX (PRIMARY) WHERE id IN (:ids) LOCK IN SHARE MODE);

-- name: insert_runs
INSERT INTO tickwork_run (status, {new_run_columns}) VALUES [[('pending', {new_run_places})]];

-- name: replace_runs
-- The rows are locked already.
UPDATE tickwork_run FORCE INDEX (PRIMARY) SET {replaced_run_changes} WHERE id = ?1;

-- name: protect_keys
-- A key is taken over when its window has passed, or, without a window, when its run is finished;
-- and only from the run that the SELECT found. A key that is still held is not locked: the worker
-- that finishes its run must not wait for this transaction, which may be a caller's.
SELECT held.`key`, held.run
FROM {wanted_keys}
STRAIGHT_JOIN tickwork_unique AS held FORCE INDEX (PRIMARY) ON held.`key` = wanted.`key`
WHERE held.run <> wanted.run
  AND CASE
      WHEN held.until IS NULL
      THEN NOT EXISTS (SELECT 1 FROM tickwork_run WHERE tickwork_run.id = held.run)
      ELSE held.until <= wanted.now_at
  END;
UPDATE {wanted_keys}
STRAIGHT_JOIN tickwork_unique AS held FORCE INDEX (PRIMARY) ON held.`key` = wanted.`key`
SET held.run = wanted.run, held.until = wanted.until
WHERE (held.`key`, held.run) IN (:found);
INSERT INTO tickwork_unique (`key`, run, until) VALUES [[(?1, ?2, ?3)]]
ON DUPLICATE KEY UPDATE `key` = VALUES(`key`);
SELECT count(*)
FROM {wanted_keys}
STRAIGHT_JOIN tickwork_unique AS held FORCE INDEX (PRIMARY)
    ON held.`key` = wanted.`key` AND held.run = wanted.run;

-- fragment: wanted_keys
JSON_TABLE(:rows, '$[*]' COLUMNS (
    `key` {a_name} PATH '$[0]', run {id} PATH '$[1]', until BIGINT PATH '$[2]',
    now_at BIGINT PATH '$[3]'
)) AS wanted

-- name: stage_runs
UPDATE (
    SELECT id FROM tickwork_run FORCE INDEX (waiting)
    WHERE waiting_at <= :now AND blocked_on IS NULL AND {is_unclaimed}
    ORDER BY waiting_at, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS due
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = due.id
SET run.phase = 'ready';

-- name: read_changes
-- The newest run, from the end of the primary key, and the counter of other changes.
SELECT (SELECT max(id) FROM tickwork_run), (SELECT changes FROM tickwork_change_counter);

-- name: count_change
-- If the row is locked, another transaction is incrementing the counter, and this one need not
-- wait.
UPDATE (SELECT only_one FROM tickwork_change_counter LIMIT 1 FOR UPDATE SKIP LOCKED) AS free
STRAIGHT_JOIN tickwork_change_counter AS change_counter FORCE INDEX (PRIMARY) ON change_counter.only_one = free.only_one
SET change_counter.changes = CASE WHEN change_counter.changes < 1000000000000000 THEN change_counter.changes + 1 ELSE 0 END;

-- fragment: is_unclaimed
-- A row that another program made inconsistent would violate a constraint of the table, and the
-- statement would fail for the other runs, too.
status IN ('pending', 'failed') AND lease_until IS NULL

-- name: pending_work
-- One row, each value from the end of an index: the cost does not depend on the number of runs.
SELECT
    (SELECT min(waiting_at) FROM tickwork_run),
    (SELECT min(lease_until) FROM tickwork_run),
    (SELECT min(blocked_on) FROM tickwork_run),
    (SELECT min(priority) FROM tickwork_run WHERE phase = 'ready'),
    (SELECT min(next_start_at) FROM tickwork_rate),
    (SELECT min(id) FROM tickwork_outbox);

-- name: next_due
SELECT
    (SELECT min(waiting_at) FROM tickwork_run),
    (SELECT min(next_start_at) FROM tickwork_rate),
    (SELECT min(id) FROM tickwork_outbox);

-- name: pick_ready
-- Reads a bounded number of rows from the head of the index, so that a backlog for other workers
-- costs no more, and locks none of them. Then it locks the wanted rows one by one and skips rows
-- that others have locked, so that two workers that read the same head get different rows. A
-- locking read with these conditions, or one that sorts, would lock all rows that it reads.
SELECT {claim_columns}
FROM (
    SELECT id AS place
    FROM (
        SELECT id, queue, job, token, limit_keys IS NULL AS is_unlimited
        FROM tickwork_run FORCE INDEX (ready)
        WHERE phase = 'ready'
        ORDER BY priority, due_at, id
        LIMIT :head_size
    ) AS head
    WHERE {is_of_these_and_not_paused}
      AND (:is_ahead = 0 OR (is_unlimited AND token = 0))
    LIMIT :head_size
) AS wanted
STRAIGHT_JOIN tickwork_run FORCE INDEX (PRIMARY) ON id = place
WHERE phase = 'ready'
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- fragment: is_wanted
{is_of_these_and_not_paused}
  AND (:is_ahead = 0 OR (limit_keys IS NULL AND token = 0))

-- fragment: is_of_these_and_not_paused
(:no_queues OR queue IN (:queues))
  AND (:no_jobs OR job IN (:jobs))
  AND queue NOT IN (
      SELECT name FROM tickwork_pause WHERE kind = 'queue' AND coalesce(until > :now, 1)
  )
  AND job NOT IN (
      SELECT name FROM tickwork_pause WHERE kind = 'job' AND coalesce(until > :now, 1)
  )

-- name: count_head
SELECT count(*) FROM (
    SELECT 1 FROM tickwork_run FORCE INDEX (ready) WHERE phase = 'ready' LIMIT :head_size
) AS head;

-- name: ready_pairs
-- The (queue, job) pairs that have ready runs. With GROUP BY from the first column of the index on,
-- the server skips from one pair to the next.
SELECT queue, job FROM tickwork_run FORCE INDEX (pairs)
WHERE phase = 'ready'
GROUP BY phase, queue, job;

-- name: pick_by_pairs
-- The first runs of each pair, then the first of those, locked as in pick_ready. Each pair gives
-- twice the limit, because other workers may have locked half of them.
SELECT {claim_columns}
FROM (
    SELECT id AS place
    FROM (
        [[pairs BY UNION ALL
        (
            SELECT id, queue, job, priority, due_at, token, limit_keys IS NULL AS is_unlimited
            FROM tickwork_run FORCE INDEX (pairs)
            WHERE phase = 'ready' AND queue = ?1 AND job = ?2
            ORDER BY priority, due_at, id
            LIMIT :limit*2
        )]]
    ) AS best
    WHERE {is_of_these_and_not_paused}
      AND (:is_ahead = 0 OR (is_unlimited AND token = 0))
    ORDER BY priority, due_at, id
    LIMIT :limit*4
) AS wanted
STRAIGHT_JOIN tickwork_run FORCE INDEX (PRIMARY) ON id = place
WHERE phase = 'ready'
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: take_runs
UPDATE tickwork_run FORCE INDEX (PRIMARY)
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
WHERE id IN (:ids);

-- name: end_unusable
-- A row that cannot be used is moved to history with the reason, so that it does not stop other
-- runs.
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {run.moved_columns}, broken.status, attempt, crashes, cancel_requested_at, started_at,
       broken.ended_at, broken.outcome, NULL, broken.reason
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    id {id} PATH '$[0]', ended_at BIGINT PATH '$[1]', reason {a_text} PATH '$[2]',
    status {a_text} PATH '$[3]', outcome {a_text} PATH '$[4]'
)) AS broken
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = broken.id
ON DUPLICATE KEY UPDATE tickwork_history.id = tickwork_history.id;
DELETE run
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (id {id} PATH '$[0]')) AS broken
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = broken.id;
DELETE slot
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (id {id} PATH '$[0]')) AS broken
STRAIGHT_JOIN tickwork_slot AS slot FORCE INDEX (PRIMARY) ON slot.run = broken.id;

-- name: held_slots
SELECT run, `key` FROM tickwork_slot FORCE INDEX (PRIMARY) WHERE run IN (:ids);

-- name: lock_gates
-- All transactions lock gates in ascending order and wait, so that there are no deadlocks.
SELECT gate FROM tickwork_gate FORCE INDEX (PRIMARY)
WHERE gate IN (:gates)
ORDER BY gate
FOR UPDATE;

-- name: try_gates
SELECT gate FROM tickwork_gate FORCE INDEX (PRIMARY)
WHERE gate IN (:gates)
ORDER BY gate
FOR UPDATE SKIP LOCKED;

-- name: count_gates
SELECT count(*) FROM tickwork_gate FORCE INDEX (PRIMARY) WHERE gate BETWEEN 0 AND 1023;

-- name: restore_gates
INSERT INTO tickwork_gate (gate)
WITH RECURSIVE digits (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digits WHERE n < 31)
SELECT tens.n * 32 + ones.n FROM digits AS tens CROSS JOIN digits AS ones WHERE true
ON DUPLICATE KEY UPDATE gate = VALUES(gate);

-- name: orphan_slots
SELECT run, `key` FROM tickwork_slot FORCE INDEX (taken)
WHERE `key` IN (:keys)
  AND NOT EXISTS (SELECT 1 FROM tickwork_run WHERE tickwork_run.id = tickwork_slot.run);

-- name: insert_slots
INSERT INTO tickwork_slot (run, `key`) VALUES [[(?1, ?2)]]
ON DUPLICATE KEY UPDATE run = VALUES(run);

-- name: delete_slots
DELETE slot
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    run {id} PATH '$[0]', `key` {a_name} PATH '$[1]'
)) AS freed
STRAIGHT_JOIN tickwork_slot AS slot FORCE INDEX (PRIMARY)
    ON slot.run = freed.run AND slot.`key` = freed.`key`;

-- name: block_runs
-- The rows are locked already.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    `key` {a_name} PATH '$[0]', id {id} PATH '$[1]'
)) AS blocked
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = blocked.id
SET run.phase = 'blocked', run.blocked_on = blocked.`key`;

-- name: unblock
UPDATE (
    [[rows BY UNION ALL
    (
        SELECT id FROM tickwork_run FORCE INDEX (blocked)
        WHERE blocked_on = ?1 AND phase = 'blocked' AND {is_unclaimed}
        ORDER BY priority, due_at, id
        LIMIT ?2
        FOR UPDATE SKIP LOCKED
    )]]
) AS chosen
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = chosen.id
SET run.phase = 'ready', run.blocked_on = NULL;

-- name: keys_blocked
-- Skips from one key to the next: a hundred thousand runs may wait for the same key.
SELECT DISTINCT blocked_on FROM tickwork_run FORCE INDEX (blocked)
WHERE blocked_on > :after
ORDER BY blocked_on
LIMIT :limit;

-- name: keys_blocked_by
SELECT DISTINCT blocked_on FROM tickwork_run FORCE INDEX (blocked)
WHERE blocked_on = :name
   OR (blocked_on >= concat(:name, '=') AND blocked_on < concat(:name, '>'));
