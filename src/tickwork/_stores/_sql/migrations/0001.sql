-- One text for all databases. Each dialect fills the words in braces, in its `queries/words.sql`;
-- `-- for: NAMES` begins lines for some dialects, and `-- end` ends them.
--
-- Times and lengths are microseconds, times since 1970 in UTC. JSON is stored as the original text:
-- a JSON type would change numbers. Names and keys compare byte by byte, independent of the locale:
-- all processes must sort them in the same order, and it is faster.
--
-- Servers evaluate every CHECK of a row at each of its updates. So only lists in tables that change
-- rarely are checked for valid JSON: on SQLite, which evaluates fewer, a drain of runs with checked
-- lists took 2 % longer. Arguments and results may be encrypted, and are not checked. The values of
-- an enumeration are compared with OR: for each IN, SQLite would build a small table for every row.
--
-- MySQL has no partial indexes: where an index is for few rows, its first column is NULL for all
-- others, and no query reads those. DDL cannot be rolled back there: a step that was interrupted
-- runs again, and errors for objects that exist are ignored.

-- for: sqlite
-- On servers, an installation creates and locks this table first.
CREATE TABLE tickwork_meta (
    version         INTEGER NOT NULL,
    compatible_from INTEGER NOT NULL
) STRICT;
-- end

-- for: postgres
-- The boundary of eras (ADR 26): a transaction number, which workers move up. A sequence, because all
-- transactions see its current value, at any isolation level.
CREATE SEQUENCE tickwork_era AS bigint;
SELECT setval('tickwork_era', 1);
-- end

CREATE TABLE tickwork_run (
    id                  {id} NOT NULL,
    tenant              {name} NOT NULL,
    job                 {name} NOT NULL,
    queue               {name} NOT NULL,
    priority            INTEGER NOT NULL,
    status              {word} NOT NULL,
    phase               {word} NOT NULL,
    due_at              {bigint} NOT NULL,
    expires_at          {bigint},
    args                {text} NOT NULL,
    tags                {text},
    attempt             INTEGER NOT NULL DEFAULT 0,
    attempts_max        INTEGER NOT NULL,
    crashes             INTEGER NOT NULL DEFAULT 0,
    postponements       INTEGER NOT NULL DEFAULT 0,
    token               INTEGER NOT NULL DEFAULT 0,
    claim_tag           {name},
    lease_until         {bigint},
    worker              {id},
    overlap_key         {long_name},
    limit_keys          {text},
    blocked_on          {long_name},
    schedule            {name},
    nominal_at          {bigint},
    target              {text},
    external_id         {text},
    retry_of            {id},
    trace               {text},
    progress            {text},
    checkpoint          {text},
    cancel_requested_at {bigint},
    created_at          {bigint} NOT NULL,
    started_at          {bigint},
    reason              {text} NOT NULL DEFAULT (''),
    -- What other rows depend on this run, in bits: 0 for most runs. See `_domain/runs/links.py`.
    links               INTEGER NOT NULL DEFAULT 0,
-- for: postgres
    -- Every statement that makes a run ready sets it. The default is for other programs.
    era                 bigint NOT NULL DEFAULT ({this_era}),
-- end
-- for: mysql
    -- A claim does not change this column, so it does not update the index.
    waiting_at          BIGINT GENERATED ALWAYS AS (
        CASE WHEN phase = 'waiting' THEN due_at END
    ) STORED,
    -- For claims, in claim order; and the same by (queue, job), for when the first rows of the
    -- former are for other workers.
    KEY ready (phase, priority, due_at, id),
    KEY pairs (phase, queue, job, priority, due_at, id),
    KEY waiting (waiting_at),
    KEY lease (lease_until),
    KEY blocked (blocked_on, priority, due_at, id),
    -- For blocked runs that expire: they are unblocked to be skipped, and use no start of the rate.
    KEY expiring (blocked_on, expires_at),
    UNIQUE KEY overlap (overlap_key),
    KEY schedule (schedule, tenant, nominal_at),
    KEY retry_of (retry_of),
-- end
    PRIMARY KEY (id),
    CHECK (status = 'pending' OR status = 'running' OR status = 'failed'),
    CHECK (phase = 'ready' OR phase = 'running' OR phase = 'waiting' OR phase = 'blocked'),
    CHECK ((status = 'running') = (phase = 'running')),
    CHECK ((phase = 'running') = (lease_until IS NOT NULL)),
    CHECK ((phase = 'blocked') = (blocked_on IS NOT NULL)),
    CHECK (attempt >= 0 AND token >= 0),
    CHECK (attempts_max >= 1 AND crashes >= 0 AND postponements >= 0 AND links >= 0)
) {replaced_rows};

