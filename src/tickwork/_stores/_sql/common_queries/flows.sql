-- name: copy_steps
-- What is done need not be done again: the values of steps, and sleeps that are over.
INSERT INTO tickwork_step (run, {step_columns})
SELECT :id::uuid, {step_columns} FROM tickwork_step FORCE INDEX (PRIMARY)
WHERE run = :old::uuid
  AND (
      (kind = 'step' AND state = 'done')
      OR (kind = 'call' AND state = 'done')
      OR (kind = 'sleep' AND (state = 'done' OR until <= :now::bigint))
  );

-- name: set_links
UPDATE tickwork_run SET links = :links::integer WHERE id = :id::uuid;

-- name: insert_event
-- The first event of a name and key stays. The id tells whether it is this one.
INSERT INTO tickwork_event (tenant, event, {key}, id, data, at, until)
VALUES (
    :tenant::text, :event::text, :key::text, :id::uuid, :data::text, :at::bigint, :until::bigint
)
{keep_first};

-- name: find_event
SELECT id, data FROM tickwork_event FORCE INDEX (PRIMARY)
WHERE tenant = :tenant::text AND event = :event::text AND {key} = :key::text;

-- name: insert_outbox
INSERT INTO tickwork_outbox (id, kind, tenant, event, {key})
VALUES (:id::uuid, :kind::text, :tenant::text, :event::text, :key::text)
{keep_first};

-- name: take_outbox
SELECT id, kind, tenant, event, {key} FROM tickwork_outbox FORCE INDEX (PRIMARY)
ORDER BY id
LIMIT :limit::bigint
{skip_locked};

-- name: oldest_outbox
SELECT id FROM tickwork_outbox FORCE INDEX (PRIMARY)
ORDER BY id
LIMIT 1;

-- name: delete_outbox
DELETE FROM tickwork_outbox WHERE id {in_ids};

-- name: insert_wait
INSERT INTO tickwork_wait (run, tenant, event, {key})
VALUES (:run::uuid, :tenant::text, :event::text, :key::text);

-- name: waits_of_event
SELECT run FROM tickwork_wait FORCE INDEX (event)
WHERE event = :event::text AND {key} = :key::text AND tenant = :tenant::text
ORDER BY run
LIMIT :limit::bigint;

-- name: list_waits
-- The waits are read first: their runs are found one by one. A run that does not wait has no values.
SELECT waits.run, run.job, run.queue, run.tenant, waits.event, waits.{key},
       (
           SELECT max(step.at) FROM tickwork_step AS step FORCE INDEX (PRIMARY)
           WHERE step.run = waits.run AND step.kind = 'wait' AND step.state = 'open'
       ),
       run.due_at
FROM (
    SELECT run, event, {key} FROM tickwork_wait FORCE INDEX (PRIMARY)
    WHERE run > :after::uuid
    ORDER BY run
    LIMIT :limit::bigint
) AS waits
LEFT JOIN tickwork_run AS run FORCE INDEX (PRIMARY) ON run.id = waits.run AND run.phase = 'waiting'
ORDER BY waits.run;

-- name: delete_waits
DELETE FROM tickwork_wait WHERE run {in_ids};

-- name: live_ids
SELECT id FROM tickwork_run FORCE INDEX (PRIMARY) WHERE id {in_ids};

-- name: lock_suspended
SELECT id, phase FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id {in_ids}
ORDER BY id
{skip_locked};

-- name: lock_called
SELECT id, status, limit_keys, links FROM tickwork_run FORCE INDEX (PRIMARY)
WHERE id {in_ids}
ORDER BY id
{for_update};

-- name: wake_runs
-- The rows are locked already.
UPDATE tickwork_run FORCE INDEX (PRIMARY)
SET {set_era} phase = 'ready', due_at = :now::bigint
WHERE id {in_ids};

-- name: settle_step
UPDATE tickwork_step FORCE INDEX (PRIMARY)
SET state = :state::text, value = :value::text, token = :token::integer
WHERE run = :run::uuid AND name = :name::text AND state = 'open';

-- name: end_sleeps
UPDATE tickwork_step FORCE INDEX (PRIMARY)
SET state = 'done'
WHERE run = :run::uuid AND kind = 'sleep' AND state = 'open';

-- name: mark_called
UPDATE tickwork_run FORCE INDEX (PRIMARY) SET links = links | :links::integer WHERE id {in_ids};

-- name: edges_of_children
SELECT child, parent, step FROM tickwork_edge FORCE INDEX (PRIMARY)
WHERE child {in_ids}
ORDER BY child, parent, step;

-- name: edges_of_parents
SELECT parent, child, is_own FROM tickwork_edge FORCE INDEX (parent)
WHERE parent {in_ids}
ORDER BY child, parent;

-- name: edges_after
SELECT DISTINCT child FROM tickwork_edge FORCE INDEX (PRIMARY)
WHERE child > :after::uuid
ORDER BY child
LIMIT :limit::bigint;

-- name: delete_edge
DELETE FROM tickwork_edge
WHERE child = :child::uuid AND parent = :parent::uuid;

-- name: ends_of_runs
SELECT id, job, status, result, reason FROM tickwork_history FORCE INDEX (PRIMARY) WHERE id {in_ids};

-- name: settle_call
UPDATE tickwork_step FORCE INDEX (PRIMARY)
SET state = :state::text, value = :value::text
WHERE run = :run::uuid AND name = :name::text AND state = 'open';

-- name: find_callers
SELECT run FROM tickwork_step FORCE INDEX (ref) WHERE ref = :id::uuid ORDER BY run LIMIT :limit::bigint;

-- name: prune_events
DELETE FROM tickwork_event WHERE until < :now::bigint;
