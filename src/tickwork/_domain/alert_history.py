"""What changes in the history of alerts when they are found again.

One incident is one row, however many processes find it: a name has at most one open row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

REOPEN_WITHIN: Final = timedelta(minutes=2)
"""An alert that comes back so soon is the same incident: a value near its limit makes no history
of hundreds of rows."""

OPEN_MAX: Final = 1_000
"""The most alerts that are open in the history: it stays readable, and each read has a bound."""


class AlertRow(NamedTuple):
    """Something that needed a person, from its begin to its end."""

    id: str
    name: str  # of the cause; at most one open row has it
    kind: str
    level: str
    text: str  # as it was at the begin
    began_at: datetime
    ended_at: datetime | None = None  # None: it is open


class AlertCursor(NamedTuple):
    """Where a page of ended alerts ends: those before it are older."""

    ended_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class AlertChanges:
    """What to write."""

    begun: Sequence[AlertRow]
    reopened: Sequence[str]  # ids
    ended: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.begun or self.reopened or self.ended)


def plan_changes(
    found: Sequence[AlertRow], known: Sequence[AlertRow], *, now: datetime
) -> AlertChanges:
    """Compare the alerts that were found with the rows that were read before.

    The rows must be read first: an alert that another process adds in between is not known here,
    so it is not ended. ``known`` are the open rows and those that ended a short time ago.
    """
    is_open = {row.name: row for row in known if row.ended_at is None}
    recent = {
        row.name: row
        for row in sorted(known, key=lambda row: row.ended_at or now)
        if row.ended_at is not None and now - row.ended_at < REOPEN_WITHIN
    }
    names = {row.name for row in found}
    new = [row for row in found if row.name not in is_open]
    room = max(OPEN_MAX - len(is_open), 0)
    return AlertChanges(
        begun=[row for row in new if row.name not in recent][:room],
        reopened=[recent[row.name].id for row in new if row.name in recent],
        ended=[row.id for name, row in is_open.items() if name not in names],
    )
