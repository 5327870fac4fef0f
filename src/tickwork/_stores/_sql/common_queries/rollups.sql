-- name: rollups_of_level
SELECT id, {rollup_columns} FROM tickwork_rollup FORCE INDEX (age)
WHERE level = :level::integer AND begins_at < :before::bigint
ORDER BY begins_at
LIMIT :limit::bigint
{skip_locked};

-- name: lock_rollups
SELECT id, {rollup_columns} FROM tickwork_rollup FORCE INDEX (age)
WHERE level = :level::integer AND begins_at >= :first::bigint AND begins_at <= :last::bigint
{skip_locked};

-- name: read_rollups
-- Those that were merged. The list of levels lets the index serve all conditions.
SELECT {rollup_columns} FROM tickwork_rollup FORCE INDEX (job)
WHERE job {in_keys}
  AND level > 0
  AND level IN (1, 2, 3)
  AND begins_at >= :since::bigint
  AND begins_at < :until::bigint
LIMIT :limit::bigint;

-- name: read_new_rollups
SELECT {rollup_columns} FROM tickwork_rollup FORCE INDEX (age)
WHERE level = 0 AND begins_at >= :since::bigint AND begins_at < :until::bigint
LIMIT :limit::bigint;

-- name: ended_runs
SELECT job, queue, status, ended_at, started_at, due_at
FROM tickwork_history FORCE INDEX (PRIMARY)
WHERE id {in_ids};
