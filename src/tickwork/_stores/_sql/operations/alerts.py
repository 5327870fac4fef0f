"""The history of alerts."""

from datetime import datetime
from typing import Final

from tickwork._domain.alert_history import OPEN_MAX, AlertChanges, AlertCursor, AlertRow
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import alert_of, alert_row, micros
from tickwork._stores._sql.statement import Operation

_LATEST: Final = 2**63 - 1
_LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def change_alerts(query: Queries, changes: AlertChanges, *, now: datetime) -> Operation[None]:
    # In one order, so that two processes do not wait for each other.
    if changes.ended:
        yield query.command("end_alerts", ids=sorted(changes.ended), now=micros(now))
    if changes.reopened:
        yield query.command("reopen_alerts", ids=sorted(changes.reopened))
    if changes.begun:
        rows = [alert_row(row) for row in sorted(changes.begun, key=lambda row: row.name)]
        yield query.command("insert_alerts", many=rows)


def list_open_alerts(query: Queries) -> Operation[list[AlertRow]]:
    return [alert_of(row) for row in (yield query("open_alerts", limit=2 * OPEN_MAX))]


def list_ended_alerts(
    query: Queries,
    *,
    since: datetime | None = None,
    before: AlertCursor | None = None,
    limit: int = 50,
) -> Operation[list[AlertRow]]:
    rows = yield query(
        "ended_alerts",
        since=0 if since is None else micros(since),
        before=_LATEST if before is None else micros(before.ended_at),
        before_id=_LAST_ID if before is None else before.id,
        limit=limit,
    )
    return [alert_of(row) for row in rows]


def prune_alerts(query: Queries, *, before: datetime, limit: int) -> Operation[int]:
    return int((yield query("prune_alerts", before=micros(before), limit=limit))[0][0])
