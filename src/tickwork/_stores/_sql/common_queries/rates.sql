-- name: due_turns
SELECT {key} FROM tickwork_rate FORCE INDEX (next_start)
WHERE next_start_at <= :now::bigint
ORDER BY next_start_at
LIMIT :limit::bigint;

-- name: read_turns
SELECT {key}, next_start_at FROM tickwork_rate FORCE INDEX (PRIMARY) WHERE {key} {in_keys};

-- name: idle_rates
SELECT {key} FROM tickwork_rate FORCE INDEX (next_start)
WHERE next_start_at IS NULL AND idle_at < :before::bigint
ORDER BY idle_at
LIMIT :limit::bigint;
