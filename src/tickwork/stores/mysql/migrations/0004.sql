-- What people and programs did through the dashboard and the API: one row for each action. The id
-- sorts by time.
CREATE TABLE tickwork_audit (
    id      CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    at      BIGINT       NOT NULL,
    actor   VARCHAR(255) NOT NULL,
    source  VARCHAR(255) NOT NULL,
    action  VARCHAR(255) NOT NULL,
    subject VARCHAR(512) NOT NULL,
    detail  LONGTEXT     NOT NULL,
    PRIMARY KEY (id),
    KEY subject (subject, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- An idempotency key: the run that its first request made. `digest` shows whether a second request
-- with the key is the same one.
CREATE TABLE tickwork_request (
    `key`  VARCHAR(512) NOT NULL,
    digest VARCHAR(255) NOT NULL,
    run    CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    until  BIGINT       NOT NULL,
    PRIMARY KEY (`key`),
    KEY until (until)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;
