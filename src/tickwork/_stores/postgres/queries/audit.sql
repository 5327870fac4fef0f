-- name: prune_audit
DELETE FROM tickwork_audit
WHERE id = ANY (ARRAY(
    SELECT id FROM tickwork_audit WHERE id < :before::uuid ORDER BY id LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
));

-- name: reserve_request
-- If the key is taken, the row is locked all the same, so that it can be read next.
INSERT INTO tickwork_request ({request_columns}) VALUES ({request_params})
ON CONFLICT (key) DO UPDATE
SET digest = excluded.digest, run = excluded.run, until = excluded.until
WHERE tickwork_request.until <= :now::bigint;

-- name: get_request
SELECT {request_columns} FROM tickwork_request WHERE key = :key::text;

-- name: prune_requests
DELETE FROM tickwork_request
WHERE key = ANY (ARRAY(
    SELECT key FROM tickwork_request
    WHERE until < :before::bigint
    ORDER BY until
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
));
