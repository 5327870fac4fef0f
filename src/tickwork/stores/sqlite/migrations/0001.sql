-- Times are microseconds since 1970, in UTC. Ids are UUIDs as text.

CREATE TABLE tickwork_meta (
    version         INTEGER NOT NULL,
    compatible_from INTEGER NOT NULL
);

CREATE TABLE tickwork_run (
    id                  TEXT    NOT NULL PRIMARY KEY,
    tenant              TEXT    NOT NULL,
    job                 TEXT    NOT NULL,
    queue               TEXT    NOT NULL,
    priority            INTEGER NOT NULL,
    status              TEXT    NOT NULL,
    phase               TEXT    NOT NULL,
    due_at              INTEGER NOT NULL,
    expires_at          INTEGER,
    args                TEXT    NOT NULL,
    tags                TEXT,
    attempt             INTEGER NOT NULL DEFAULT 0,
    attempts_max        INTEGER NOT NULL,
    crashes             INTEGER NOT NULL DEFAULT 0,
    put_offs            INTEGER NOT NULL DEFAULT 0,
    token               INTEGER NOT NULL DEFAULT 0,
    claim_tag           TEXT,
    lease_until         INTEGER,
    worker              TEXT,
    overlap_key         TEXT,
    limit_keys          TEXT,
    blocked_on          TEXT,
    schedule            TEXT,
    nominal_at          INTEGER,
    target              TEXT,
    external_id         TEXT,
    retry_of            TEXT,
    trace               TEXT,
    progress            TEXT,
    checkpoint          TEXT,
    cancel_requested_at INTEGER,
    created_at          INTEGER NOT NULL,
    started_at          INTEGER,
    reason              TEXT    NOT NULL DEFAULT '',
    -- Written with OR: for each IN, SQLite would build a small table for every row.
    CHECK (status = 'pending' OR status = 'running' OR status = 'failed'),
    CHECK (
        phase = 'ready' OR phase = 'running' OR phase = 'waiting' OR phase = 'blocked'
        OR phase = 'parked'
    ),
    CHECK ((status = 'running') = (phase = 'running')),
    CHECK ((phase = 'running') = (lease_until IS NOT NULL)),
    CHECK ((phase = 'blocked') = (blocked_on IS NOT NULL))
) WITHOUT ROWID;

-- For claims, in claim order; and the same by (queue, job), for when the first rows of the former
-- are for other workers.
CREATE INDEX tickwork_run_ready ON tickwork_run (priority, due_at, id) WHERE phase = 'ready';
CREATE INDEX tickwork_run_pairs ON tickwork_run (queue, job, priority, due_at, id)
    WHERE phase = 'ready';
