-- name: find_ids
-- Which of these runs exist, unfinished or finished: for a repeat after a lost answer.
SELECT id FROM tickwork_run WHERE id = ANY (:ids::uuid[])
UNION ALL
SELECT id FROM tickwork_history WHERE id = ANY (:ids::uuid[]);

-- name: insert_runs
-- One statement for a single run, which is planned at once, and one for many runs.
INSERT INTO tickwork_run (status, era, {new_run_columns})
VALUES ('pending', {this_era}, {new_run_values});
INSERT INTO tickwork_run (status, era, {new_run_columns})
SELECT 'pending', (SELECT {this_era}), {new_run_elements};

-- name: replace_runs
-- The rows are locked already.
UPDATE tickwork_run AS run
SET {set_era} {replaced_run_joined}
FROM unnest({replaced_run_arrays}) AS given ({replaced_run_columns})
WHERE run.id = given.id AND run.id = ANY (:c1::uuid[]);

-- name: protect_keys
-- Takes keys that are free, keys whose window has passed, and keys without a window whose run is
-- finished. A key that is still held is not locked: the worker that finishes its run must not wait
-- for this transaction, which may be a caller's. It needs three statements: a statement that waited
-- for the key of another transaction still reads the runs as they were before, and would not find
-- the run of that key. For the same reason a key is taken over only from the run that the second
-- statement found.
INSERT INTO tickwork_unique (key, run, until)
SELECT key, run, until
FROM unnest(:c1::text[], :c2::uuid[], :c3::bigint[]) AS wanted (key, run, until)
ORDER BY key COLLATE "C"
ON CONFLICT (key) DO NOTHING;
WITH past AS MATERIALIZED (
    SELECT held.key, held.run AS held_by, wanted.run, wanted.until
    FROM unnest(:c1::text[], :c2::uuid[], :c3::bigint[], :c4::bigint[])
        AS wanted (key, run, until, now)
    JOIN tickwork_unique AS held ON held.key = wanted.key
    WHERE held.key = ANY (:c1::text[])
      AND held.run <> wanted.run
      AND CASE
          WHEN held.until IS NULL
          THEN NOT EXISTS (SELECT FROM tickwork_run WHERE tickwork_run.id = held.run)
          ELSE held.until <= wanted.now
      END
)
UPDATE tickwork_unique AS held
SET run = past.run, until = past.until
FROM past
WHERE held.key = past.key AND held.run = past.held_by;
SELECT count(*)
FROM unnest(:c1::text[], :c2::uuid[]) AS wanted (key, run)
JOIN tickwork_unique AS held ON held.key = wanted.key AND held.run = wanted.run
WHERE held.key = ANY (:c1::text[]);

-- name: stage_runs
WITH due AS (
    SELECT id FROM tickwork_run
    WHERE phase = 'waiting' AND due_at BETWEEN :lowest::bigint AND :now::bigint
      AND blocked_on IS NULL AND {is_unclaimed}
    ORDER BY due_at
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
)
UPDATE tickwork_run SET {set_era} phase = 'ready' WHERE id = ANY (ARRAY(SELECT id FROM due));

-- fragment: is_unclaimed
-- A row that another program made inconsistent would violate a constraint of the table, and the
-- statement would fail for the other runs, too.
status IN ('pending', 'failed') AND lease_until IS NULL

-- name: pending_work
-- One row, each value from the end of an index: the cost does not depend on the number of runs.
SELECT
    (SELECT min(due_at) FROM tickwork_run WHERE phase = 'waiting'),
    (SELECT min(lease_until) FROM tickwork_run WHERE lease_until IS NOT NULL),
    (SELECT min(blocked_on) FROM tickwork_run WHERE blocked_on IS NOT NULL),
    (SELECT 1 WHERE EXISTS (SELECT FROM tickwork_run WHERE phase = 'ready')),
    (SELECT min(next_start_at) FROM tickwork_rate WHERE next_start_at IS NOT NULL),
    (SELECT 1 WHERE EXISTS (SELECT FROM tickwork_outbox));

-- name: next_due
-- With the number of index entries that this session has read before and after: the values of a
-- row are computed from left to right.
SELECT due_at, next_start_at, outbox, before, pg_stat_get_xact_tuples_returned('tickwork_run_waiting'::regclass)
FROM (
    SELECT
        pg_stat_get_xact_tuples_returned('tickwork_run_waiting'::regclass) AS before,
        (
            SELECT min(due_at) FROM tickwork_run
            WHERE phase = 'waiting' AND due_at >= :lowest::bigint
        ) AS due_at,
        (SELECT min(next_start_at) FROM tickwork_rate WHERE next_start_at IS NOT NULL)
            AS next_start_at,
        (SELECT 1 WHERE EXISTS (SELECT FROM tickwork_outbox)) AS outbox
    OFFSET 0
) AS first;

