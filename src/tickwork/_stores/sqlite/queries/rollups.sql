-- name: insert_rollups
INSERT INTO tickwork_rollup ({new_rollup_columns}) VALUES ({new_rollup_places});

-- name: delete_rollups
DELETE FROM tickwork_rollup WHERE id IN (SELECT value FROM json_each(:ids));
