-- name: due_runs
{live_as_run}
WHERE phase = 'ready'
  AND {is_wanted}
  AND coalesce(expires_at >= :now, 1)
ORDER BY priority, due_at, id
LIMIT :limit;

-- name: take_run
-- As take_runs, for a run that may be blocked.
UPDATE tickwork_run
SET status = 'running',
    phase = 'running',
    blocked_on = NULL,
    token = token + 1,
    attempt = attempt + 1,
    claim_tag = :tag,
    lease_until = :lease_until,
    worker = :worker,
    started_at = :started_at,
    external_id = NULL,
    overlap_key = CASE WHEN overlap_key LIKE 'waiting:%' THEN NULL ELSE overlap_key END
WHERE id = :id;
