-- name: has_meta
-- SQLite ignores the case of names, but not of texts.
SELECT count(*) FROM sqlite_master
WHERE type = 'table' AND name = 'tickwork_meta' COLLATE NOCASE;

-- name: lock_meta
-- Takes the write lock without a change: a transaction that reads first cannot write any more after
-- another connection has written.
UPDATE tickwork_meta SET version = version WHERE false;

-- name: has_run_table
SELECT count(*) FROM sqlite_master
WHERE type = 'table' AND name = 'tickwork_run' COLLATE NOCASE;

-- name: set_version
DELETE FROM tickwork_meta;
INSERT INTO tickwork_meta (version, compatible_from) VALUES (:version, :compatible);
