-- Times are microseconds since 1970, in UTC. JSON is stored as the original text: jsonb would
-- change numbers. Keys and names compare byte by byte, independent of the locale: all processes
-- must sort them in the same order, and it is faster. tickwork_meta exists already: an installation
-- creates and locks it first.

CREATE TABLE tickwork_run (
    id                  uuid    NOT NULL PRIMARY KEY,
    tenant              text    COLLATE "C" NOT NULL,
    job                 text    COLLATE "C" NOT NULL,
    queue               text    COLLATE "C" NOT NULL,
    priority            integer NOT NULL,
    status              text    COLLATE "C" NOT NULL,
    phase               text    COLLATE "C" NOT NULL,
    due_at              bigint  NOT NULL,
    expires_at          bigint,
    args                text    NOT NULL,
    tags                text,
    attempt             integer NOT NULL DEFAULT 0,
    attempts_max        integer NOT NULL,
    crashes             integer NOT NULL DEFAULT 0,
    put_offs            integer NOT NULL DEFAULT 0,
    token               integer NOT NULL DEFAULT 0,
    claim_tag           text,
    lease_until         bigint,
    worker              uuid,
    overlap_key         text    COLLATE "C",
    limit_keys          text,
    blocked_on          text    COLLATE "C",
    schedule            text    COLLATE "C",
    nominal_at          bigint,
    target              text,
    external_id         text,
    retry_of            uuid,
    trace               text,
    progress            text,
    checkpoint          text,
    cancel_requested_at bigint,
    created_at          bigint  NOT NULL,
    started_at          bigint,
    reason              text    NOT NULL DEFAULT '',
    CHECK (
        (status = 'running' AND phase = 'running' AND lease_until IS NOT NULL)
        OR (status IN ('pending', 'failed')
            AND phase IN ('waiting', 'ready', 'blocked', 'parked')
            AND lease_until IS NULL)
    ),
    CHECK ((phase = 'blocked') = (blocked_on IS NOT NULL))
) WITH (
    -- Every run leaves two dead rows, however many runs wait: vacuum after a fixed number of them
    -- instead of a share of the table, and without delay.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- For claims, in claim order; and the same by (queue, job), for when the first rows of the former
-- are for other workers.
CREATE INDEX tickwork_run_ready ON tickwork_run (priority, due_at, id) WHERE phase = 'ready';
CREATE INDEX tickwork_run_pairs ON tickwork_run (queue, job, priority, due_at, id)
    WHERE phase = 'ready';
CREATE INDEX tickwork_run_waiting ON tickwork_run (due_at) WHERE phase = 'waiting';
-- No run has the phase 'parked' any more. This partial index stays empty and costs nothing; the
-- next migration of this table can remove it, and the phase from the CHECK.
CREATE INDEX tickwork_run_parked ON tickwork_run (queue, job) WHERE phase = 'parked';
-- The condition is on lease_until, not on the status: with the latter, the planner made recording
-- 500 runs a nested loop of 500 by 500.
CREATE INDEX tickwork_run_lease ON tickwork_run (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX tickwork_run_blocked ON tickwork_run (blocked_on, priority, due_at, id)
    WHERE blocked_on IS NOT NULL;
CREATE UNIQUE INDEX tickwork_run_overlap ON tickwork_run (overlap_key)
    WHERE overlap_key IS NOT NULL;
CREATE INDEX tickwork_run_schedule ON tickwork_run (schedule, tenant, nominal_at)
    WHERE schedule IS NOT NULL;

CREATE TABLE tickwork_history (
    id                  uuid    NOT NULL PRIMARY KEY,
    tenant              text    COLLATE "C" NOT NULL,
    job                 text    COLLATE "C" NOT NULL,
    queue               text    COLLATE "C" NOT NULL,
    priority            integer NOT NULL,
    status              text    COLLATE "C" NOT NULL
        CHECK (status IN ('completed', 'skipped', 'canceled', 'failed_permanent')),
    due_at              bigint  NOT NULL,
    expires_at          bigint,
    args                text    NOT NULL,
    tags                text,
    attempt             integer NOT NULL,
    attempts_max        integer NOT NULL,
    crashes             integer NOT NULL,
    put_offs            integer NOT NULL,
    token               integer NOT NULL,
    worker              uuid,
    limit_keys          text,
    schedule            text    COLLATE "C",
    nominal_at          bigint,
    last_nominal_at     bigint,
    instants            integer NOT NULL DEFAULT 1,
    target              text,
    external_id         text,
    retry_of            uuid,
    trace               text,
    progress            text,
    checkpoint          text,
    cancel_requested_at bigint,
    created_at          bigint  NOT NULL,
    started_at          bigint,
    ended_at            bigint  NOT NULL,
    outcome             text    NOT NULL,
    result              text,
    reason              text    NOT NULL
);

CREATE INDEX tickwork_history_ended ON tickwork_history (ended_at);
CREATE INDEX tickwork_history_job ON tickwork_history (job, id);

CREATE TABLE tickwork_attempt (
    run        uuid    NOT NULL,
    token      integer NOT NULL,
    attempt    integer NOT NULL,
    outcome    text    NOT NULL,
    started_at bigint,
    ended_at   bigint  NOT NULL,
    error      text    NOT NULL,
    traceback  text    NOT NULL,
    worker     uuid,
    PRIMARY KEY (run, token)
);

CREATE TABLE tickwork_log (
    run     uuid    NOT NULL,
    line    integer NOT NULL,
    at      bigint  NOT NULL,
    level   text    NOT NULL,
    logger  text    NOT NULL,
    message text    NOT NULL,
    PRIMARY KEY (run, line)
);

CREATE TABLE tickwork_slot (
    run uuid NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, key)
);

CREATE INDEX tickwork_slot_key ON tickwork_slot (key, run);

CREATE TABLE tickwork_gate (
    gate integer NOT NULL PRIMARY KEY
);

CREATE TABLE tickwork_limit (
    name     text    COLLATE "C" NOT NULL PRIMARY KEY,
    slots    integer NOT NULL,
    override integer
);

CREATE TABLE tickwork_unique (
    key   text COLLATE "C" NOT NULL PRIMARY KEY,
    run   uuid NOT NULL,
    until bigint
);

CREATE INDEX tickwork_unique_run ON tickwork_unique (run);

CREATE TABLE tickwork_schedule (
    id            uuid    NOT NULL PRIMARY KEY,
    tenant        text    COLLATE "C" NOT NULL,
    name          text    COLLATE "C" NOT NULL,
    job           text    COLLATE "C" NOT NULL,
    rule          text    NOT NULL,
    zone          text    NOT NULL,
    args          text    NOT NULL,
    queue         text    COLLATE "C",
    priority      integer,
    expires       bigint,
    overlap       text    NOT NULL,
    misfire       text    NOT NULL,
    grace         bigint  NOT NULL,
    jitter        bigint  NOT NULL,
    until         bigint,
    target        text,
    tags          text,
    origin        text    NOT NULL,
    created_at    bigint  NOT NULL,
    next_due_at   bigint,
    last_fired_at bigint,
    revision      integer NOT NULL DEFAULT 1,
    paused_at     bigint,
    pause_note    text    NOT NULL DEFAULT '',
    paused_until  bigint,
    seen_at       bigint,
    skip_id       uuid,
    skip_reason   text,
    skip_last_at  bigint,
    UNIQUE (tenant, name)
);

CREATE INDEX tickwork_schedule_due ON tickwork_schedule (next_due_at)
    WHERE next_due_at IS NOT NULL;
CREATE INDEX tickwork_schedule_skip ON tickwork_schedule (skip_id) WHERE skip_id IS NOT NULL;

-- Rows that are updated often, in columns without an index, get free space for their next version
-- on the same page.
CREATE TABLE tickwork_job (
    tenant          text    COLLATE "C" NOT NULL,
    name            text    COLLATE "C" NOT NULL,
    seen_at         bigint,
    last_run_at     bigint,
    last_success_at bigint,
    last_error_at   bigint,
    last_error      text    NOT NULL DEFAULT '',
    failures        integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50);

CREATE TABLE tickwork_pause (
    kind      text   COLLATE "C" NOT NULL,
    name      text   COLLATE "C" NOT NULL,
    paused_at bigint NOT NULL,
    note      text   NOT NULL,
    until     bigint,
    PRIMARY KEY (kind, name)
);

CREATE TABLE tickwork_worker (
    id              uuid    NOT NULL PRIMARY KEY,
    host            text    NOT NULL,
    pid             integer NOT NULL,
    boot_id         text    NOT NULL,
    process_started text    NOT NULL,
    started_at      bigint  NOT NULL,
    beat_at         bigint  NOT NULL,
    queues          text,
    jobs            text    NOT NULL,
    slots           integer NOT NULL,
    running         integer NOT NULL,
    version         text    NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE tickwork_lock (
    name        text    COLLATE "C" NOT NULL PRIMARY KEY,
    owner       text    COLLATE "C" NOT NULL,
    host        text    NOT NULL,
    pid         integer NOT NULL,
    acquired_at bigint  NOT NULL,
    until       bigint  NOT NULL
) WITH (fillfactor = 50);

INSERT INTO tickwork_gate (gate)
SELECT gate FROM generate_series(0, 1023) AS gate;

CREATE VIEW tickwork_runs AS
SELECT id, tenant, job, queue, priority, status, phase, args, attempt, attempts_max, crashes,
       schedule, worker, reason, NULL::text AS result,
       to_timestamp(due_at / 1e6) AS due_at,
       to_timestamp(created_at / 1e6) AS created_at,
       to_timestamp(started_at / 1e6) AS started_at,
       NULL::timestamptz AS ended_at
FROM tickwork_run
UNION ALL
SELECT id, tenant, job, queue, priority, status, NULL, args, attempt, attempts_max, crashes,
       schedule, worker, reason, result,
       to_timestamp(due_at / 1e6),
       to_timestamp(created_at / 1e6),
       to_timestamp(started_at / 1e6),
       to_timestamp(ended_at / 1e6)
FROM tickwork_history;
