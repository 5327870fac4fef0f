-- Within how long a firing must complete, in microseconds; NULL: no process watches the schedule.
ALTER TABLE tickwork_schedule ADD COLUMN expect_within BIGINT;

CREATE INDEX expected ON tickwork_schedule (expect_within);