-- for: postgres sqlite
-- For claims, in claim order; and the same by (queue, job), for when the first rows of the former
-- are for other workers.
CREATE INDEX tickwork_run_ready ON tickwork_run ({era_first} priority, due_at, id)
    WHERE phase = 'ready';
CREATE INDEX tickwork_run_pairs ON tickwork_run ({era_first} queue, job, priority, due_at, id)
    WHERE phase = 'ready';
CREATE INDEX tickwork_run_waiting ON tickwork_run (due_at) WHERE phase = 'waiting';
-- The condition is on lease_until, not on the status: with the latter, the planner of PostgreSQL
-- made recording 500 runs a nested loop of 500 by 500.
CREATE INDEX tickwork_run_lease ON tickwork_run (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX tickwork_run_blocked ON tickwork_run (blocked_on, priority, due_at, id)
    WHERE blocked_on IS NOT NULL;
-- For blocked runs that expire: they are unblocked to be skipped, and use no start of the rate.
CREATE INDEX tickwork_run_expiring ON tickwork_run (blocked_on, expires_at)
    WHERE blocked_on IS NOT NULL AND expires_at IS NOT NULL;
CREATE UNIQUE INDEX tickwork_run_overlap ON tickwork_run (overlap_key)
    WHERE overlap_key IS NOT NULL;
CREATE INDEX tickwork_run_schedule ON tickwork_run (schedule, tenant, nominal_at)
    WHERE schedule IS NOT NULL;
-- end

-- for: sqlite
-- For counting the runs of each queue that workers do not see.
CREATE INDEX tickwork_run_hidden ON tickwork_run (queue, phase)
    WHERE phase = 'waiting' OR phase = 'blocked';
-- end

-- for: postgres
-- The same. The condition on the queue holds for every row: without it, PostgreSQL would use this
-- index to unblock runs.
CREATE INDEX tickwork_run_hidden ON tickwork_run (queue, phase)
    WHERE (phase = 'waiting' OR phase = 'blocked') AND queue >= '';
-- end

-- for: postgres sqlite
CREATE INDEX tickwork_run_retry_of ON tickwork_run (retry_of) WHERE retry_of IS NOT NULL;
-- end

-- The numbers of a run are not checked again: each run can be moved here.
CREATE TABLE tickwork_history (
    id                  {id} NOT NULL,
    tenant              {name} NOT NULL,
    job                 {name} NOT NULL,
    queue               {name} NOT NULL,
    priority            INTEGER NOT NULL,
    status              {word} NOT NULL,
    due_at              {bigint} NOT NULL,
    expires_at          {bigint},
    args                {text} NOT NULL,
    tags                {text},
    attempt             INTEGER NOT NULL,
    attempts_max        INTEGER NOT NULL,
    crashes             INTEGER NOT NULL,
    postponements       INTEGER NOT NULL,
    token               INTEGER NOT NULL,
    worker              {id},
    limit_keys          {text},
    schedule            {name},
    nominal_at          {bigint},
    last_nominal_at     {bigint},
    instants            INTEGER NOT NULL DEFAULT 1,
    target              {text},
    external_id         {text},
    retry_of            {id},
    trace               {text},
    progress            {text},
    checkpoint          {text},
    cancel_requested_at {bigint},
    created_at          {bigint} NOT NULL,
    started_at          {bigint},
    ended_at            {bigint} NOT NULL,
    outcome             {word} NOT NULL,
    result              {text},
    reason              {text} NOT NULL,
-- for: mysql
    KEY ended (ended_at),
    KEY job (job, id),
    -- For listing failed runs among many successful ones.
    KEY unsuccessful (status, id),
    KEY schedule (schedule, tenant, id),
    KEY retry_of (retry_of),
-- end
    PRIMARY KEY (id),
    CHECK (
        status = 'completed' OR status = 'failed_permanent' OR status = 'skipped'
        OR status = 'canceled'
    ),
    CHECK (
        outcome = 'succeeded' OR outcome = 'failed' OR outcome = 'skipped' OR outcome = 'canceled'
        OR outcome = 'snoozed' OR outcome = 'postponed' OR outcome = 'interrupted'
        OR outcome = 'crashed' OR outcome = 'suspended'
    ),
    CHECK (instants >= 1)
) {rows};

-- for: postgres sqlite
CREATE INDEX tickwork_history_ended ON tickwork_history (ended_at);
CREATE INDEX tickwork_history_job ON tickwork_history (job, id);
-- For listing runs that did not succeed; a successful run does not update it.
CREATE INDEX tickwork_history_unsuccessful ON tickwork_history (id) WHERE status <> 'completed';
-- For the outcomes of a schedule. The id of a firing has its instant.
CREATE INDEX tickwork_history_schedule ON tickwork_history (schedule, tenant, id)
    WHERE schedule IS NOT NULL;
CREATE INDEX tickwork_history_retry_of ON tickwork_history (retry_of) WHERE retry_of IS NOT NULL;
-- end

CREATE TABLE tickwork_attempt (
    run        {id} NOT NULL,
    token      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    outcome    {word} NOT NULL,
    started_at {bigint},
    ended_at   {bigint} NOT NULL,
    error      {text} NOT NULL,
    traceback  {text} NOT NULL,
    worker     {id},
    PRIMARY KEY (run, token),
    CHECK (token >= 0 AND attempt >= 0),
    CHECK (
        outcome = 'succeeded' OR outcome = 'failed' OR outcome = 'skipped' OR outcome = 'canceled'
        OR outcome = 'snoozed' OR outcome = 'postponed' OR outcome = 'interrupted'
        OR outcome = 'crashed' OR outcome = 'suspended'
    )
) {rows};

CREATE TABLE tickwork_log (
    run     {id} NOT NULL,
    line    INTEGER NOT NULL,
    at      {bigint} NOT NULL,
    level   {name} NOT NULL,
    logger  {text} NOT NULL,
    message {text} NOT NULL,
    PRIMARY KEY (run, line),
    CHECK (line >= 0)
) {rows};

-- A named value that a run has stored: its later attempts get it again.
CREATE TABLE tickwork_step (
    run       {id} NOT NULL,
    name      {name} NOT NULL,
    place     INTEGER NOT NULL,
    kind      {word} NOT NULL,
    state     {word} NOT NULL,
    token     INTEGER NOT NULL,
    at        {bigint} NOT NULL,
    until     {bigint},
    value     {text},
    is_secret INTEGER NOT NULL,
    version   {name} NOT NULL,
    ref       {id},
    digest    {word} NOT NULL,
-- for: mysql
    KEY ref (ref),
-- end
    PRIMARY KEY (run, name),
    CHECK (place >= 0 AND token >= 0 AND (is_secret = 0 OR is_secret = 1)),
    CHECK (kind = 'step' OR kind = 'sleep' OR kind = 'wait' OR kind = 'call'),
    CHECK (state = 'open' OR state = 'done' OR state = 'failed' OR state = 'timeout')
) {rows};

-- Events that programs have stored: the first one of a name and key.
CREATE TABLE tickwork_event (
    tenant {name} NOT NULL,
    event  {name} NOT NULL,
    {key}  {name} NOT NULL,
    id     {id} NOT NULL,
    data   {text} NOT NULL,
    at     {bigint} NOT NULL,
    until  {bigint} NOT NULL,
-- for: mysql
    KEY until (until),
-- end
    PRIMARY KEY (tenant, event, {key})
) {rows};

-- The event for which a suspended run waits.
CREATE TABLE tickwork_wait (
    run    {id} NOT NULL,
    tenant {name} NOT NULL,
    event  {name} NOT NULL,
    {key}  {name} NOT NULL,
-- for: mysql
    KEY event (event, `key`, run),
-- end
    PRIMARY KEY (run)
) {rows};

-- A run that waits for the end of another one, which it has called. Without ``is_own``, the other
-- run existed before: its unique key was taken.
CREATE TABLE tickwork_edge (
    child  {id} NOT NULL,
    parent {id} NOT NULL,
    step   {name} NOT NULL,
    is_own INTEGER NOT NULL,
-- for: mysql
    KEY parent (parent),
-- end
    PRIMARY KEY (child, parent, step)
) {replaced_rows};

-- Work that a committed transaction has left: an event whose runs are to be woken, or a run that
-- ended without success, and whose calls are to be canceled (its id is the key).
CREATE TABLE tickwork_outbox (
    id     {id} NOT NULL,
    kind   {word} NOT NULL,
    tenant {name} NOT NULL,
    event  {name} NOT NULL,
    {key}  {name} NOT NULL,
    PRIMARY KEY (id),
    CHECK (kind = 'event' OR kind = 'caller')
) {replaced_rows};

-- for: postgres sqlite
CREATE INDEX tickwork_event_until ON tickwork_event (until);
CREATE INDEX tickwork_wait_event ON tickwork_wait (event, key, run);
CREATE INDEX tickwork_edge_parent ON tickwork_edge (parent);
CREATE INDEX tickwork_step_ref ON tickwork_step (ref) WHERE ref IS NOT NULL;
-- end

-- for: postgres
-- The slots of a key are numbered in the order in which they are taken, under its gate: dead ones
-- are before the first live one.
CREATE SEQUENCE tickwork_slot_number AS bigint;
-- end

CREATE TABLE tickwork_slot (
    run {id} NOT NULL,
    {key} {long_name} NOT NULL,
-- for: postgres
    number bigint NOT NULL DEFAULT nextval('tickwork_slot_number'),
-- end
-- for: mysql
    KEY taken (`key`, run),
-- end
    PRIMARY KEY (run, {key})
) {rows};

-- for: postgres
CREATE INDEX tickwork_slot_key ON tickwork_slot (key, number);
-- end
-- for: sqlite
CREATE INDEX tickwork_slot_key ON tickwork_slot (key, run);
-- end

CREATE TABLE tickwork_gate (
    gate INTEGER NOT NULL,
    PRIMARY KEY (gate)
) {rows};

-- Without an override, the number of slots is that of the code; 0 until the code defines the limit.
CREATE TABLE tickwork_limit (
    name     {long_name} NOT NULL,
    slots    INTEGER NOT NULL,
    override INTEGER,
    PRIMARY KEY (name),
    CHECK (slots >= 0 AND (override IS NULL OR override >= 0))
) {rows};

CREATE TABLE tickwork_unique (
    {key} {long_name} NOT NULL,
    run   {id} NOT NULL,
    until {bigint},
-- for: mysql
    KEY run (run),
    -- Keys whose window has passed are pruned, also when their run still exists.
    KEY until (until),
-- end
    PRIMARY KEY ({key})
) {rows};

-- for: postgres sqlite
CREATE INDEX tickwork_unique_run ON tickwork_unique (run);
-- Keys whose window has passed are pruned, also when their run still exists.
CREATE INDEX tickwork_unique_until ON tickwork_unique (until) WHERE until IS NOT NULL;
-- end

CREATE TABLE tickwork_schedule (
    id            {id} NOT NULL,
    tenant        {name} NOT NULL,
    name          {name} NOT NULL,
    job           {name} NOT NULL,
    rule          {text} NOT NULL,
    zone          {name} NOT NULL,
    args          {text} NOT NULL,
    queue         {name},
    priority      INTEGER,
    expires       {bigint},
    overlap       {word} NOT NULL,
    misfire       {word} NOT NULL,
    grace         {bigint} NOT NULL,
    jitter        {bigint} NOT NULL,
    until         {bigint},
    target        {text},
    tags          {text},
    origin        {word} NOT NULL,
    -- Within how long a firing must complete; NULL: no process watches the schedule.
    expect_within {bigint},
    created_at    {bigint} NOT NULL,
    next_due_at   {bigint},
    last_fired_at {bigint},
    revision      INTEGER NOT NULL DEFAULT 1,
    paused_at     {bigint},
    pause_note    {text} NOT NULL DEFAULT (''),
    paused_until  {bigint},
    seen_at       {bigint},
    skip_id       {id},
    skip_reason   {text},
    skip_last_at  {bigint},
-- for: mysql
    -- NULL for paused schedules, so that a tick reads none of them.
    fires_at      BIGINT GENERATED ALWAYS AS (
        CASE WHEN paused_at IS NULL OR paused_until IS NOT NULL THEN next_due_at END
    ) STORED,
    UNIQUE KEY name (tenant, name),
    KEY due (fires_at, id),
    -- For the due schedules of one job: a tick need not read past schedules of unknown jobs. It
    -- also serves the list of jobs that have schedules.
    KEY job_due (job, fires_at, id),
    KEY skip (skip_id),
    KEY expected (expect_within),
-- end
-- for: postgres sqlite
    UNIQUE (tenant, name),
-- end
    PRIMARY KEY (id),
    CHECK (
        overlap = 'skip' OR overlap = 'queue_one' OR overlap = 'queue_all'
        OR overlap = 'cancel_running' OR overlap = 'allow'
    ),
    CHECK (misfire = 'one' OR misfire = 'skip' OR misfire = 'all'),
    CHECK (origin = 'code' OR origin = 'api'),
    CHECK (tags IS NULL OR {is_json tags}),
    CHECK (grace >= 0 AND jitter >= 0 AND revision >= 1),
    CHECK (expires IS NULL OR expires > 0),
    CHECK (expect_within IS NULL OR expect_within > 0)
) {rows};

-- for: postgres sqlite
-- In the order of a tick and without paused schedules: a tick neither sorts a million due schedules
-- for each batch nor reads paused ones.
CREATE INDEX tickwork_schedule_due ON tickwork_schedule (next_due_at, id)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);
-- For the due schedules of one job: a tick need not read past schedules of unknown jobs.
CREATE INDEX tickwork_schedule_job_due ON tickwork_schedule (job, next_due_at, id)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);
-- Each worker lists the jobs that have schedules when it starts. The condition keeps the planner of
-- PostgreSQL from using this index for a tick, which would then sort every schedule of a job.
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job) WHERE job <> '';
CREATE INDEX tickwork_schedule_skip ON tickwork_schedule (skip_id) WHERE skip_id IS NOT NULL;
CREATE INDEX tickwork_schedule_expected ON tickwork_schedule (tenant, name)
    WHERE expect_within IS NOT NULL;
