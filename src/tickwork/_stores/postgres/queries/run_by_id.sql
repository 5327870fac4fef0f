-- name: due_runs
-- The first runs of each era, and then the first of those.
{all_eras}
SELECT run.*
FROM eras
CROSS JOIN LATERAL (
    {live_as_run}
    WHERE phase = 'ready'
      AND era = eras.era
      AND {is_wanted}
      AND coalesce(expires_at >= :now::bigint, true)
    ORDER BY priority, due_at, id
    LIMIT :limit::bigint
) AS run
ORDER BY run.priority, run.due_at, run.id
LIMIT :limit::bigint;

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
