-- name: prune_audit
DELETE FROM tickwork_audit
WHERE id IN (SELECT id FROM tickwork_audit WHERE id < :before ORDER BY id LIMIT :limit);

-- name: reserve_request
INSERT INTO tickwork_request ({request_columns}) VALUES ({request_params})
ON CONFLICT (key) DO UPDATE
SET digest = excluded.digest, run = excluded.run, until = excluded.until
WHERE tickwork_request.until <= :now;

-- name: get_request
SELECT {request_columns} FROM tickwork_request WHERE key = :key;

-- name: prune_requests
DELETE FROM tickwork_request
WHERE key IN (SELECT key FROM tickwork_request WHERE until < :before ORDER BY until LIMIT :limit);
