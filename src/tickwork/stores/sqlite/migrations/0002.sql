-- Which jobs have schedules is asked at every start, whatever their number. (What is due is in the
-- order of a tick already: an index of a table WITHOUT ROWID ends with its primary key.)
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job);
