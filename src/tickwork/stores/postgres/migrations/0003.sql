-- One key of a rate: how many starts there were, when the last of them leaves the window, when the
-- next of those who wait is let out (none: nobody waits), and how many were and have not started.
CREATE TABLE tickwork_rate (
    key     text    COLLATE "C" NOT NULL PRIMARY KEY,
    number  bigint  NOT NULL,
    idle_at bigint,
    turn_at bigint,
    opened  integer NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX tickwork_rate_turn ON tickwork_rate (turn_at) WHERE turn_at IS NOT NULL;
CREATE INDEX tickwork_rate_idle ON tickwork_rate (idle_at) WHERE turn_at IS NULL;

-- One start under a key: as many of the last ones are kept as the rate allows in its window. Each
-- new one drives out an old one, so it is cleaned up after a number of them, as runs are.
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

-- Whoever waits for a turn and will not start any more takes none: it is let out to be skipped.
CREATE INDEX tickwork_run_expiring ON tickwork_run (blocked_on, expires_at)
    WHERE blocked_on IS NOT NULL AND expires_at IS NOT NULL;

-- What is due of one job: a tick need not walk past schedules of jobs that it does not know.
CREATE INDEX tickwork_schedule_job_due ON tickwork_schedule (job, next_due_at, id)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);

-- The index of jobs is for whoever asks which there are, and says so: it must not seem good enough
-- for a tick, which would sort every schedule of a job.
DROP INDEX tickwork_schedule_job;
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job) WHERE job <> '';

-- What did not succeed, for whoever asks what failed: a success costs it nothing.
CREATE INDEX tickwork_history_amiss ON tickwork_history (id) WHERE status <> 'completed';
