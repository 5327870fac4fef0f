-- name: due_runs
{live_as_run}
WHERE phase = 'ready'
  AND {is_wanted}
  AND coalesce(expires_at >= :now::bigint, true)
ORDER BY priority, due_at, id
LIMIT :limit::bigint;

-- name: lock_claimable
-- The run may not be due yet, or be blocked: limits are checked next. It waits for a lock on the
-- row, because the caller wants exactly this run.
SELECT {claim_columns} FROM tickwork_run
WHERE id = :id::uuid AND status <> 'running' AND {is_wanted}
FOR UPDATE;

-- name: take_run
-- As take_runs, for a run that may be blocked.
UPDATE tickwork_run
SET status = 'running',
    phase = 'running',
    blocked_on = NULL,
    token = token + 1,
    attempt = attempt + 1,
    claim_tag = :tag::text,
    lease_until = :lease_until::bigint,
    worker = :worker::uuid,
    started_at = :started_at::bigint,
    external_id = NULL,
    overlap_key = CASE WHEN starts_with(overlap_key, 'waiting:') THEN NULL ELSE overlap_key END
WHERE id = :id::uuid;

-- name: completed_runs
SELECT id, token, ended_at FROM tickwork_history
WHERE id = ANY (:ids::uuid[]) AND status = 'completed';
