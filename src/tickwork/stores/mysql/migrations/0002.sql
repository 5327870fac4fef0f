-- Each worker lists the jobs that have schedules when it starts.
CREATE INDEX job ON tickwork_schedule (job);

-- Keys whose window has passed are pruned, also when their run still exists.
CREATE INDEX until ON tickwork_unique (until);
