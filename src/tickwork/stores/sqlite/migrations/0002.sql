-- Which jobs have schedules is asked at every start, whatever their number.
CREATE INDEX tickwork_schedule_job ON tickwork_schedule (job);