-- name: pick_ready
-- Merges the heads of some eras, each in the order of its index: as many rows as are needed, and a
-- bounded number, so that a backlog for other workers costs no more. Then it locks the wanted rows
-- one by one and skips rows that others have locked, so that two workers that read the same head
-- get different rows; there is room for the batches of four other workers. Rows are found again by
-- ctid: a row that was updated since is not taken this time.
SELECT run.*
FROM (
    SELECT place
    FROM (
        SELECT * FROM ({era_heads}) AS heads
        ORDER BY priority, due_at, id
        LIMIT :head_size::bigint + 2000
    ) AS head
    WHERE {is_known} AND {is_wanted}
) AS wanted
CROSS JOIN LATERAL (
    SELECT {claim_columns} FROM tickwork_run
    WHERE ctid = wanted.place AND phase = 'ready'
    FOR UPDATE SKIP LOCKED
) AS run
LIMIT :limit::bigint;

-- fragment: is_wanted
-- IN (SELECT …) uses a hash: a worker may know a thousand jobs, and = ANY would compare each row
-- with all of them.
(:queues::text[] IS NULL OR queue IN (SELECT unnest(:queues::text[])))
  AND (:jobs::text[] IS NULL OR job IN (SELECT unnest(:jobs::text[])))
  AND (:is_ahead::integer = 0 OR (limit_keys IS NULL AND token = 0))
  AND queue <> ALL (ARRAY(
      SELECT name FROM tickwork_pause
      WHERE kind = 'queue' AND coalesce(until > :now::bigint, true)
  ))
  AND job <> ALL (ARRAY(
      SELECT name FROM tickwork_pause
      WHERE kind = 'job' AND coalesce(until > :now::bigint, true)
  ))

