-- name: insert_alerts
-- An alert that another process has added stays as it is.
INSERT INTO tickwork_alert ({alert_columns}) VALUES [[({alert_places})]] {keep_first};

-- name: prune_alerts
DELETE ended
FROM (
    SELECT id FROM tickwork_alert FORCE INDEX (ended)
    WHERE ended_at < :before
    ORDER BY ended_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS past
STRAIGHT_JOIN tickwork_alert AS ended FORCE INDEX (PRIMARY) ON ended.id = past.id;