-- end

CREATE TABLE tickwork_job (
    tenant          {name} NOT NULL,
    name            {name} NOT NULL,
    seen_at         {bigint},
    last_run_at     {bigint},
    last_success_at {bigint},
    last_error_at   {bigint},
    last_error      {text} NOT NULL DEFAULT (''),
    failures        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name),
    CHECK (failures >= 0)
) {updated_rows};

-- Which applications define a job or a schedule of this name, and when they last reported it.
CREATE TABLE tickwork_definition (
    kind        {word} NOT NULL,
    name        {name} NOT NULL,
    application {name} NOT NULL,
    handler     {text} NOT NULL,
    seen_at     {bigint} NOT NULL,
    PRIMARY KEY (kind, name, application),
    CHECK (kind = 'job' OR kind = 'schedule')
) {rows};

CREATE TABLE tickwork_pause (
    kind      {word} NOT NULL,
    name      {name} NOT NULL,
    paused_at {bigint} NOT NULL,
    note      {text} NOT NULL,
    until     {bigint},
    PRIMARY KEY (kind, name),
    CHECK (kind = 'queue' OR kind = 'job')
) {rows};

CREATE TABLE tickwork_worker (
    id              {id} NOT NULL,
    host            {name} NOT NULL,
    pid             INTEGER NOT NULL,
    boot_id         {name} NOT NULL,
    process_started {name} NOT NULL,
    started_at      {bigint} NOT NULL,
    beat_at         {bigint} NOT NULL,
    queues          {text},
    jobs            {text} NOT NULL,
    slots           INTEGER NOT NULL,
    running         INTEGER NOT NULL,
    version         {name} NOT NULL,
    PRIMARY KEY (id),
    CHECK (queues IS NULL OR {is_json queues}),
    CHECK ({is_json jobs}),
    CHECK (pid >= 0 AND slots >= 0 AND running >= 0)
) {updated_rows};

