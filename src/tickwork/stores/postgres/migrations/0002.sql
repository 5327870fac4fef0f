-- Which jobs have schedules is asked at every start, whatever their number.
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job);

-- In the order of a tick: a million that are due at midnight are not sorted for each batch of them.
DROP INDEX tickwork_schedule_due;
CREATE INDEX tickwork_schedule_due ON tickwork_schedule (next_due_at, id)
    WHERE next_due_at IS NOT NULL;
