-- name: extend_leases
-- In the order of ids, and skipping locked rows: another transaction is finishing or reaping those,
-- and a heartbeat that waited for them could be too late for the others.
WITH held AS MATERIALIZED (
    SELECT id FROM tickwork_run
    WHERE id = ANY (:c3::uuid[]) AND status = 'running'
    ORDER BY id
    FOR UPDATE SKIP LOCKED
)
UPDATE tickwork_run AS run
SET lease_until = greatest(run.lease_until, beat.lease_until),
    started_at = coalesce(run.started_at, beat.started_at)
FROM unnest(:c1::bigint[], :c2::bigint[], :c3::uuid[], :c4::integer[])
    AS beat (lease_until, started_at, id, token)
WHERE run.id = ANY (ARRAY(SELECT id FROM held))
  AND run.id = beat.id
  AND run.token = beat.token
  AND run.status = 'running';

-- name: hand_over
UPDATE tickwork_run AS run
SET external_id = given.external_id
FROM unnest(:c1::text[], :c2::uuid[], :c3::integer[]) AS given (external_id, id, token)
WHERE run.id = ANY (ARRAY[given.id]) AND run.token - given.token = 0 AND run.status = 'running';

-- name: accept_and_read
-- The token guards each row, as in finish_runs: of two processes that accept the same run, the
-- second one waits for the first, and then finds another token.
WITH accepted AS (
    UPDATE tickwork_run AS run
    SET token = run.token + 1,
        claim_tag = :tag::text,
        worker = :worker::uuid,
        lease_until = greatest(run.lease_until, :lease_until::bigint),
        started_at = :started_at::bigint
    FROM unnest(:ids::uuid[], :tokens::integer[]) AS given (id, token)
    WHERE run.id = ANY (ARRAY[given.id])
      AND run.token - given.token = 0
      AND run.status = 'running'
      AND run.cancel_requested_at IS NULL
    RETURNING run.*
)
SELECT {claim_columns} FROM accepted ORDER BY priority, due_at, id;

-- name: lock_running
SELECT id, token FROM tickwork_run
WHERE id = ANY (:ids::uuid[]) AND status = 'running'
ORDER BY id
FOR UPDATE;

-- name: finish_runs
-- The token guards each row: a claim that was lost moves no row, and the row count shows that. The
-- guard is part of the DELETE: after waiting for a lock, the DELETE evaluates it on the current
-- row, so it sees a lost claim, and a concurrent heartbeat does no harm. Selecting the rows first
-- would need FOR UPDATE, which takes a sixth longer. The conditions on id and token are not plain
-- equalities, which keeps the planner from a hash or merge join: rows are found by id, one after
-- the other, in the order of the steps, which are sorted by id.
WITH gone AS (
    DELETE FROM tickwork_run AS run
    USING unnest(
        :c1::uuid[], :c2::integer[], :c3::text[], :c4::integer[], :c5::integer[], :c6::bigint[],
        :c7::bigint[], :c8::text[], :c9::text[], :c10::text[]
    ) AS step (
        id, token, status, uncounted_attempts, crash, started_at, ended_at, outcome, result, reason
    )
    WHERE run.id = ANY (ARRAY[step.id]) AND run.token - step.token = 0 AND run.status = 'running'
    RETURNING {run.moved_columns}, run.attempt, run.crashes, run.cancel_requested_at,
              run.started_at AS claimed_at, step.status, step.uncounted_attempts, step.crash, step.started_at,
              step.ended_at, step.outcome, step.result, step.reason
)
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {moved_columns}, status, attempt - uncounted_attempts, crashes + crash, cancel_requested_at,
       coalesce(started_at, claimed_at), ended_at, outcome, result, reason
FROM gone;

-- name: finish_plain
-- The same for runs that succeeded at the first attempt, which are most.
WITH gone AS ({take_plain})
{keep_plain};

-- name: finish_all
-- The same, where no claim was lost. It fails with a division by zero otherwise, so that the
-- statements that follow can be sent with it: the store writes the runs again, and checks each.
WITH gone AS ({take_plain}), moved AS ({keep_plain} RETURNING 1)
SELECT 1 / (count(*) = cardinality(:c1::uuid[]))::integer FROM moved;

-- fragment: take_plain
DELETE FROM tickwork_run AS run
USING unnest(:c1::uuid[], :c2::integer[], :c3::bigint[], :c4::bigint[], :c5::text[])
    AS step (id, token, started_at, ended_at, result)
WHERE run.id = ANY (ARRAY[step.id]) AND run.token - step.token = 0 AND run.status = 'running'
RETURNING {run.moved_columns}, run.attempt, run.crashes, run.cancel_requested_at,
          run.started_at AS claimed_at, step.started_at, step.ended_at, step.result

