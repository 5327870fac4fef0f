-- name: insert_rollups
INSERT INTO tickwork_rollup ({new_rollup_columns})
SELECT {new_rollup_columns}
FROM unnest({new_rollup_arrays}) AS made ({new_rollup_columns});

-- name: delete_rollups
DELETE FROM tickwork_rollup WHERE id = ANY (:ids::bigint[]);
