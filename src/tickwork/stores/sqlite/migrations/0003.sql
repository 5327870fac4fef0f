-- One key of a rate: how many starts there were, when the last of them leaves the window, when the
-- next of those who wait is let out (none: nobody waits), and how many were and have not started.
CREATE TABLE tickwork_rate (
    key     TEXT    NOT NULL PRIMARY KEY,
    number  INTEGER NOT NULL,
    idle_at INTEGER,
    turn_at INTEGER,
    opened  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX tickwork_rate_turn ON tickwork_rate (turn_at) WHERE turn_at IS NOT NULL;
CREATE INDEX tickwork_rate_idle ON tickwork_rate (idle_at) WHERE turn_at IS NULL;

-- One start under a key: as many of the last ones are kept as the rate allows in its window.
CREATE TABLE tickwork_start (
    key    TEXT    NOT NULL,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (key, number)
) WITHOUT ROWID;

-- Whoever waits for a turn and will not start any more takes none: it is let out to be skipped.
CREATE INDEX tickwork_run_expiring ON tickwork_run (blocked_on, expires_at)
    WHERE blocked_on IS NOT NULL AND expires_at IS NOT NULL;

-- What is due of one job: a tick need not walk past schedules of jobs that it does not know.
CREATE INDEX tickwork_schedule_job_due ON tickwork_schedule (job, next_due_at)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);

-- What did not succeed, for whoever asks what failed: a success costs it nothing.
CREATE INDEX tickwork_history_amiss ON tickwork_history (id) WHERE status <> 'completed';