-- fragment: era_head
-- `#` is the number of the era: there is a statement for each number of eras.
(
    SELECT ctid AS place, queue, job, limit_keys, token, priority, due_at, id FROM tickwork_run
    WHERE phase = 'ready' AND era = (:eras::bigint[])[#]
      AND (priority, due_at, id)
          >= ((:priorities::integer[])[#], (:due_ats::bigint[])[#], (:ids::uuid[])[#])
      AND (priority, due_at, id) < (:end_priority::integer, :end_due_at::bigint, :end_id::uuid)
    ORDER BY priority, due_at, id
)

-- fragment: is_known
-- Whether what the worker remembers still holds. If not, no row is returned.
(SELECT coalesce({boundary} = :boundary::bigint, true))
  AND NOT EXISTS (
      SELECT FROM unnest(:late::text[]) AS late
      WHERE pg_visible_in_snapshot(late::xid8, pg_current_snapshot())
  )

-- name: count_head
SELECT count(*), {is_known} FROM (
    SELECT 1 FROM ({era_heads}) AS heads LIMIT :head_size::bigint
) AS head;

-- name: look_at_eras
-- One row for each era that has ready runs, and a last one for the transaction. Of the spans, those
-- are searched whose late transaction has ended: from one era to the next. The boundary is read
-- before this transaction gets its number.
WITH RECURSIVE found AS (
    SELECT span.high, first.*
    FROM (
        SELECT DISTINCT low, high
        FROM unnest(:lows::bigint[], :highs::bigint[], :late::text[]) AS span (low, high, late)
        WHERE late = '' OR pg_visible_in_snapshot(nullif(late, '')::xid8, pg_current_snapshot())
    ) AS span
    CROSS JOIN LATERAL (
        SELECT era, priority, due_at, id FROM tickwork_run
        WHERE phase = 'ready' AND era >= span.low AND era < span.high
        ORDER BY era, priority, due_at, id
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT found.high, next.*
    FROM found
    CROSS JOIN LATERAL (
        SELECT era, priority, due_at, id FROM tickwork_run
        WHERE phase = 'ready' AND era > found.era AND era < found.high
        ORDER BY era, priority, due_at, id
        LIMIT 1
    ) AS next
)
SELECT 'found', era, priority, due_at, id::text FROM found
UNION ALL
SELECT 'moved', first.*
FROM unnest(:eras::bigint[], :priorities::integer[], :due_ats::bigint[], :ids::uuid[])
    AS known (era, priority, due_at, id)
CROSS JOIN LATERAL (
    SELECT era, priority, due_at, id::text FROM tickwork_run
    WHERE phase = 'ready' AND era = known.era
      AND (priority, due_at, id) >= (known.priority, known.due_at, known.id)
    ORDER BY tickwork_run.priority, tickwork_run.due_at, tickwork_run.id
    LIMIT 1
) AS first
UNION ALL
SELECT CASE WHEN txid_current_if_assigned() IS NULL THEN 'first' ELSE 'later' END,
       boundary,
       NULL,
       CASE WHEN boundary > 0 THEN txid_current() END,
       pg_current_snapshot()::text
FROM (SELECT {boundary} AS boundary OFFSET 0) AS sequence;

-- fragment: boundary
-- A sequence that another program has reset has no last value: then nothing may be remembered.
coalesce(pg_sequence_last_value('tickwork_era'), 9223372036854775807)

-- name: count_dead
-- Index entries that this session read and that led to no row. A held snapshot keeps them.
SELECT pg_stat_get_xact_tuples_returned('tickwork_run_ready'::regclass)
       - pg_stat_get_xact_tuples_fetched('tickwork_run_ready'::regclass),
       pg_stat_get_xact_tuples_returned('tickwork_run_lease'::regclass)
       - pg_stat_get_xact_tuples_fetched('tickwork_run_lease'::regclass);

-- name: move_boundary
-- One transaction at a time, and only up: another one may have moved it.
SELECT setval('tickwork_era', greatest(pg_sequence_last_value('tickwork_era'), txid_current() + 1))
WHERE pg_try_advisory_xact_lock('tickwork_era'::regclass::oid::integer, 0)
  AND pg_sequence_last_value('tickwork_era') = :boundary::bigint;

-- name: count_eras
-- The numbers of ready runs of some eras, counted up to a cap.
SELECT known.era, count(*)
FROM unnest(:eras::bigint[], :priorities::integer[], :due_ats::bigint[], :ids::uuid[])
    AS known (era, priority, due_at, id)
CROSS JOIN LATERAL (
    SELECT FROM tickwork_run
    WHERE phase = 'ready' AND era = known.era
      AND (priority, due_at, id) >= (known.priority, known.due_at, known.id)
    ORDER BY tickwork_run.priority, tickwork_run.due_at, tickwork_run.id
    LIMIT :cap::bigint
) AS run
GROUP BY known.era;

-- name: gather_eras
-- Moves what is left in old eras to the current one, so that there are few.
UPDATE tickwork_run
SET {set_era} phase = 'ready'
WHERE id = ANY (ARRAY(
    SELECT run.id
    FROM unnest(:eras::bigint[], :priorities::integer[], :due_ats::bigint[], :ids::uuid[])
        AS known (era, priority, due_at, id)
    CROSS JOIN LATERAL (
        SELECT id FROM tickwork_run
        WHERE phase = 'ready' AND era = known.era
          AND (priority, due_at, id) >= (known.priority, known.due_at, known.id)
        ORDER BY tickwork_run.priority, tickwork_run.due_at, tickwork_run.id
        LIMIT :cap::bigint
        FOR UPDATE SKIP LOCKED
    ) AS run
));

-- name: foreign_eras
-- Whether the boundary, or the era of a run, is above all transaction numbers: the tables were
-- restored or copied from another server.
SELECT 1
WHERE txid_current() < {boundary}
   OR EXISTS (SELECT FROM tickwork_run WHERE phase = 'ready' AND era > (SELECT txid_current()));

-- name: restart_eras
-- Workers see the new boundary, and find the runs that are in its era from now on.
SELECT setval('tickwork_era', txid_current() + 1)
WHERE pg_try_advisory_xact_lock('tickwork_era'::regclass::oid::integer, 0);
UPDATE tickwork_run
SET era = txid_current() + 1
WHERE id = ANY (ARRAY(
    SELECT id FROM tickwork_run
    WHERE phase = 'ready' AND era > txid_current() + 1
    ORDER BY era, priority, due_at, id
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
));

-- name: list_eras
-- The eras from ``low`` on that have ready runs. Skips from one to the next.
WITH RECURSIVE eras AS (
    (
        SELECT era FROM tickwork_run
        WHERE phase = 'ready' AND era >= :low::bigint
        ORDER BY era, priority, due_at, id
        LIMIT 1
    )
    UNION ALL
    {next_era}
)
SELECT era FROM eras;

-- fragment: all_eras
WITH RECURSIVE eras AS (
    (
        SELECT era FROM tickwork_run
        WHERE phase = 'ready'
        ORDER BY era, priority, due_at, id
        LIMIT 1
    )
    UNION ALL
    {next_era}
)

-- fragment: next_era
SELECT next.era
FROM eras
CROSS JOIN LATERAL (
    SELECT era FROM tickwork_run
    WHERE phase = 'ready' AND era > eras.era
    ORDER BY era, priority, due_at, id
    LIMIT 1
) AS next

-- name: ready_pairs
-- The (queue, job) pairs that have ready runs, in these eras. Skips from one pair to the next.
WITH RECURSIVE pairs AS (
    SELECT first.*
    FROM unnest(:eras::bigint[]) AS known (era)
    CROSS JOIN LATERAL (
        SELECT era, queue, job FROM tickwork_run
        WHERE phase = 'ready' AND era = known.era
        ORDER BY queue, job
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT next.*
    FROM pairs
    CROSS JOIN LATERAL (
        SELECT era, queue, job FROM tickwork_run
        WHERE phase = 'ready' AND era = pairs.era AND (queue, job) > (pairs.queue, pairs.job)
        ORDER BY queue, job
        LIMIT 1
    ) AS next
)
SELECT queue, job, era FROM pairs;

-- name: pick_by_pairs
-- The first runs of each pair, then the first of those, locked as in pick_ready. Each pair gives
-- twice the limit, because other workers may have locked half of them. The job is compared as a
-- range and comes first in the order. With an equality, the index of ready runs would have the
-- right order, too, and a planner that takes the pair for a frequent one would read all of it.
SELECT run.*
FROM (
    SELECT best.place
    FROM jsonb_array_elements(:pairs::jsonb) AS pair
    CROSS JOIN LATERAL (
        SELECT ctid AS place, queue, job, limit_keys, token, priority, due_at, id
        FROM tickwork_run
        WHERE phase = 'ready'
          AND era = (pair ->> 2)::bigint
          AND queue = pair ->> 0
          AND job BETWEEN pair ->> 1 AND pair ->> 1
        ORDER BY job, priority, due_at, id
        LIMIT 2 * :limit::bigint
    ) AS best
    WHERE {is_wanted}
    ORDER BY best.priority, best.due_at, best.id
    LIMIT 4 * :limit::bigint
) AS wanted
CROSS JOIN LATERAL (
    SELECT {claim_columns} FROM tickwork_run
    WHERE ctid = wanted.place AND phase = 'ready'
    FOR UPDATE SKIP LOCKED
) AS run
LIMIT :limit::bigint;

-- name: take_runs
UPDATE tickwork_run
SET status = 'running',
    phase = 'running',
    token = token + 1,
    attempt = attempt + 1,
    claim_tag = :tag::text,
    lease_until = :lease_until::bigint,
    worker = :worker::uuid,
    started_at = :started_at::bigint,
    external_id = NULL,
    -- When a run that waited behind another of its schedule starts, the next one may wait.
    overlap_key = CASE WHEN starts_with(overlap_key, 'waiting:') THEN NULL ELSE overlap_key END
WHERE id = ANY (:ids::uuid[]);

-- name: end_unusable
-- A row that cannot be used is moved to history with the reason, so that it does not stop other
-- runs.
WITH gone AS (
    DELETE FROM tickwork_run WHERE id = ANY (:c1::uuid[]) RETURNING *
)
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {gone.moved_columns}, broken.status, attempt, crashes, cancel_requested_at, started_at,
       broken.ended_at, broken.outcome, NULL, broken.reason
FROM gone
JOIN unnest(:c1::uuid[], :c2::bigint[], :c3::text[], :c4::text[], :c5::text[])
    AS broken (id, ended_at, reason, status, outcome)
    ON broken.id = gone.id
ON CONFLICT (id) DO NOTHING;
DELETE FROM tickwork_slot WHERE run = ANY (:c1::uuid[]);

-- name: slots_and_limits
-- As for other databases, but from a known number on, and with the first number of each key: later
-- slots have higher ones. Without a slot, it is the last number that any slot got.
SELECT 0, wanted.key, slot.count,
       coalesce(slot.first, pg_sequence_last_value('tickwork_slot_number'), 0)
FROM unnest(:keys::text[], :numbers::bigint[]) AS wanted (key, number)
CROSS JOIN LATERAL (
    SELECT count(*), min(number) AS first FROM tickwork_slot
    WHERE tickwork_slot.key = wanted.key AND tickwork_slot.number >= wanted.number
) AS slot
UNION ALL
SELECT 1, name, slots, override FROM tickwork_limit;

-- name: held_slots
SELECT slot.run, slot.key
FROM unnest(:ids::uuid[]) AS wanted (run)
CROSS JOIN LATERAL (
    SELECT run, key FROM tickwork_slot WHERE tickwork_slot.run = wanted.run OFFSET 0
) AS slot;

-- name: lock_gates
-- All transactions lock gates in ascending order and wait, so that there are no deadlocks.
SELECT gate FROM tickwork_gate WHERE gate = ANY (:gates::integer[]) ORDER BY gate FOR UPDATE;

-- name: try_gates
SELECT gate FROM tickwork_gate
WHERE gate = ANY (:gates::integer[])
ORDER BY gate
FOR UPDATE SKIP LOCKED;

-- name: count_gates
SELECT count(*) FROM tickwork_gate WHERE gate BETWEEN 0 AND 1023;

-- name: restore_gates
INSERT INTO tickwork_gate (gate)
SELECT gate FROM generate_series(0, 1023) AS gate
ON CONFLICT (gate) DO NOTHING;

-- name: orphan_slots
SELECT run, key FROM tickwork_slot
WHERE key = ANY (:keys::text[])
  AND NOT EXISTS (SELECT FROM tickwork_run WHERE tickwork_run.id = tickwork_slot.run);

-- name: insert_slots
INSERT INTO tickwork_slot (run, key)
SELECT run, key FROM unnest(:c1::uuid[], :c2::text[]) AS taken (run, key)
ON CONFLICT (run, key) DO NOTHING;

-- name: delete_slots
-- The rows of these runs are locked, so no other transaction changes their slots, and their ctid
-- stays valid.
DELETE FROM tickwork_slot
WHERE ctid = ANY (ARRAY(
    SELECT slot.place
    FROM unnest(:c1::uuid[], :c2::text[]) AS freed (run, key)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM tickwork_slot
        WHERE tickwork_slot.run = freed.run AND tickwork_slot.key = freed.key
        OFFSET 0
    ) AS slot
));

-- name: block_runs
-- The rows are locked already.
UPDATE tickwork_run AS run
SET phase = 'blocked', blocked_on = blocked.key
FROM unnest(:c1::text[], :c2::uuid[]) AS blocked (key, id)
WHERE run.id = blocked.id AND run.id = ANY (:c2::uuid[]);

-- name: unblock
WITH chosen AS MATERIALIZED (
    SELECT run.id
    FROM unnest(:c1::text[], :c2::integer[]) AS free (key, room)
    CROSS JOIN LATERAL (
        SELECT id FROM tickwork_run
        WHERE blocked_on = free.key AND phase = 'blocked' AND {is_unclaimed}
        ORDER BY priority, due_at, id
        LIMIT free.room
        FOR UPDATE SKIP LOCKED
    ) AS run
)
UPDATE tickwork_run
SET {set_era} phase = 'ready', blocked_on = NULL
WHERE id = ANY (ARRAY(SELECT id FROM chosen));

-- name: keys_blocked
-- Skips from one key to the next: a hundred thousand runs may wait for the same key.
WITH RECURSIVE keys AS (
    (
        SELECT blocked_on FROM tickwork_run
        WHERE blocked_on > :after::text
        ORDER BY blocked_on
        LIMIT 1
    )
    UNION ALL
    SELECT next.blocked_on
    FROM keys
    CROSS JOIN LATERAL (
        SELECT blocked_on FROM tickwork_run
        WHERE blocked_on > keys.blocked_on
        ORDER BY blocked_on
        LIMIT 1
    ) AS next
)
SELECT blocked_on FROM keys LIMIT :limit::bigint;

-- name: keys_blocked_by
SELECT DISTINCT blocked_on FROM tickwork_run
WHERE blocked_on = :name::text
   OR (blocked_on >= :name::text || '=' AND blocked_on < :name::text || '>');

-- name: notify
-- PostgreSQL delivers notifications when the transaction commits.
SELECT pg_notify('tickwork', :v1);
SELECT pg_notify('tickwork', queue) FROM unnest(:c1::text[]) AS queue;
