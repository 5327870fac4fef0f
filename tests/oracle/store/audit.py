"""The audit log and the idempotency keys in memory."""

from datetime import datetime

from oracle.store.tables import TableHolder
from tickwork._stores.contract import AuditEntry, IdempotentRequest


class OracleAudit(TableHolder):
    """Implements AuditStore."""

    def add_audit(self, entry: AuditEntry) -> None:
        with self._writing() as tables:
            tables.audit[entry.id] = entry

    def list_audit(
        self, *, subject: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[AuditEntry]:
        with self._reading() as tables:
            found = [
                entry
                for entry_id, entry in tables.audit.items()
                if subject in {None, entry.subject} and (before is None or entry_id < before)
            ]
        return sorted(found, reverse=True)[:limit]

    def prune_audit(self, *, before: str, limit: int) -> int:
        with self._writing() as tables:
            gone = sorted(entry_id for entry_id in tables.audit if entry_id < before)[:limit]
            for entry_id in gone:
                del tables.audit[entry_id]
            return len(gone)

    def reserve_request(self, request: IdempotentRequest, *, now: datetime) -> IdempotentRequest:
        with self._writing() as tables:
            held = tables.requests.get(request.key)
            if held is not None and held.until > now:
                return held
            tables.requests[request.key] = request
            return request
