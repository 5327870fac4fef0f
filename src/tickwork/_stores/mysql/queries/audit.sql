-- name: prune_audit
DELETE FROM tickwork_audit WHERE id < :before ORDER BY id LIMIT :limit;

-- name: reserve_request
-- The server evaluates assignments from left to right, each with the new values of those before it:
-- `until`, which decides whether the key is free, comes last.
INSERT INTO tickwork_request (`key`, digest, run, until) VALUES ({request_params})
ON DUPLICATE KEY UPDATE
    digest = CASE WHEN until <= :now THEN VALUES(digest) ELSE digest END,
    run = CASE WHEN until <= :now THEN VALUES(run) ELSE run END,
    until = CASE WHEN until <= :now THEN VALUES(until) ELSE until END;

-- name: get_request
SELECT `key`, digest, run, until FROM tickwork_request WHERE `key` = :key;

-- name: prune_requests
DELETE held
FROM (
    SELECT `key` FROM tickwork_request FORCE INDEX (until)
    WHERE until < :before
    ORDER BY until
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS past
STRAIGHT_JOIN tickwork_request AS held FORCE INDEX (PRIMARY) ON held.`key` = past.`key`;
