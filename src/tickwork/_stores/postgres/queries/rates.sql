-- name: read_rates
-- Each key with the starts that leave its window next: the requested number, and one for each
-- unblocked run that may start first. This must not be one statement with the lock of the gate. A
-- number out of range must not make the arithmetic fail: the row is then found to be unreadable.
SELECT rate.key, rate.number, rate.idle_at, rate.next_start_at, rate.opened, start.number, start.at
FROM jsonb_array_elements(:wanted::jsonb) AS wanted
CROSS JOIN LATERAL (
    SELECT *, least(greatest(number, 0), 1000000000000000000) AS last FROM tickwork_rate
    WHERE key = wanted ->> 0
    OFFSET 0
) AS rate
LEFT JOIN LATERAL (
    SELECT number, at FROM tickwork_start
    WHERE key = rate.key
      AND number > rate.last - (wanted ->> 1)::bigint
      AND number <= rate.last - (wanted ->> 1)::bigint + rate.opened + (wanted ->> 2)::bigint
    OFFSET 0
) AS start ON true;

-- name: save_rates
INSERT INTO tickwork_rate (key, number, idle_at, next_start_at, opened)
SELECT key, number, idle_at, next_start_at, opened
FROM unnest(:c1::text[], :c2::bigint[], :c3::bigint[], :c4::bigint[], :c5::integer[])
    AS rate (key, number, idle_at, next_start_at, opened)
ON CONFLICT (key) DO UPDATE
SET number = excluded.number,
    idle_at = excluded.idle_at,
    next_start_at = excluded.next_start_at,
    opened = excluded.opened;

-- name: insert_starts
INSERT INTO tickwork_start (key, number, at)
SELECT key, number, at
FROM unnest(:c1::text[], :c2::bigint[], :c3::bigint[]) AS start (key, number, at)
ON CONFLICT (key, number) DO UPDATE SET at = excluded.at;

-- name: forget_starts
-- The gate of the key is locked, so no other transaction changes its starts, and their ctid stays
-- valid.
DELETE FROM tickwork_start
WHERE ctid = ANY (ARRAY(
    SELECT start.place
    FROM unnest(:c1::text[], :c2::bigint[]) AS old (key, number)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM tickwork_start
        WHERE tickwork_start.key = old.key AND tickwork_start.number <= old.number
        OFFSET 0
    ) AS start
));

-- name: reset_rates
-- For rows that cannot be read: the key starts anew.
DELETE FROM tickwork_start WHERE key = ANY (:c1::text[]);
DELETE FROM tickwork_rate WHERE key = ANY (:c1::text[]);

-- name: keys_waiting
SELECT wanted.key
FROM unnest(:keys::text[]) AS wanted (key)
CROSS JOIN LATERAL (
    SELECT FROM tickwork_run WHERE blocked_on = wanted.key LIMIT 1
) AS run;

-- name: unblock_expired
WITH expired AS MATERIALIZED (
    SELECT run.id
    FROM unnest(:c1::text[], :c2::bigint[], :c3::bigint[]) AS past (key, now, most)
    CROSS JOIN LATERAL (
        SELECT id FROM tickwork_run
        WHERE blocked_on = past.key AND expires_at < past.now AND phase = 'blocked' AND {is_unclaimed}
        ORDER BY expires_at
        LIMIT past.most
        FOR UPDATE SKIP LOCKED
    ) AS run
)
UPDATE tickwork_run
SET {set_era} phase = 'ready', blocked_on = NULL
WHERE id = ANY (ARRAY(SELECT id FROM expired));

-- name: advance_turns
-- Their next turn is due at once, so that the changed limit is applied now.
UPDATE tickwork_rate
SET next_start_at = 0
WHERE next_start_at IS NOT NULL
  AND (
      key = :name::text
      OR (key >= :name::text || '=' AND key < :name::text || '>')
  );

-- name: set_turns
INSERT INTO tickwork_rate (key, number, next_start_at, opened)
SELECT key, 0, 0, 0 FROM unnest(:c1::text[]) AS stuck (key)
ON CONFLICT (key) DO UPDATE SET next_start_at = 0;

-- name: queue_position
-- The position of a blocked run among those that wait for the same key, counted up to a cap.
SELECT count(*) FROM (
    SELECT FROM tickwork_run AS run
    CROSS JOIN LATERAL (
        SELECT FROM tickwork_run AS other
        WHERE other.blocked_on = run.blocked_on
          AND (other.priority, other.due_at, other.id) <= (run.priority, run.due_at, run.id)
        LIMIT :cap::bigint
    ) AS better
    WHERE run.id = :id::uuid
) AS place;

-- name: delete_rates
-- The gates of these keys are locked: no other transaction adds a start.
DELETE FROM tickwork_start
WHERE key = ANY (ARRAY(
    SELECT key FROM tickwork_rate
    WHERE key = ANY (:keys::text[]) AND next_start_at IS NULL AND idle_at < :before::bigint
));
DELETE FROM tickwork_rate
WHERE key = ANY (:keys::text[]) AND next_start_at IS NULL AND idle_at < :before::bigint;
