-- Each worker lists the jobs that have schedules when it starts.
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job);

-- Without paused schedules, so that a tick reads none of them. The order is that of a tick: an
-- index of a table WITHOUT ROWID ends with its primary key.
DROP INDEX tickwork_schedule_due;
CREATE INDEX tickwork_schedule_due ON tickwork_schedule (next_due_at)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);

-- Keys whose window has passed are pruned, also when their run still exists.
CREATE INDEX tickwork_unique_until ON tickwork_unique (until) WHERE until IS NOT NULL;
