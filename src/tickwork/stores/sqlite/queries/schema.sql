-- name: has_meta
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'tickwork_meta';

-- name: lock_meta
-- Changes nothing, and takes the write lock all the same: a transaction that reads first, and is
-- overtaken by a writer then, cannot write any more.
UPDATE tickwork_meta SET version = version WHERE false;

-- name: get_version
SELECT version, compatible_from FROM tickwork_meta;

-- name: set_version
DELETE FROM tickwork_meta;
INSERT INTO tickwork_meta (version, compatible_from) VALUES (:version, :compatible);
