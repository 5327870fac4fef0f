-- name: lock_claimable
-- The run may not be due yet, or be blocked: limits are checked next. It waits for a lock on the
-- row, because the caller wants exactly this run.
SELECT {claim_columns} FROM tickwork_run
WHERE id = :id::uuid AND status <> 'running' AND {is_wanted}
{for_update};

-- name: completed_runs
SELECT id, token, ended_at FROM tickwork_history FORCE INDEX (PRIMARY)
WHERE id {in_ids} AND status = 'completed';
