-- name: has_meta
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'tickwork_meta';

-- name: get_version
SELECT version, compatible_from FROM tickwork_meta;

-- name: set_version
DELETE FROM tickwork_meta;
INSERT INTO tickwork_meta (version, compatible_from) VALUES (:version, :compatible);
