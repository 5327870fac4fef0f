-- One key of a rate: how many starts there were, when the last of them leaves the window, when the
-- next of those who wait is let out (none: nobody waits), and how many were and have not started.
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

-- One start under a key: as many of the last ones are kept as the rate allows in its window.
CREATE TABLE tickwork_start (
    `key`  VARCHAR(512) NOT NULL,
    number BIGINT       NOT NULL,
    at     BIGINT       NOT NULL,
    PRIMARY KEY (`key`, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Whoever waits for a turn and will not start any more takes none: it is let out to be skipped.
CREATE INDEX expiring ON tickwork_run (blocked_on, expires_at);

-- What is due of one job: a tick need not walk past schedules of jobs that it does not know. Which
-- jobs there are is seen in it too.
CREATE INDEX job_due ON tickwork_schedule (job, fires_at, id);
DROP INDEX job ON tickwork_schedule;

-- For whoever asks what failed, among a million that did not.
CREATE INDEX amiss ON tickwork_history (status, id);