CREATE INDEX tickwork_run_waiting ON tickwork_run (due_at) WHERE phase = 'waiting';
-- No run has the phase 'parked' any more. This partial index stays empty and costs nothing; the
-- next migration of this table can remove it, and the phase from the CHECK.
CREATE INDEX tickwork_run_parked ON tickwork_run (queue, job) WHERE phase = 'parked';
CREATE INDEX tickwork_run_lease ON tickwork_run (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX tickwork_run_blocked ON tickwork_run (blocked_on, priority, due_at, id)
    WHERE blocked_on IS NOT NULL;
CREATE UNIQUE INDEX tickwork_run_overlap ON tickwork_run (overlap_key)
    WHERE overlap_key IS NOT NULL;
CREATE INDEX tickwork_run_schedule ON tickwork_run (schedule, tenant, nominal_at)
    WHERE schedule IS NOT NULL;

CREATE TABLE tickwork_history (
    id                  TEXT    NOT NULL PRIMARY KEY,
    tenant              TEXT    NOT NULL,
    job                 TEXT    NOT NULL,
    queue               TEXT    NOT NULL,
    priority            INTEGER NOT NULL,
    status              TEXT    NOT NULL
        CHECK (
            status = 'completed' OR status = 'failed_permanent' OR status = 'skipped'
            OR status = 'canceled'
        ),
    due_at              INTEGER NOT NULL,
    expires_at          INTEGER,
    args                TEXT    NOT NULL,
    tags                TEXT,
    attempt             INTEGER NOT NULL,
    attempts_max        INTEGER NOT NULL,
    crashes             INTEGER NOT NULL,
    put_offs            INTEGER NOT NULL,
    token               INTEGER NOT NULL,
    worker              TEXT,
    limit_keys          TEXT,
    schedule            TEXT,
    nominal_at          INTEGER,
    last_nominal_at     INTEGER,
    instants            INTEGER NOT NULL DEFAULT 1,
    target              TEXT,
    external_id         TEXT,
    retry_of            TEXT,
    trace               TEXT,
    progress            TEXT,
    checkpoint          TEXT,
    cancel_requested_at INTEGER,
    created_at          INTEGER NOT NULL,
    started_at          INTEGER,
    ended_at            INTEGER NOT NULL,
    outcome             TEXT    NOT NULL,
    result              TEXT,
    reason              TEXT    NOT NULL
) WITHOUT ROWID;

CREATE INDEX tickwork_history_ended ON tickwork_history (ended_at);
CREATE INDEX tickwork_history_job ON tickwork_history (job, id);

CREATE TABLE tickwork_attempt (
    run        TEXT    NOT NULL,
    token      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    outcome    TEXT    NOT NULL,
    started_at INTEGER,
    ended_at   INTEGER NOT NULL,
    error      TEXT    NOT NULL,
    traceback  TEXT    NOT NULL,
    worker     TEXT,
    PRIMARY KEY (run, token)
) WITHOUT ROWID;

CREATE TABLE tickwork_log (
    run     TEXT    NOT NULL,
    line    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT    NOT NULL,
    logger  TEXT    NOT NULL,
    message TEXT    NOT NULL,
    PRIMARY KEY (run, line)
) WITHOUT ROWID;

CREATE TABLE tickwork_slot (
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (run, key)
) WITHOUT ROWID;

CREATE INDEX tickwork_slot_key ON tickwork_slot (key, run);

CREATE TABLE tickwork_gate (
    gate INTEGER NOT NULL PRIMARY KEY
);

CREATE TABLE tickwork_limit (
    name     TEXT    NOT NULL PRIMARY KEY,
    slots    INTEGER NOT NULL,
    override INTEGER
) WITHOUT ROWID;

CREATE TABLE tickwork_unique (
    key   TEXT NOT NULL PRIMARY KEY,
    run   TEXT NOT NULL,
    until INTEGER
) WITHOUT ROWID;

CREATE INDEX tickwork_unique_run ON tickwork_unique (run);

CREATE TABLE tickwork_schedule (
    id            TEXT    NOT NULL PRIMARY KEY,
    tenant        TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    job           TEXT    NOT NULL,
    rule          TEXT    NOT NULL,
    zone          TEXT    NOT NULL,
    args          TEXT    NOT NULL,
    queue         TEXT,
    priority      INTEGER,
    expires       INTEGER,
    overlap       TEXT    NOT NULL,
    misfire       TEXT    NOT NULL,
    grace         INTEGER NOT NULL,
    jitter        INTEGER NOT NULL,
    until         INTEGER,
    target        TEXT,
    tags          TEXT,
    origin        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    next_due_at   INTEGER,
    last_fired_at INTEGER,
    revision      INTEGER NOT NULL DEFAULT 1,
    paused_at     INTEGER,
    pause_note    TEXT    NOT NULL DEFAULT '',
    paused_until  INTEGER,
    seen_at       INTEGER,
    skip_id       TEXT,
    skip_reason   TEXT,
    skip_last_at  INTEGER,
    UNIQUE (tenant, name)
) WITHOUT ROWID;

CREATE INDEX tickwork_schedule_due ON tickwork_schedule (next_due_at)
    WHERE next_due_at IS NOT NULL;

CREATE TABLE tickwork_job (
    tenant          TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    seen_at         INTEGER,
    last_run_at     INTEGER,
    last_success_at INTEGER,
    last_error_at   INTEGER,
    last_error      TEXT    NOT NULL DEFAULT '',
    failures        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

CREATE TABLE tickwork_pause (
    kind      TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    paused_at INTEGER NOT NULL,
    note      TEXT    NOT NULL,
    until     INTEGER,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE tickwork_worker (
    id              TEXT    NOT NULL PRIMARY KEY,
    host            TEXT    NOT NULL,
    pid             INTEGER NOT NULL,
    boot_id         TEXT    NOT NULL,
    process_started TEXT    NOT NULL,
    started_at      INTEGER NOT NULL,
    beat_at         INTEGER NOT NULL,
    queues          TEXT,
    jobs            TEXT    NOT NULL,
    slots           INTEGER NOT NULL,
    running         INTEGER NOT NULL,
    version         TEXT    NOT NULL
) WITHOUT ROWID;

CREATE TABLE tickwork_lock (
    name        TEXT    NOT NULL PRIMARY KEY,
    owner       TEXT    NOT NULL,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    until       INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO tickwork_gate (gate)
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1023)
SELECT n FROM numbers;

CREATE VIEW tickwork_runs AS
SELECT id, tenant, job, queue, priority, status, phase, args, attempt, attempts_max, crashes,
       schedule, worker, reason, NULL AS result,
       datetime(due_at / 1000000, 'unixepoch') AS due_at,
       datetime(created_at / 1000000, 'unixepoch') AS created_at,
       datetime(started_at / 1000000, 'unixepoch') AS started_at,
       NULL AS ended_at
FROM tickwork_run
UNION ALL
SELECT id, tenant, job, queue, priority, status, NULL, args, attempt, attempts_max, crashes,
       schedule, worker, reason, result,
       datetime(due_at / 1000000, 'unixepoch'),
       datetime(created_at / 1000000, 'unixepoch'),
       datetime(started_at / 1000000, 'unixepoch'),
       datetime(ended_at / 1000000, 'unixepoch')
FROM tickwork_history;