CREATE TABLE tickwork_lock (
    name        {long_name} NOT NULL,
    owner       {name} NOT NULL,
    host        {name} NOT NULL,
    pid         INTEGER NOT NULL,
    acquired_at {bigint} NOT NULL,
    until       {bigint} NOT NULL,
    PRIMARY KEY (name),
    CHECK (pid >= 0)
) {updated_rows};

-- One key of a rate: the number of starts, when the last start leaves the window, when the next
-- blocked run is unblocked (NULL: no run waits), and how many runs were unblocked and have not
-- started.
CREATE TABLE tickwork_rate (
    {key} {long_name} NOT NULL,
    number        {bigint} NOT NULL,
    idle_at       {bigint},
    next_start_at {bigint},
    opened        INTEGER NOT NULL,
-- for: mysql
    KEY next_start (next_start_at, idle_at),
-- end
    PRIMARY KEY ({key}),
    CHECK (number >= 0 AND opened >= 0)
) {updated_rows};

-- for: postgres sqlite
CREATE INDEX tickwork_rate_next_start ON tickwork_rate (next_start_at)
    WHERE next_start_at IS NOT NULL;
CREATE INDEX tickwork_rate_idle ON tickwork_rate (idle_at) WHERE next_start_at IS NULL;
-- end

-- One start of a run under a key. Only the latest starts are kept, as many as the rate allows in
-- its window, and each new row replaces an old one.
CREATE TABLE tickwork_start (
    {key} {long_name} NOT NULL,
    number {bigint} NOT NULL,
    at     {bigint} NOT NULL,
    PRIMARY KEY ({key}, number),
    CHECK (number >= 0)
) {replaced_rows};

