-- Within how long a firing must complete, in microseconds; NULL: no process watches the schedule.
ALTER TABLE tickwork_schedule ADD COLUMN expect_within bigint;

CREATE INDEX tickwork_schedule_expected ON tickwork_schedule (tenant, name)
    WHERE expect_within IS NOT NULL;
