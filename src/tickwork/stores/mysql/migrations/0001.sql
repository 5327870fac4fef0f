-- Times are microseconds since 1970, in UTC. JSON is stored as the original text. Texts compare
-- byte by byte, trailing spaces included: MariaDB and MySQL name that collation differently, and
-- each server reads its own conditional comment. There are no partial indexes: where an index is
-- for few rows, its first column is NULL for all others, and no query reads those. tickwork_meta
-- exists already: an installation creates and locks it first. DDL cannot be rolled back: a step
-- that was interrupted runs again, and errors for objects that exist are ignored.

CREATE TABLE tickwork_run (
    id                  CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    tenant              VARCHAR(255) NOT NULL,
    job                 VARCHAR(255) NOT NULL,
    queue               VARCHAR(255) NOT NULL,
    priority            INT          NOT NULL,
    status              VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    phase               VARCHAR(8)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    due_at              BIGINT       NOT NULL,
    expires_at          BIGINT,
    args                LONGTEXT     NOT NULL,
    tags                LONGTEXT,
    attempt             INT          NOT NULL DEFAULT 0,
    attempts_max        INT          NOT NULL,
    crashes             INT          NOT NULL DEFAULT 0,
    put_offs            INT          NOT NULL DEFAULT 0,
    token               INT          NOT NULL DEFAULT 0,
    claim_tag           VARCHAR(255),
    lease_until         BIGINT,
    worker              CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin,
    overlap_key         VARCHAR(512),
    limit_keys          LONGTEXT,
    blocked_on          VARCHAR(512),
    schedule            VARCHAR(255),
    nominal_at          BIGINT,
    target              LONGTEXT,
    external_id         LONGTEXT,
    retry_of            CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin,
    trace               LONGTEXT,
    progress            LONGTEXT,
    checkpoint          LONGTEXT,
    cancel_requested_at BIGINT,
    created_at          BIGINT       NOT NULL,
    started_at          BIGINT,
    reason              LONGTEXT     NOT NULL DEFAULT (''),
    -- A claim does not change this column, so it does not update the index.
    waiting_at          BIGINT GENERATED ALWAYS AS (
        CASE WHEN phase = 'waiting' THEN due_at END
    ) STORED,
    PRIMARY KEY (id),
    -- For claims, in claim order; and the same by (queue, job), for when the first rows of the
    -- former are for other workers.
    KEY ready (phase, priority, due_at, id),
    KEY pairs (phase, queue, job, priority, due_at, id),
    KEY waiting (waiting_at),
    KEY lease (lease_until),
    KEY blocked (blocked_on, priority, due_at, id),
    UNIQUE KEY overlap (overlap_key),
    KEY schedule (schedule, tenant, nominal_at),
    -- No run has the phase 'parked' any more; the next migration of this table can remove it.
    CHECK (
        (status = 'running' AND phase = 'running' AND lease_until IS NOT NULL)
        OR (status IN ('pending', 'failed')
            AND phase IN ('waiting', 'ready', 'blocked', 'parked')
            AND lease_until IS NULL)
    ),
    CHECK ((phase = 'blocked') = (blocked_on IS NOT NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_history (
    id                  CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    tenant              VARCHAR(255) NOT NULL,
    job                 VARCHAR(255) NOT NULL,
    queue               VARCHAR(255) NOT NULL,
    priority            INT          NOT NULL,
    status              VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    due_at              BIGINT       NOT NULL,
    expires_at          BIGINT,
    args                LONGTEXT     NOT NULL,
    tags                LONGTEXT,
    attempt             INT          NOT NULL,
    attempts_max        INT          NOT NULL,
    crashes             INT          NOT NULL,
    put_offs            INT          NOT NULL,
    token               INT          NOT NULL,
    worker              CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin,
    limit_keys          LONGTEXT,
    schedule            VARCHAR(255),
    nominal_at          BIGINT,
    last_nominal_at     BIGINT,
    instants            INT          NOT NULL DEFAULT 1,
    target              LONGTEXT,
    external_id         LONGTEXT,
    retry_of            CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin,
    trace               LONGTEXT,
    progress            LONGTEXT,
    checkpoint          LONGTEXT,
    cancel_requested_at BIGINT,
    created_at          BIGINT       NOT NULL,
    started_at          BIGINT,
    ended_at            BIGINT       NOT NULL,
    outcome             VARCHAR(32)  NOT NULL,
    result              LONGTEXT,
    reason              LONGTEXT     NOT NULL,
    PRIMARY KEY (id),
    KEY ended (ended_at),
    KEY job (job, id),
    CHECK (status IN ('completed', 'skipped', 'canceled', 'failed_permanent'))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_attempt (
    run        CHAR(36)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token      INT         NOT NULL,
    attempt    INT         NOT NULL,
    outcome    VARCHAR(32) NOT NULL,
    started_at BIGINT,
    ended_at   BIGINT      NOT NULL,
    error      LONGTEXT    NOT NULL,
    traceback  LONGTEXT    NOT NULL,
    worker     CHAR(36)    CHARACTER SET ascii COLLATE ascii_bin,
    PRIMARY KEY (run, token)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_log (
    run     CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    line    INT          NOT NULL,
    at      BIGINT       NOT NULL,
    level   VARCHAR(255) NOT NULL,
    logger  LONGTEXT     NOT NULL,
    message LONGTEXT     NOT NULL,
    PRIMARY KEY (run, line)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_slot (
    run   CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key` VARCHAR(512) NOT NULL,
    PRIMARY KEY (run, `key`),
    KEY taken (`key`, run)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_gate (
    gate INT NOT NULL,
    PRIMARY KEY (gate)
) ENGINE = InnoDB;

CREATE TABLE tickwork_limit (
    name     VARCHAR(512) NOT NULL,
    slots    INT          NOT NULL,
    override INT,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_unique (
    `key` VARCHAR(512) NOT NULL,
    run   CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    until BIGINT,
    PRIMARY KEY (`key`),
    KEY run (run)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_schedule (
    id            CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    tenant        VARCHAR(255) NOT NULL,
    name          VARCHAR(255) NOT NULL,
    job           VARCHAR(255) NOT NULL,
    rule          LONGTEXT     NOT NULL,
    zone          VARCHAR(255) NOT NULL,
    args          LONGTEXT     NOT NULL,
    queue         VARCHAR(255),
    priority      INT,
    expires       BIGINT,
    overlap       VARCHAR(32)  NOT NULL,
    misfire       VARCHAR(32)  NOT NULL,
    grace         BIGINT       NOT NULL,
    jitter        BIGINT       NOT NULL,
    until         BIGINT,
    target        LONGTEXT,
    tags          LONGTEXT,
    origin        VARCHAR(32)  NOT NULL,
    created_at    BIGINT       NOT NULL,
    next_due_at   BIGINT,
    last_fired_at BIGINT,
    revision      INT          NOT NULL DEFAULT 1,
    paused_at     BIGINT,
    pause_note    LONGTEXT     NOT NULL DEFAULT (''),
    paused_until  BIGINT,
    seen_at       BIGINT,
    skip_id       CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin,
    skip_reason   LONGTEXT,
    skip_last_at  BIGINT,
    -- NULL for paused schedules, so that a tick reads none of them.
    fires_at      BIGINT GENERATED ALWAYS AS (
        CASE WHEN paused_at IS NULL OR paused_until IS NOT NULL THEN next_due_at END
    ) STORED,
    PRIMARY KEY (id),
    UNIQUE KEY name (tenant, name),
    KEY due (fires_at, id),
    KEY skip (skip_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_job (
    tenant          VARCHAR(255) NOT NULL,
    name            VARCHAR(255) NOT NULL,
    seen_at         BIGINT,
    last_run_at     BIGINT,
    last_success_at BIGINT,
    last_error_at   BIGINT,
    last_error      LONGTEXT     NOT NULL DEFAULT (''),
    failures        INT          NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_pause (
    kind      VARCHAR(32)  NOT NULL,
    name      VARCHAR(255) NOT NULL,
    paused_at BIGINT       NOT NULL,
    note      LONGTEXT     NOT NULL,
    until     BIGINT,
    PRIMARY KEY (kind, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_worker (
    id              CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    host            VARCHAR(255) NOT NULL,
    pid             INT          NOT NULL,
    boot_id         VARCHAR(255) NOT NULL,
    process_started VARCHAR(255) NOT NULL,
    started_at      BIGINT       NOT NULL,
    beat_at         BIGINT       NOT NULL,
    queues          LONGTEXT,
    jobs            LONGTEXT     NOT NULL,
    slots           INT          NOT NULL,
    running         INT          NOT NULL,
    version         VARCHAR(255) NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE tickwork_lock (
    name        VARCHAR(512) NOT NULL,
    owner       VARCHAR(255) NOT NULL,
    host        VARCHAR(255) NOT NULL,
    pid         INT          NOT NULL,
    acquired_at BIGINT       NOT NULL,
    until       BIGINT       NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- The counter grows when something changes that idle workers must notice.
CREATE TABLE tickwork_news (
    only_one TINYINT NOT NULL,
    changes  BIGINT  NOT NULL,
    PRIMARY KEY (only_one)
) ENGINE = InnoDB;

INSERT INTO tickwork_news (only_one, changes) VALUES (1, 0)
ON DUPLICATE KEY UPDATE only_one = VALUES(only_one);

INSERT INTO tickwork_gate (gate)
WITH RECURSIVE digits (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digits WHERE n < 31)
SELECT tens.n * 32 + ones.n FROM digits AS tens CROSS JOIN digits AS ones WHERE true
ON DUPLICATE KEY UPDATE gate = VALUES(gate);

CREATE OR REPLACE VIEW tickwork_runs AS
SELECT id, tenant, job, queue, priority, status, phase, args, attempt, attempts_max, crashes,
       schedule, worker, reason, NULL AS result,
       TIMESTAMPADD(MICROSECOND, due_at, TIMESTAMP '1970-01-01 00:00:00') AS due_at,
       TIMESTAMPADD(MICROSECOND, created_at, TIMESTAMP '1970-01-01 00:00:00') AS created_at,
       TIMESTAMPADD(MICROSECOND, started_at, TIMESTAMP '1970-01-01 00:00:00') AS started_at,
       NULL AS ended_at
FROM tickwork_run
UNION ALL
SELECT id, tenant, job, queue, priority, status, NULL, args, attempt, attempts_max, crashes,
       schedule, worker, reason, result,
       TIMESTAMPADD(MICROSECOND, due_at, TIMESTAMP '1970-01-01 00:00:00'),
       TIMESTAMPADD(MICROSECOND, created_at, TIMESTAMP '1970-01-01 00:00:00'),
       TIMESTAMPADD(MICROSECOND, started_at, TIMESTAMP '1970-01-01 00:00:00'),
       TIMESTAMPADD(MICROSECOND, ended_at, TIMESTAMP '1970-01-01 00:00:00')
FROM tickwork_history;
