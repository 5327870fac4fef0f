"""The audit log, the idempotency keys and the history of alerts in memory."""

from datetime import datetime

from oracle.store.tables import TableHolder
from tickwork._domain.alert_history import OPEN_MAX, AlertChanges, AlertCursor, AlertRow
from tickwork._stores.contract import AuditEntry, IdempotentRequest


class OracleAudit(TableHolder):
    """Implements AuditStore."""

    def add_audit(self, entry: AuditEntry) -> None:
        with self._writing() as tables:
            tables.audit[entry.id] = entry

    def list_audit(
        self,
        *,
        subject: str | None = None,
        action: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[AuditEntry]:
        with self._reading() as tables:
            found = [
                entry
                for entry_id, entry in tables.audit.items()
                if subject in {None, entry.subject}
                and action in {None, entry.action}
                and (before is None or entry_id < before)
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

    def change_alerts(self, changes: AlertChanges, *, now: datetime) -> None:
        with self._writing() as tables:
            for alert_id in changes.ended:
                row = tables.alerts.get(alert_id)
                if row is not None and row.ended_at is None:
                    tables.alerts[alert_id] = row._replace(ended_at=now)
            for alert_id in changes.reopened:
                row = tables.alerts.get(alert_id)
                if row is not None and row.ended_at is not None:
                    tables.alerts[alert_id] = row._replace(ended_at=None)
            names = {row.name for row in tables.alerts.values() if row.ended_at is None}
            for row in changes.begun:
                if row.name not in names:
                    tables.alerts[row.id] = row
                    names.add(row.name)

    def list_open_alerts(self) -> list[AlertRow]:
        with self._reading() as tables:
            found = [row for row in tables.alerts.values() if row.ended_at is None]
            return sorted(found)[: 2 * OPEN_MAX]

    def list_ended_alerts(
        self,
        *,
        since: datetime | None = None,
        before: AlertCursor | None = None,
        limit: int = 50,
    ) -> list[AlertRow]:
        with self._reading() as tables:
            found = sorted(
                (row.ended_at, row.id)
                for row in tables.alerts.values()
                if row.ended_at is not None
                and (since is None or row.ended_at >= since)
                and (before is None or (row.ended_at, row.id) < before)
            )
            return [tables.alerts[alert_id] for _, alert_id in found[::-1][:limit]]

    def prune_alerts(self, *, before: datetime, limit: int) -> int:
        with self._writing() as tables:
            gone = sorted(
                (row.ended_at, row.id)
                for row in tables.alerts.values()
                if row.ended_at is not None and row.ended_at < before
            )[:limit]
            for _, alert_id in gone:
                del tables.alerts[alert_id]
            return len(gone)