-- What people and programs did through the dashboard and the API: one row for each action. The id
-- sorts by time.
CREATE TABLE tickwork_audit (
    id      {id} NOT NULL,
    at      {bigint} NOT NULL,
    actor   {name} NOT NULL,
    source  {name} NOT NULL,
    action  {name} NOT NULL,
    subject {long_name} NOT NULL,
    detail  {text} NOT NULL,
-- for: mysql
    KEY subject (subject, id),
    KEY action (action, id),
-- end
    PRIMARY KEY (id)
) {rows};

-- What needed a person, from its begin to its end. A name has at most one open row.
CREATE TABLE tickwork_alert (
    id        {id} NOT NULL,
    name      {long_name} NOT NULL,
    kind      {name} NOT NULL,
    level     {word} NOT NULL,
    text      {text} NOT NULL,
    began_at  {bigint} NOT NULL,
    ended_at  {bigint},
-- for: mysql
    open_name VARCHAR(512) GENERATED ALWAYS AS (CASE WHEN ended_at IS NULL THEN name END) STORED,
    UNIQUE KEY open (open_name),
    KEY ended (ended_at, id),
-- end
    PRIMARY KEY (id)
) {rows};

-- for: postgres sqlite
CREATE UNIQUE INDEX tickwork_alert_open ON tickwork_alert (name) WHERE ended_at IS NULL;
CREATE INDEX tickwork_alert_ended ON tickwork_alert (ended_at, id) WHERE ended_at IS NOT NULL;
-- end

