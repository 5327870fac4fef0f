-- One key of a rate: the number of starts, when the last start leaves the window, when the next
-- blocked run is unblocked (NULL: no run waits), and how many runs were unblocked and have not
-- started.
CREATE TABLE tickwork_rate (
    `key`   VARCHAR(512) NOT NULL,
    number  BIGINT       NOT NULL,
    idle_at BIGINT,
    turn_at BIGINT,
    opened  INT          NOT NULL,
    PRIMARY KEY (`key`),
    KEY turn (turn_at, idle_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- One start of a run under a key. Only the latest starts are kept, as many as the rate allows in
-- its window.
CREATE TABLE tickwork_start (
    `key`  VARCHAR(512) NOT NULL,
    number BIGINT       NOT NULL,
    at     BIGINT       NOT NULL,
    PRIMARY KEY (`key`, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- For blocked runs that expire: they are unblocked to be skipped, and use no start of the rate.
CREATE INDEX expiring ON tickwork_run (blocked_on, expires_at);

-- For the due schedules of one job: a tick need not read past schedules of unknown jobs. It also
-- serves the list of jobs that have schedules.
CREATE INDEX job_due ON tickwork_schedule (job, fires_at, id);
DROP INDEX job ON tickwork_schedule;

-- For listing failed runs among many successful ones.
CREATE INDEX amiss ON tickwork_history (status, id);
