-- name: create_meta
-- One row, which an installation locks.
CREATE TABLE IF NOT EXISTS tickwork_meta (
    only_one        TINYINT NOT NULL,
    version         INT     NOT NULL,
    compatible_from INT     NOT NULL,
    PRIMARY KEY (only_one)
) ENGINE = InnoDB;

-- name: add_meta
INSERT INTO tickwork_meta (only_one, version, compatible_from) VALUES (1, 0, 0)
ON DUPLICATE KEY UPDATE only_one = VALUES(only_one);

-- name: lock_meta
-- Installations run one after the other; reading the version does not wait for them.
SELECT only_one FROM tickwork_meta FOR UPDATE;

-- name: has_meta
SELECT count(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'tickwork_meta';

-- name: set_version
UPDATE tickwork_meta SET version = :version, compatible_from = :compatible;

-- name: server_time
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));

-- name: oldest_transaction
-- Of any session on this server: rows deleted since then cannot be purged. The view has times of
-- the operating system's zone, whatever the zone of the session is.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
       - TIMESTAMPDIFF(
           MICROSECOND, trx_started, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')
       ),
       concat('connection ', trx_mysql_thread_id, coalesce(
           (SELECT concat(' (user ', user, ', ', host, ')') FROM information_schema.processlist
            WHERE id = trx_mysql_thread_id), ''
       )),
       coalesce(left(trx_query, 60), ''),
       concat('KILL ', trx_mysql_thread_id)
FROM information_schema.innodb_trx
WHERE trx_mysql_thread_id <> CONNECTION_ID()
ORDER BY trx_started
LIMIT 1;