-- An idempotency key: the run that its first request made. `digest` shows whether a second request
-- with the key is the same one.
CREATE TABLE tickwork_request (
    {key} {long_name} NOT NULL,
    digest {name} NOT NULL,
    run    {id} NOT NULL,
    until  {bigint} NOT NULL,
-- for: mysql
    KEY until (until),
-- end
    PRIMARY KEY ({key})
) {rows};

-- How many attempts ended, by time, job, queue and status. The level says how far a row was merged
-- with others: 0 is a row of one transaction, 1 a minute, 2 an hour, 3 a day. Rows are added and
-- deleted, and never changed.
CREATE TABLE tickwork_rollup (
    id        {serial} NOT NULL,
    level     INTEGER NOT NULL,
    begins_at {bigint} NOT NULL,
    job       {name} NOT NULL,
    queue     {name} NOT NULL,
    status    {word} NOT NULL,
    ended     {bigint} NOT NULL,
    runtimes  {text} NOT NULL,
    waits     {text} NOT NULL,
-- for: mysql
    KEY age (level, begins_at),
    KEY job (job, level, begins_at),
-- end
    PRIMARY KEY (id),
    CHECK (ended > 0)
) {serial_rows};

-- for: postgres sqlite
CREATE INDEX tickwork_rollup_age ON tickwork_rollup (level, begins_at);
CREATE INDEX tickwork_rollup_job ON tickwork_rollup (job, level, begins_at) WHERE level > 0;
CREATE INDEX tickwork_audit_subject ON tickwork_audit (subject, id);
CREATE INDEX tickwork_audit_action ON tickwork_audit (action, id);
CREATE INDEX tickwork_request_until ON tickwork_request (until);

