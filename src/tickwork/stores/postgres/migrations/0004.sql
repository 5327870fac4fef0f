-- What people and programs did through the dashboard and the API: one row for each action. The id
-- sorts by time.
CREATE TABLE tickwork_audit (
    id      uuid   NOT NULL PRIMARY KEY,
    at      bigint NOT NULL,
    actor   text   NOT NULL,
    source  text   NOT NULL,
    action  text   NOT NULL,
    subject text   COLLATE "C" NOT NULL,
    detail  text   NOT NULL
);

CREATE INDEX tickwork_audit_subject ON tickwork_audit (subject, id);

-- An idempotency key: the run that its first request made. `digest` shows whether a second request
-- with the key is the same one.
CREATE TABLE tickwork_request (
    key    text   COLLATE "C" NOT NULL PRIMARY KEY,
    digest text   NOT NULL,
    run    uuid   NOT NULL,
    until  bigint NOT NULL
);

CREATE INDEX tickwork_request_until ON tickwork_request (until);
