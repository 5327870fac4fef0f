-- name: extend_leases
-- In the order of ids, and skipping locked rows: another transaction is finishing or reaping those,
-- and a heartbeat that waited for them could be too late for the others.
UPDATE (
    SELECT beat.id, beat.lease_until, beat.started_at
    FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
        lease_until BIGINT PATH '$[0]', started_at BIGINT PATH '$[1]', id {id} PATH '$[2]',
        token INT PATH '$[3]'
    )) AS beat
    STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = beat.id
    WHERE run.token = beat.token AND {is_claimed}
    LIMIT 1000000
    FOR UPDATE {of_run} SKIP LOCKED
) AS held
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = held.id
SET run.lease_until = greatest(run.lease_until, held.lease_until),
    run.started_at = coalesce(run.started_at, held.started_at);

-- fragment: is_claimed
-- As is_unclaimed, without rows that are inconsistent.
status = 'running' AND phase = 'running' AND blocked_on IS NULL

-- name: hand_over
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    external_id {a_text} PATH '$[0]', id {id} PATH '$[1]', token INT PATH '$[2]'
)) AS given
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = given.id
SET run.external_id = given.external_id
WHERE run.token = given.token AND {is_claimed};

-- name: accept_runs
-- The token guards each row: of two processes that accept the same run, the second one waits for
-- the first, and then finds another token.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    tag {a_text} PATH '$[0]', worker {id} PATH '$[1]', lease_until BIGINT PATH '$[2]',
    started_at BIGINT PATH '$[3]', id {id} PATH '$[4]', token INT PATH '$[5]'
)) AS given
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = given.id
SET run.token = run.token + 1,
    run.claim_tag = given.tag,
    run.worker = given.worker,
    run.lease_until = greatest(run.lease_until, given.lease_until),
    run.started_at = given.started_at
WHERE run.token = given.token AND {is_claimed} AND run.cancel_requested_at IS NULL;

-- name: accepted_runs
SELECT {claim_columns} FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id IN (:ids) AND worker = :worker AND claim_tag = :tag
ORDER BY priority, due_at, id;

-- name: lock_running
SELECT id, token FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id IN (:ids) AND status = 'running'
ORDER BY id
FOR UPDATE;

-- name: finish_runs
-- The token guards each row: a claim that was lost moves no row, and the row count shows that. FOR
-- UPDATE locks the rows as they are read, in the order of ids; a plain INSERT … SELECT does not.
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {run.moved_columns}, step.status, attempt - step.uncounted_attempts, crashes + step.crash,
       cancel_requested_at, coalesce(step.started_at, run.started_at), step.ended_at, step.outcome,
       step.result, step.reason
FROM JSON_TABLE(:sorted_rows, '$[*]' COLUMNS (
    id {id} PATH '$[0]', token INT PATH '$[1]', status {a_word} PATH '$[2]',
    uncounted_attempts INT PATH '$[3]', crash INT PATH '$[4]', started_at BIGINT PATH '$[5]',
    ended_at BIGINT PATH '$[6]', outcome {a_word} PATH '$[7]', result {a_text} PATH '$[8]',
    reason {a_text} PATH '$[9]'
)) AS step
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = step.id
WHERE run.token = step.token AND run.status = 'running'
FOR UPDATE {of_run};
{delete_finished};

-- fragment: delete_finished
DELETE run
FROM JSON_TABLE(:sorted_rows, '$[*]' COLUMNS (
    id {id} PATH '$[0]', token INT PATH '$[1]'
)) AS step
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = step.id
WHERE run.token = step.token AND run.status = 'running'

-- name: finish_plain
-- The same for runs that succeeded at the first attempt, which are most.
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {run.moved_columns}, 'completed', attempt, crashes, cancel_requested_at,
       coalesce(step.started_at, run.started_at), step.ended_at, 'succeeded', step.result, ''
FROM JSON_TABLE(:sorted_rows, '$[*]' COLUMNS (
    id {id} PATH '$[0]', token INT PATH '$[1]', started_at BIGINT PATH '$[2]',
    ended_at BIGINT PATH '$[3]', result {a_text} PATH '$[4]'
)) AS step
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = step.id
WHERE run.token = step.token AND run.status = 'running'
FOR UPDATE {of_run};
{delete_finished};

-- name: free_keys
-- A SELECT finds the keys first: in a caller's transaction, a locking read of keys that do not
-- exist would block their insertion by others. Locked keys are skipped: another run is taking them
-- over.
SELECT `key` FROM tickwork_unique FORCE INDEX (run) WHERE run IN (:ids);
DELETE held
FROM (
    SELECT `key` FROM tickwork_unique FORCE INDEX (PRIMARY)
    WHERE `key` IN (:found) AND run IN (:ids) AND (until IS NULL OR until <= :now)
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) AS ours
STRAIGHT_JOIN tickwork_unique AS held FORCE INDEX (PRIMARY) ON held.`key` = ours.`key`;

