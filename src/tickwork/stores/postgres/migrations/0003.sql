-- One key of a rate: the number of starts, when the last start leaves the window, when the next
-- blocked run is unblocked (NULL: no run waits), and how many runs were unblocked and have not
-- started.
CREATE TABLE tickwork_rate (
    key     text    COLLATE "C" NOT NULL PRIMARY KEY,
    number  bigint  NOT NULL,
    idle_at bigint,
    turn_at bigint,
    opened  integer NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX tickwork_rate_turn ON tickwork_rate (turn_at) WHERE turn_at IS NOT NULL;
CREATE INDEX tickwork_rate_idle ON tickwork_rate (idle_at) WHERE turn_at IS NULL;

-- One start of a run under a key. Only the latest starts are kept, as many as the rate allows in
-- its window. Each new row replaces an old one, so the table is vacuumed after a fixed number of
-- them, as runs are.
CREATE TABLE tickwork_start (
    key    text   COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    at     bigint NOT NULL,
    PRIMARY KEY (key, number)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- For blocked runs that expire: they are unblocked to be skipped, and use no start of the rate.
CREATE INDEX tickwork_run_expiring ON tickwork_run (blocked_on, expires_at)
    WHERE blocked_on IS NOT NULL AND expires_at IS NOT NULL;

-- For the due schedules of one job: a tick need not read past schedules of unknown jobs.
CREATE INDEX tickwork_schedule_job_due ON tickwork_schedule (job, next_due_at, id)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);

-- The index of jobs serves only the list of jobs; its condition keeps the planner from using it for
-- a tick, which would then sort every schedule of a job.
DROP INDEX tickwork_schedule_job;
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job) WHERE job <> '';

-- For listing runs that did not succeed; a successful run does not update it.
CREATE INDEX tickwork_history_amiss ON tickwork_history (id) WHERE status <> 'completed';
