-- Which jobs have schedules is asked at every start, whatever their number.
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job);

-- Without those that a person has stopped: of a million that are paused a tick looks at none. The
-- order is that of a tick: an index of a table WITHOUT ROWID ends with its primary key.
DROP INDEX tickwork_schedule_due;
CREATE INDEX tickwork_schedule_due ON tickwork_schedule (next_due_at)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);

-- Windows that have passed are pruned, whether their run is there or not.
CREATE INDEX tickwork_unique_until ON tickwork_unique (until) WHERE until IS NOT NULL;
