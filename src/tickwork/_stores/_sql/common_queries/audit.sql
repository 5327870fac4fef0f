-- name: insert_audit
INSERT INTO tickwork_audit ({audit_columns}) VALUES ({audit_params});

-- name: list_audit
SELECT {audit_columns} FROM tickwork_audit
WHERE :before::uuid IS NULL OR id < :before::uuid
ORDER BY id DESC
LIMIT :limit::bigint;

-- name: list_audit_of
SELECT {audit_columns} FROM tickwork_audit
WHERE subject = :subject::text
  AND (:action::text IS NULL OR action = :action::text)
  AND (:before::uuid IS NULL OR id < :before::uuid)
ORDER BY id DESC
LIMIT :limit::bigint;

-- name: list_audit_by
SELECT {audit_columns} FROM tickwork_audit
WHERE action = :action::text AND (:before::uuid IS NULL OR id < :before::uuid)
ORDER BY id DESC
LIMIT :limit::bigint;
