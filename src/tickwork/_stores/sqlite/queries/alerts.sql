-- name: insert_alerts
-- An alert that another process has added stays as it is.
INSERT INTO tickwork_alert ({alert_columns}) VALUES ({alert_places}) {keep_first};

-- name: prune_alerts
DELETE FROM tickwork_alert
WHERE id IN (SELECT id FROM tickwork_alert WHERE ended_at < :before ORDER BY ended_at LIMIT :limit);
