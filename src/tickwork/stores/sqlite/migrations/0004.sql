-- What people and programs did through the dashboard and the API: one row for each action. The id
-- sorts by time.
CREATE TABLE tickwork_audit (
    id      TEXT    NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    source  TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    detail  TEXT    NOT NULL
) WITHOUT ROWID;

CREATE INDEX tickwork_audit_subject ON tickwork_audit (subject, id);

-- An idempotency key: the run that its first request made. `digest` shows whether a second request
-- with the key is the same one.
CREATE TABLE tickwork_request (
    key    TEXT    NOT NULL PRIMARY KEY,
    digest TEXT    NOT NULL,
    run    TEXT    NOT NULL,
    until  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX tickwork_request_until ON tickwork_request (until);
