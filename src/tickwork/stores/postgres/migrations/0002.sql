-- Which jobs have schedules is asked at every start, whatever their number.
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job);

-- In the order of a tick, and without those that a person has stopped: of a million that are due at
-- midnight none is sorted for each batch, and of a million that are paused none is looked at.
DROP INDEX tickwork_schedule_due;
CREATE INDEX tickwork_schedule_due ON tickwork_schedule (next_due_at, id)
    WHERE next_due_at IS NOT NULL AND (paused_at IS NULL OR paused_until IS NOT NULL);

-- Windows that have passed are pruned, whether their run is there or not.
CREATE INDEX tickwork_unique_until ON tickwork_unique (until) WHERE until IS NOT NULL;