-- fragment: keep_plain
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {moved_columns}, 'completed', attempt, crashes, cancel_requested_at,
       coalesce(started_at, claimed_at), ended_at, 'succeeded', result, ''
FROM gone

-- name: free_keys
-- Locked keys are skipped: another run is taking them over. Most databases have no unique keys at
-- all; then no run is looked up.
DELETE FROM tickwork_unique
WHERE key = ANY (ARRAY(
    SELECT key FROM tickwork_unique
    WHERE (SELECT EXISTS (SELECT FROM tickwork_unique))
      AND run = ANY (:ids::uuid[])
      AND (until IS NULL OR until <= :now::bigint)
    FOR UPDATE SKIP LOCKED
));

-- name: find_finished
SELECT id, token, status FROM tickwork_history WHERE id = ANY (:ids::uuid[]);

-- name: return_runs
-- The rows are locked already.
UPDATE tickwork_run AS run
SET {set_era}
    status = step.status,
    phase = step.phase,
    due_at = step.due_at,
    attempt = run.attempt - step.uncounted_attempts,
    crashes = run.crashes + step.crash,
    postponements = run.postponements + step.postponements,
    attempts_max = coalesce(step.attempts_max, run.attempts_max),
    reason = step.reason,
    links = run.links | step.links,
    -- A run that is suspended has started in time.
    expires_at = CASE WHEN step.links = 0 THEN run.expires_at END,
    claim_tag = NULL,
    lease_until = NULL,
    worker = NULL,
    started_at = NULL
FROM unnest(
    :c1::uuid[], :c2::integer[], :c3::text[], :c4::text[], :c5::bigint[], :c6::integer[],
    :c7::integer[], :c8::integer[], :c9::integer[], :c10::text[], :c11::integer[]
) AS step (
    id, token, status, phase, due_at, uncounted_attempts, crash, postponements, attempts_max,
    reason, links
)
WHERE run.id = step.id
  AND run.id = ANY (:c1::uuid[])
  AND run.token = step.token
  AND run.status = 'running';

-- name: insert_attempts
INSERT INTO tickwork_attempt (
    run, token, attempt, outcome, started_at, ended_at, error, traceback, worker
)
SELECT run.id, run.token, made.attempt, made.outcome, coalesce(made.started_at, run.started_at),
       made.ended_at, made.error, made.traceback, run.worker
FROM unnest(
    :c1::uuid[], :c2::integer[], :c3::integer[], :c4::text[], :c5::bigint[], :c6::bigint[],
    :c7::text[], :c8::text[]
) AS made (id, token, attempt, outcome, started_at, ended_at, error, traceback)
JOIN tickwork_run AS run
    ON run.id = made.id AND run.id = ANY (:c1::uuid[]) AND run.token = made.token
ON CONFLICT DO NOTHING;

-- name: insert_steps
-- The token guards each row: the lock keeps other workers from claiming the run before the commit.
-- A step that exists was stored by an earlier call whose answer was lost.
INSERT INTO tickwork_step (run, {step_columns})
SELECT run.id, {step.step_columns}
FROM unnest(
    :c1::uuid[], :c2::text[], :c3::integer[], :c4::text[], :c5::text[], :c6::integer[],
    :c7::bigint[], :c8::bigint[], :c9::text[], :c10::integer[], :c11::text[],
    :c12::uuid[], :c13::text[]
) AS step (run, {step_columns})
CROSS JOIN LATERAL (
    SELECT id FROM tickwork_run
    WHERE id = step.run AND token = step.token AND status = 'running'
    FOR SHARE
) AS run
ON CONFLICT (run, name) DO NOTHING;

-- name: insert_edges
INSERT INTO tickwork_edge (child, parent, step, is_own)
SELECT child, parent, step, is_own
FROM unnest(:c1::uuid[], :c2::uuid[], :c3::text[], :c4::integer[]) AS edge (child, parent, step, is_own)
ON CONFLICT DO NOTHING;

-- name: touch_jobs
-- In one order, and last in its transaction: all workers write these rows.
INSERT INTO tickwork_job AS job (
    tenant, name, last_run_at, last_success_at, last_error_at, last_error, failures
)
SELECT tenant, name, last_run_at, last_success_at, last_error_at, last_error, failures
FROM unnest(
    :c1::text[], :c2::text[], :c3::bigint[], :c4::bigint[], :c5::bigint[], :c6::text[],
    :c7::integer[]
) AS facts (tenant, name, last_run_at, last_success_at, last_error_at, last_error, failures)
ORDER BY tenant COLLATE "C", name COLLATE "C"
ON CONFLICT (tenant, name) DO UPDATE
SET last_run_at = greatest(job.last_run_at, excluded.last_run_at),
    last_success_at = greatest(job.last_success_at, excluded.last_success_at),
    last_error_at = greatest(job.last_error_at, excluded.last_error_at),
    last_error = CASE
        WHEN excluded.last_error_at IS NULL THEN job.last_error
        ELSE excluded.last_error
    END,
    failures = CASE
        WHEN excluded.last_success_at IS NULL THEN least(job.failures, 1000000000) + excluded.failures
        ELSE excluded.failures
    END;

