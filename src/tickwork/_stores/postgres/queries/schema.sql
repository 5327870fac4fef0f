-- name: create_meta
CREATE TABLE IF NOT EXISTS tickwork_meta (
    version         integer NOT NULL,
    compatible_from integer NOT NULL
);

-- name: lock_meta
-- Installations run one after the other; reading the version does not wait for them.
LOCK TABLE tickwork_meta IN EXCLUSIVE MODE;

-- name: has_meta
SELECT count(to_regclass('tickwork_meta'));

-- name: has_run_table
SELECT count(to_regclass('tickwork_run'));

-- name: set_version
DELETE FROM tickwork_meta;
INSERT INTO tickwork_meta (version, compatible_from)
VALUES (:version::integer, :compatible::integer);

-- name: server_time
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
