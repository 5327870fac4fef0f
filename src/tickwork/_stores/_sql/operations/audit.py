"""The audit log, and the idempotency keys of requests."""

from datetime import datetime
from typing import Any

from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import (
    audit_of,
    audit_params,
    micros,
    request_of,
    request_params,
)
from tickwork._stores._sql.statement import Operation
from tickwork._stores.contract import AuditEntry, IdempotentRequest


def add_audit(query: Queries, entry: AuditEntry) -> Operation[None]:
    yield query.command("insert_audit", **audit_params(entry))


def list_audit(
    query: Queries,
    *,
    subject: str | None = None,
    action: str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> Operation[list[AuditEntry]]:
    page: dict[str, Any] = {"before": before, "limit": limit}
    if subject is not None:
        rows = yield query("list_audit_of", subject=subject, action=action, **page)
    elif action is not None:
        rows = yield query("list_audit_by", action=action, **page)
    else:
        rows = yield query("list_audit", **page)
    return [audit_of(row) for row in rows]


def prune_audit(query: Queries, *, before: str, limit: int) -> Operation[int]:
    return int((yield query("prune_audit", before=before, limit=limit))[0][0])


def reserve_request(
    query: Queries, request: IdempotentRequest, *, now: datetime
) -> Operation[IdempotentRequest]:
    yield query.command("reserve_request", now=micros(now), **request_params(request))
    return request_of((yield query("get_request", key=request.key))[0])
