-- name: has_meta
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'tickwork_meta';

-- name: lock_meta
-- Takes the write lock without a change: a transaction that reads first cannot write any more after
-- another connection has written.
UPDATE tickwork_meta SET version = version WHERE false;

-- name: get_version
SELECT version, compatible_from FROM tickwork_meta;

-- name: set_version
DELETE FROM tickwork_meta;
INSERT INTO tickwork_meta (version, compatible_from) VALUES (:version, :compatible);
