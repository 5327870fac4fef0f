-- name: open_alerts
SELECT {alert_columns} FROM tickwork_alert FORCE INDEX (ended)
WHERE ended_at IS NULL
ORDER BY id
LIMIT :limit::bigint;

-- name: ended_alerts
SELECT {alert_columns} FROM tickwork_alert FORCE INDEX (ended)
WHERE ended_at >= :since::bigint
  AND ended_at <= :before::bigint
  AND (ended_at < :before::bigint OR id < :before_id::uuid)
ORDER BY ended_at DESC, id DESC
LIMIT :limit::bigint;

-- name: reopen_alerts
UPDATE tickwork_alert SET ended_at = NULL WHERE id {in_ids} AND ended_at IS NOT NULL;

-- name: end_alerts
UPDATE tickwork_alert SET ended_at = :now::bigint WHERE id {in_ids} AND ended_at IS NULL;