INSERT INTO tickwork_gate (gate)
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1023)
SELECT n FROM numbers;
-- end

-- for: mysql
-- The counter grows when something changes that idle workers must notice.
CREATE TABLE tickwork_change_counter (
    only_one TINYINT NOT NULL,
    changes  BIGINT NOT NULL,
    PRIMARY KEY (only_one),
    CHECK (only_one = 1)
) ENGINE = InnoDB;

INSERT INTO tickwork_change_counter (only_one, changes) VALUES (1, 0)
ON DUPLICATE KEY UPDATE only_one = VALUES(only_one);

-- In two digits: the depth of a recursion is limited to 1,000.
INSERT INTO tickwork_gate (gate)
WITH RECURSIVE digits (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digits WHERE n < 31)
SELECT tens.n * 32 + ones.n FROM digits AS tens CROSS JOIN digits AS ones WHERE true
ON DUPLICATE KEY UPDATE gate = VALUES(gate);
-- end

CREATE VIEW tickwork_runs AS
SELECT id, tenant, job, queue, priority, status, phase, args, attempt, attempts_max, crashes,
       schedule, worker, reason, NULL AS result,
       {time due_at} AS due_at,
       {time created_at} AS created_at,
       {time started_at} AS started_at,
       NULL AS ended_at
FROM tickwork_run
UNION ALL
SELECT id, tenant, job, queue, priority, status, NULL, args, attempt, attempts_max, crashes,
       schedule, worker, reason, result,
       {time due_at},
       {time created_at},
       {time started_at},
       {time ended_at}
FROM tickwork_history;