-- name: release_worker
WITH dead AS MATERIALIZED (
    SELECT id FROM tickwork_run
    WHERE worker = :worker::uuid AND lease_until > :now::bigint
    ORDER BY id
    FOR UPDATE
)
UPDATE tickwork_run
SET lease_until = :now::bigint
WHERE id = ANY (ARRAY(SELECT id FROM dead));

-- name: cancel_waiting
WITH gone AS (
    DELETE FROM tickwork_run WHERE id = ANY (:ids::uuid[]) AND status <> 'running' RETURNING *
)
INSERT INTO tickwork_history (
    {moved_columns}, status, attempt, crashes, cancel_requested_at, started_at, ended_at, outcome,
    result, reason
)
SELECT {moved_columns}, 'canceled', attempt, crashes, coalesce(cancel_requested_at, :now::bigint),
       started_at, :now::bigint, 'canceled', NULL, :reason::text
FROM gone;

-- name: runs_of_schedules
WITH found AS MATERIALIZED (
    SELECT run.id
    FROM jsonb_array_elements(:names::jsonb) AS wanted
    CROSS JOIN LATERAL (
        SELECT id FROM tickwork_run
        WHERE schedule = wanted ->> 1 AND tenant = wanted ->> 0
        OFFSET 0
    ) AS run
    LIMIT :limit::bigint
)
SELECT id, status, limit_keys, links FROM tickwork_run
WHERE id = ANY (ARRAY(SELECT id FROM found))
ORDER BY id
FOR UPDATE;

-- name: request_cancel_of_schedules
WITH running AS MATERIALIZED (
    SELECT run.id, given.now
    FROM unnest(:c1::bigint[], :c2::text[], :c3::text[]) AS given (now, schedule, tenant)
    JOIN tickwork_run AS run
        ON run.schedule = given.schedule AND run.tenant = given.tenant AND run.status = 'running'
    ORDER BY run.id
    FOR UPDATE OF run
)
UPDATE tickwork_run AS run
SET cancel_requested_at = coalesce(run.cancel_requested_at, running.now)
FROM running
WHERE run.id = running.id;

-- name: save_progress
UPDATE tickwork_run
SET progress = coalesce(:progress::text, progress),
    checkpoint = coalesce(:checkpoint::text, checkpoint)
WHERE id = :id::uuid AND token = :token::integer AND status = 'running';

-- name: count_logs
-- Only of existing runs: lines of a pruned run would stay forever.
SELECT id, (SELECT count(*) FROM tickwork_log WHERE run = known.id)
FROM (
    SELECT id FROM tickwork_run WHERE id = ANY (:ids::uuid[])
    UNION ALL
    SELECT id FROM tickwork_history WHERE id = ANY (:ids::uuid[])
) AS known;

-- name: insert_log
INSERT INTO tickwork_log (run, line, at, level, logger, message)
SELECT run, line, at, level, logger, message
FROM unnest(:c1::uuid[], :c2::integer[], :c3::bigint[], :c4::text[], :c5::text[], :c6::text[])
    AS given (run, line, at, level, logger, message)
ON CONFLICT (run, line) DO NOTHING;

-- name: lock_marks
-- A statement of its own: the next one reads the rows as the previous holder of the lock committed
-- them.
SELECT schedule.id
FROM jsonb_array_elements(:names::jsonb) AS wanted
JOIN tickwork_schedule AS schedule
    ON schedule.tenant = wanted ->> 0 AND schedule.name = wanted ->> 1
ORDER BY schedule.id
FOR UPDATE OF schedule;

-- name: skip_marks
-- With the first unfinished and the first finished firing after the newest row of skips, if there
-- are any. The ids of firings begin with their instant.
SELECT tenant, name, skip_id,
       (SELECT reason FROM tickwork_history
        WHERE id = schedule.skip_id AND instants BETWEEN 1 AND 1000000000),
       skip_last_at,
       (SELECT min(nominal_at) FROM tickwork_run AS run
        WHERE run.schedule = schedule.name
          AND run.tenant = schedule.tenant
          AND run.nominal_at > schedule.skip_last_at),
       (SELECT min(nominal_at) FROM tickwork_history AS finished
        WHERE finished.schedule = schedule.name
          AND finished.tenant = schedule.tenant
          AND finished.id > schedule.skip_id
          AND finished.nominal_at > schedule.skip_last_at
          AND finished.status <> 'skipped')
