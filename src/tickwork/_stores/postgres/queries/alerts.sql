-- name: insert_alerts
-- An alert that another process has added stays as it is.
INSERT INTO tickwork_alert ({alert_columns})
SELECT {alert_columns}
FROM unnest({alert_arrays}) AS made ({alert_columns})
{keep_first};

-- name: prune_alerts
DELETE FROM tickwork_alert
WHERE id = ANY (ARRAY(
    SELECT id FROM tickwork_alert
    WHERE ended_at < :before::bigint
    ORDER BY ended_at
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
));