-- name: find_finished
-- The read locks, for the same reason as in find_ids.
SELECT id, token, status FROM tickwork_history FORCE INDEX (PRIMARY) WHERE id IN (:ids) LOCK IN SHARE MODE;

-- name: return_runs
-- The rows are locked already.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    id {id} PATH '$[0]', token INT PATH '$[1]', status {a_word} PATH '$[2]',
    phase {a_word} PATH '$[3]', due_at BIGINT PATH '$[4]', uncounted_attempts INT PATH '$[5]',
    crash INT PATH '$[6]', postponements INT PATH '$[7]', attempts_max INT PATH '$[8]',
    reason {a_text} PATH '$[9]', links INT PATH '$[10]'
)) AS step
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = step.id
SET run.status = step.status,
    run.phase = step.phase,
    run.due_at = step.due_at,
    run.attempt = run.attempt - step.uncounted_attempts,
    run.crashes = run.crashes + step.crash,
    run.postponements = run.postponements + step.postponements,
    run.attempts_max = coalesce(step.attempts_max, run.attempts_max),
    run.reason = step.reason,
    run.links = run.links | step.links,
    -- A run that is suspended has started in time.
    run.expires_at = CASE WHEN step.links = 0 THEN run.expires_at END,
    run.claim_tag = NULL,
    run.lease_until = NULL,
    run.worker = NULL,
    run.started_at = NULL
WHERE run.token = step.token AND run.status = 'running';

-- name: insert_attempts
INSERT INTO tickwork_attempt (
    run, token, attempt, outcome, started_at, ended_at, error, traceback, worker
)
SELECT run.id, run.token, made.attempt, made.outcome, coalesce(made.started_at, run.started_at),
       made.ended_at, made.error, made.traceback, run.worker
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    id {id} PATH '$[0]', token INT PATH '$[1]', attempt INT PATH '$[2]',
    outcome {a_word} PATH '$[3]', started_at BIGINT PATH '$[4]', ended_at BIGINT PATH '$[5]',
    error {a_text} PATH '$[6]', traceback {a_text} PATH '$[7]'
)) AS made
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY)
    ON run.id = made.id AND run.token = made.token
ON DUPLICATE KEY UPDATE tickwork_attempt.token = tickwork_attempt.token;

-- name: insert_steps
-- The token guards each row: the lock keeps other workers from claiming the run before the commit.
-- A step that exists was stored by an earlier call whose answer was lost.
INSERT INTO tickwork_step (run, {step_columns})
SELECT run.id, {step.step_columns}
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    run {id} PATH '$[0]', name {a_name} PATH '$[1]', place INT PATH '$[2]',
    kind {a_word} PATH '$[3]', state {a_word} PATH '$[4]', token INT PATH '$[5]',
    at BIGINT PATH '$[6]', until BIGINT PATH '$[7]', value {a_text} PATH '$[8]',
    is_secret INT PATH '$[9]', version {a_name} PATH '$[10]',
    ref {id} PATH '$[11]', digest {a_word} PATH '$[12]'
)) AS step
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY)
    ON run.id = step.run AND run.token = step.token AND run.status = 'running'
FOR UPDATE {of_run}
ON DUPLICATE KEY UPDATE tickwork_step.token = tickwork_step.token;

-- name: delete_waits
DELETE waits
FROM {these_ids}
STRAIGHT_JOIN tickwork_wait AS waits FORCE INDEX (PRIMARY) ON waits.run = wanted.id;

-- name: delete_outbox
DELETE left_over
FROM {these_ids}
STRAIGHT_JOIN tickwork_outbox AS left_over FORCE INDEX (PRIMARY) ON left_over.id = wanted.id;

-- name: insert_edges
INSERT INTO tickwork_edge (child, parent, step, is_own) VALUES [[(?1, ?2, ?3, ?4)]]
ON DUPLICATE KEY UPDATE is_own = VALUES(is_own);

