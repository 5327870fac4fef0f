-- Each worker lists the jobs that have schedules when it starts.
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job);

-- In the order of a tick and without paused schedules: a tick neither sorts a million due schedules
-- for each batch nor reads paused ones.
DROP INDEX tickwork_schedule_due;
CREATE INDEX tickwork_schedule_due ON tickwork_schedule (next_due_at, id)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);

-- Keys whose window has passed are pruned, also when their run still exists.
CREATE INDEX tickwork_unique_until ON tickwork_unique (until) WHERE until IS NOT NULL;