FROM jsonb_array_elements(:names::jsonb) AS wanted
CROSS JOIN LATERAL (
    SELECT tenant, name, skip_id, skip_last_at FROM tickwork_schedule
    WHERE tenant = wanted ->> 0 AND name = wanted ->> 1
    OFFSET 0
) AS schedule
WHERE skip_id IS NOT NULL;

-- name: firings_between
-- Of each schedule, those between two skips: unfinished ones, and finished ones.
SELECT run.tenant, run.schedule, run.nominal_at
FROM jsonb_array_elements(:spans::jsonb) AS span
CROSS JOIN LATERAL (
    SELECT tenant, schedule, nominal_at FROM tickwork_run
    WHERE schedule = span ->> 1
      AND tenant = span ->> 0
      AND nominal_at > (span ->> 2)::bigint
      AND nominal_at < (span ->> 3)::bigint
    UNION ALL
    SELECT tenant, schedule, nominal_at FROM tickwork_history
    WHERE schedule = span ->> 1
      AND tenant = span ->> 0
      AND id > (span ->> 4)::uuid
      AND nominal_at > (span ->> 2)::bigint
      AND nominal_at < (span ->> 3)::bigint
      AND status <> 'skipped'
    OFFSET 0
) AS run;

-- name: set_skip_marks
WITH mark AS MATERIALIZED (
    SELECT schedule.id, given.skip_id, given.reason, given.last_at
    FROM unnest(:c1::uuid[], :c2::text[], :c3::bigint[], :c4::text[], :c5::text[])
        AS given (skip_id, reason, last_at, tenant, name)
    JOIN tickwork_schedule AS schedule
        ON schedule.tenant = given.tenant AND schedule.name = given.name
    ORDER BY schedule.id
    FOR UPDATE OF schedule
)
UPDATE tickwork_schedule AS schedule
SET skip_id = mark.skip_id, skip_reason = mark.reason, skip_last_at = mark.last_at
FROM mark
WHERE schedule.id = mark.id;

-- name: clear_skip_marks
WITH mark AS MATERIALIZED (
    SELECT schedule.id
    FROM unnest(:c1::text[], :c2::text[], :c3::bigint[]) AS ended (tenant, name, nominal_at)
    JOIN tickwork_schedule AS schedule
        ON schedule.tenant = ended.tenant AND schedule.name = ended.name
    WHERE schedule.skip_last_at < ended.nominal_at
    ORDER BY schedule.id
    FOR UPDATE OF schedule
)
UPDATE tickwork_schedule
SET skip_id = NULL, skip_reason = NULL, skip_last_at = NULL
WHERE id = ANY (ARRAY(SELECT id FROM mark));

-- name: merge_skips
WITH mine AS MATERIALIZED (
    SELECT id FROM tickwork_history
    WHERE id = ANY (:c4::uuid[])
    ORDER BY id
    FOR UPDATE
)
UPDATE tickwork_history AS history
SET instants = history.instants + merged.instants,
    last_nominal_at = merged.last_at,
    ended_at = merged.ended_at
FROM unnest(:c1::integer[], :c2::bigint[], :c3::bigint[], :c4::uuid[])
    AS merged (instants, last_at, ended_at, id)
WHERE history.id = merged.id AND history.id = ANY (ARRAY(SELECT id FROM mine));

-- name: drop_history
DELETE FROM tickwork_history WHERE id = ANY (:c1::uuid[]);
DELETE FROM tickwork_log WHERE run = ANY (:c1::uuid[]);

-- name: insert_skips
INSERT INTO tickwork_history (
    id, tenant, job, queue, priority, status, due_at, args, attempt, attempts_max, crashes,
    postponements, token, schedule, nominal_at, last_nominal_at, instants, created_at, ended_at,
    outcome, reason
)
SELECT id, tenant, job, queue, priority, 'skipped', due_at, args, 0, 1, 0, 0, 0, schedule,
       nominal_at, last_nominal_at, instants, created_at, ended_at, 'skipped', reason
FROM unnest(
    :c1::uuid[], :c2::text[], :c3::text[], :c4::text[], :c5::integer[], :c6::bigint[],
    :c7::text[], :c8::text[], :c9::bigint[], :c10::bigint[], :c11::integer[], :c12::bigint[],
    :c13::bigint[], :c14::text[]
) AS skip (
    id, tenant, job, queue, priority, due_at, args, schedule, nominal_at, last_nominal_at, instants,
    created_at, ended_at, reason
)
ON CONFLICT (id) DO NOTHING;
