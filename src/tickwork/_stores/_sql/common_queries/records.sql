-- name: find_claims
-- By the index of leases: an index of workers would cost every claim, and this query is rare.
SELECT {claim_columns} FROM tickwork_run FORCE INDEX (lease)
WHERE lease_until IS NOT NULL AND worker = :worker::uuid AND claim_tag = :tag::text
ORDER BY priority, due_at, id;

-- name: held_rows
SELECT id, token, status, cancel_requested_at FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id {in_ids};

-- name: expired_runs
SELECT {claim_columns}, started_at, cancel_requested_at, worker
FROM tickwork_run FORCE INDEX (lease)
WHERE lease_until BETWEEN :lowest::bigint AND :now::bigint
ORDER BY lease_until
LIMIT :limit::bigint
{skip_locked};

-- name: request_cancel
UPDATE tickwork_run
SET cancel_requested_at = coalesce(cancel_requested_at, :now::bigint)
WHERE id = :id::uuid AND status = 'running';
