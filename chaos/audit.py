"""Triggers that record every change of a run's row, in the order in which it happened.

They show which worker held which run, and when. The audit row is written in the transaction of
the change, so that neither exists without the other. The writer draws the row's number while it
holds its locks: if the locks are right, the numbers are in the order of the decisions. If they
are not, the checker finds it.
"""

from typing import Final

COLUMNS: Final = (
    "job", "queue", "priority", "status", "phase", "due_at", "attempt", "crashes", "token",
    "lease_until", "worker", "tenant", "schedule", "nominal_at", "reason", "checkpoint",
    "cancel_requested_at", "created_at", "claim_tag", "external_id",
)  # fmt: skip
NUMBERS: Final = frozenset(
    {"priority", "due_at", "attempt", "crashes", "token", "lease_until", "nominal_at",
     "cancel_requested_at", "created_at"}
)  # fmt: skip

_OPS: Final = {"INSERT": "NEW", "UPDATE": "NEW", "DELETE": "OLD"}
_SEQ: Final = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgres": "BIGSERIAL PRIMARY KEY",
    "mariadb": "BIGINT AUTO_INCREMENT PRIMARY KEY",
    "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
}
_NOW: Final = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "postgres": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    # Independent of the time zone of the session.
    "mariadb": "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
    "mysql": "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
}
_ID: Final = {"sqlite": "{}", "postgres": "{}::text", "mariadb": "{}", "mysql": "{}"}


def statements(kind: str) -> list[str]:
    """Return the statements that add the audit to tickwork's own tables."""
    text = "LONGTEXT" if kind in {"mariadb", "mysql"} else "TEXT"
    columns = ", ".join(f"{name} {'BIGINT' if name in NUMBERS else text}" for name in COLUMNS)
    head = f"seq {_SEQ[kind]}, at BIGINT NOT NULL, op {text} NOT NULL, run {text} NOT NULL"
    return [
        f"CREATE TABLE chaos_audit ({head}, args {text}, {columns})",
        f"CREATE TABLE chaos_worker (id {text}, pid INTEGER)",
        f"CREATE TABLE chaos_order (uid {text})",
        f"CREATE TABLE chaos_effect (run {text}, token INTEGER, nonce {text})",
        *_triggers(kind),
    ]


def _triggers(kind: str) -> list[str]:
    made = []
    for op, row in _OPS.items():
        made += _trigger(
            kind, f"chaos_run_{op.lower()}", op, "tickwork_run", _audit_row(kind, op, row)
        )
    worker = f"INSERT INTO chaos_worker (id, pid) VALUES ({_id(kind, 'NEW.id')}, NEW.pid);"
    return made + _trigger(kind, "chaos_worker_insert", "INSERT", "tickwork_worker", worker)


def _audit_row(kind: str, op: str, row: str) -> str:
    args = f"{row}.args" if op == "INSERT" else "NULL"
    values = [
        _id(kind, f"{row}.{name}") if name == "worker" else f"{row}.{name}" for name in COLUMNS
    ]
    return (
        f"INSERT INTO chaos_audit (at, op, run, args, {', '.join(COLUMNS)})"
        f" VALUES ({_NOW[kind]}, '{op}', {_id(kind, f'{row}.id')}, {args}, {', '.join(values)});"
    )


def _id(kind: str, column: str) -> str:
    return _ID[kind].format(column)


def _trigger(kind: str, name: str, op: str, table: str, body: str) -> list[str]:
    heading = f"CREATE TRIGGER {name} AFTER {op} ON {table} FOR EACH ROW"
    if kind != "postgres":
        return [f"{heading} BEGIN {body} END"]
    function = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
    return [
        f"{function} AS $$ BEGIN {body} RETURN NULL; END $$",
        f"{heading} EXECUTE FUNCTION {name}()",
    ]
