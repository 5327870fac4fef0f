-- name: insert_rollups
INSERT INTO tickwork_rollup ({new_rollup_columns}) VALUES [[({new_rollup_places})]];

-- name: delete_rollups
DELETE merged
FROM JSON_TABLE(:json_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS gone
STRAIGHT_JOIN tickwork_rollup AS merged FORCE INDEX (PRIMARY) ON merged.id = gone.id;