-- name: touch_jobs
-- In one order, and last in its transaction: all workers write these rows.
INSERT INTO tickwork_job (
    tenant, name, last_run_at, last_success_at, last_error_at, last_error, failures
)
VALUES [[(?1, ?2, ?3, ?4, ?5, ?6, ?7)]]
ON DUPLICATE KEY UPDATE
    last_run_at = greatest(coalesce(last_run_at, 0), VALUES(last_run_at)),
    last_success_at = coalesce(
        greatest(last_success_at, VALUES(last_success_at)), VALUES(last_success_at), last_success_at
    ),
    last_error = CASE WHEN VALUES(last_error_at) IS NULL THEN last_error ELSE VALUES(last_error) END,
    last_error_at = coalesce(
        greatest(last_error_at, VALUES(last_error_at)), VALUES(last_error_at), last_error_at
    ),
    failures = CASE
        WHEN VALUES(last_success_at) IS NULL THEN least(failures, 1000000000) + VALUES(failures)
        ELSE VALUES(failures)
    END;

-- name: release_worker
SELECT id FROM tickwork_run FORCE INDEX (lease) WHERE lease_until > :now AND worker = :worker;
UPDATE tickwork_run FORCE INDEX (PRIMARY)
SET lease_until = :now
WHERE id IN (:found) AND lease_until > :now AND worker = :worker AND {is_claimed};

-- name: cancel_waiting
-- The rows are locked already.
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {moved_columns}, 'canceled', attempt, crashes, coalesce(cancel_requested_at, :now), started_at,
       :now, 'canceled', NULL, :reason
FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id IN (:ids) AND status <> 'running'
FOR UPDATE;
DELETE run
FROM {these_ids}
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = wanted.id
WHERE run.status <> 'running';

-- name: runs_of_schedules
SELECT run.id
FROM JSON_TABLE(:json_names, '$[*]' COLUMNS (
    tenant {a_name} PATH '$[0]', schedule {a_name} PATH '$[1]'
)) AS wanted
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (schedule)
    ON run.schedule = wanted.schedule AND run.tenant = wanted.tenant
LIMIT :limit;
SELECT id, status, limit_keys, links FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id IN (:found)
ORDER BY id
FOR UPDATE;

-- name: request_cancel_of_schedules
SELECT run.id
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    schedule {a_name} PATH '$[1]', tenant {a_name} PATH '$[2]'
)) AS given
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (schedule)
    ON run.schedule = given.schedule AND run.tenant = given.tenant
WHERE run.status = 'running';
UPDATE tickwork_run FORCE INDEX (PRIMARY)
SET cancel_requested_at = coalesce(cancel_requested_at, :v1)
WHERE id IN (:found) AND {is_claimed};

-- name: save_progress
-- Depending on a flag of the connection, the row count of an UPDATE excludes unchanged rows, so the
-- rows are counted by a query.
UPDATE tickwork_run
SET progress = coalesce(:progress, progress), checkpoint = coalesce(:checkpoint, checkpoint)
WHERE id = :id AND token = :token AND status = 'running';
SELECT count(*) FROM tickwork_run WHERE id = :id AND token = :token AND status = 'running';

-- name: count_logs
-- Only of existing runs: lines of a pruned run would stay forever.
SELECT id, (SELECT count(*) FROM tickwork_log WHERE tickwork_log.run = known.id)
FROM (
    SELECT id FROM tickwork_run FORCE INDEX (PRIMARY) WHERE id IN (:ids)
    UNION ALL
    SELECT id FROM tickwork_history FORCE INDEX (PRIMARY) WHERE id IN (:ids)
) AS known;

-- name: insert_log
INSERT INTO tickwork_log (run, line, at, level, logger, message)
VALUES [[(?1, ?2, ?3, ?4, ?5, ?6)]]
ON DUPLICATE KEY UPDATE line = VALUES(line);

-- name: lock_marks
-- A statement of its own: the next one reads the rows as the previous holder of the lock committed
-- them.
SELECT id FROM tickwork_schedule FORCE INDEX (name)
WHERE (tenant, name) IN (:names)
ORDER BY tenant, name
FOR UPDATE;

-- name: skip_marks
-- With the first unfinished and the first finished firing after the newest row of skips, if there
-- are any. The ids of firings begin with their instant.
SELECT tenant, name, skip_id,
       (SELECT reason FROM tickwork_history
        WHERE tickwork_history.id = skip_id AND instants BETWEEN 1 AND 1000000000),
       skip_last_at,
       (SELECT min(run.nominal_at) FROM tickwork_run AS run FORCE INDEX (schedule)
        WHERE run.schedule = tickwork_schedule.name
          AND run.tenant = tickwork_schedule.tenant
          AND run.nominal_at > tickwork_schedule.skip_last_at),
       (SELECT min(finished.nominal_at) FROM tickwork_history AS finished FORCE INDEX (schedule)
        WHERE finished.schedule = tickwork_schedule.name
          AND finished.tenant = tickwork_schedule.tenant
          AND finished.id > tickwork_schedule.skip_id
          AND finished.nominal_at > tickwork_schedule.skip_last_at
          AND finished.status <> 'skipped')
