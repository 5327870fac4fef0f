-- Which jobs have schedules is asked at every start, whatever their number.
CREATE INDEX job ON tickwork_schedule (job);

-- Windows that have passed are pruned, whether their run is there or not.
CREATE INDEX until ON tickwork_unique (until);