FROM tickwork_schedule FORCE INDEX (name)
WHERE (tenant, name) IN (:names) AND skip_id IS NOT NULL;

-- name: firings_between
-- Of each schedule, those between two skips: unfinished ones, and finished ones.
SELECT run.tenant, run.schedule, run.nominal_at
FROM {spans_of_skips}
STRAIGHT_JOIN tickwork_run AS run FORCE INDEX (schedule)
    ON run.schedule = span.name
    AND run.tenant = span.tenant
    AND run.nominal_at > span.first_at
    AND run.nominal_at < span.last_at
UNION ALL
SELECT finished.tenant, finished.schedule, finished.nominal_at
FROM {spans_of_skips}
STRAIGHT_JOIN tickwork_history AS finished FORCE INDEX (schedule)
    ON finished.schedule = span.name
    AND finished.tenant = span.tenant
    AND finished.id > span.first_id
    AND finished.nominal_at > span.first_at
    AND finished.nominal_at < span.last_at
    AND finished.status <> 'skipped';

-- fragment: spans_of_skips
JSON_TABLE(:json_spans, '$[*]' COLUMNS (
    tenant {a_name} PATH '$[0]', name {a_name} PATH '$[1]', first_at BIGINT PATH '$[2]',
    last_at BIGINT PATH '$[3]', first_id {id} PATH '$[4]'
)) AS span

-- name: set_skip_marks
-- The rows are locked already.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    skip_id {id} PATH '$[0]', reason {a_text} PATH '$[1]', last_at BIGINT PATH '$[2]',
    tenant {a_name} PATH '$[3]', name {a_name} PATH '$[4]'
)) AS mark
STRAIGHT_JOIN tickwork_schedule AS schedule FORCE INDEX (name)
    ON schedule.tenant = mark.tenant AND schedule.name = mark.name
SET schedule.skip_id = mark.skip_id,
    schedule.skip_reason = mark.reason,
    schedule.skip_last_at = mark.last_at;

-- name: clear_skip_marks
-- A SELECT finds the rows first: a ticker that fires a schedule has locked its row, and most
-- schedules have no mark.
SELECT schedule.id
FROM {ended_firings}
STRAIGHT_JOIN tickwork_schedule AS schedule FORCE INDEX (name)
    ON schedule.tenant = ended.tenant AND schedule.name = ended.name
WHERE schedule.skip_last_at < ended.nominal_at;
UPDATE {ended_firings}
STRAIGHT_JOIN tickwork_schedule AS schedule FORCE INDEX (name)
    ON schedule.tenant = ended.tenant AND schedule.name = ended.name
SET schedule.skip_id = NULL, schedule.skip_reason = NULL, schedule.skip_last_at = NULL
WHERE schedule.id IN (:found) AND schedule.skip_last_at < ended.nominal_at;

-- fragment: ended_firings
JSON_TABLE(:rows, '$[*]' COLUMNS (
    tenant {a_name} PATH '$[0]', name {a_name} PATH '$[1]', nominal_at BIGINT PATH '$[2]'
)) AS ended

-- name: merge_skips
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    instants INT PATH '$[0]', last_at BIGINT PATH '$[1]', ended_at BIGINT PATH '$[2]',
    id {id} PATH '$[3]'
)) AS merged
STRAIGHT_JOIN tickwork_history AS history FORCE INDEX (PRIMARY) ON history.id = merged.id
SET history.instants = history.instants + merged.instants,
    history.last_nominal_at = merged.last_at,
    history.ended_at = merged.ended_at;

-- name: drop_history
DELETE log
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (id {id} PATH '$[0]')) AS gone
STRAIGHT_JOIN tickwork_log AS log FORCE INDEX (PRIMARY) ON log.run = gone.id;
DELETE finished
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (id {id} PATH '$[0]')) AS gone
STRAIGHT_JOIN tickwork_history AS finished FORCE INDEX (PRIMARY) ON finished.id = gone.id;

-- name: insert_skips
INSERT INTO tickwork_history (
    id, tenant, job, queue, priority, status, due_at, args, attempt, attempts_max, crashes,
    postponements, token, schedule, nominal_at, last_nominal_at, instants, created_at, ended_at,
    outcome, reason
)
VALUES [[(?1, ?2, ?3, ?4, ?5, 'skipped', ?6, ?7, 0, 1, 0, 0, 0, ?8, ?9, ?10, ?11, ?12, ?13, 'skipped', ?14)]]
ON DUPLICATE KEY UPDATE id = VALUES(id);
