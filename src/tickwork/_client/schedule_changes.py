"""Writes a changed spec over a stored schedule, by compare and set."""

from datetime import datetime

from tickwork._domain.firings import due_again
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.rules import from_text
from tickwork.stores.contract import ScheduleStore


def write_change(
    store: ScheduleStore,
    row: ScheduleRow,
    spec: ScheduleSpec,
    *,
    now: datetime,
    next_due_at: datetime | None,
) -> ScheduleRow | None:
    """Replace the spec of a schedule; None if another process changed it since ``row``."""
    written = store.change_schedule(row, spec, now=now, next_due_at=next_due_at)
    if written is None or _pause(written) == _pause(row):
        return written
    # The schedule was paused or resumed after we read it. That set its next firing, which we
    # have just overwritten: compute it again from the row as it is now.
    next_due_at = due_again(written, from_text(spec.rule), now=now, until=spec.until)
    return store.change_schedule(written, spec, now=now, next_due_at=next_due_at)


def is_retimed(before: ScheduleSpec, after: ScheduleSpec) -> bool:
    """Whether the schedule fires at other instants: only then does its next firing move."""
    return (before.rule, before.until) != (after.rule, after.until)


def _pause(row: ScheduleRow) -> tuple[datetime | None, datetime | None]:
    return row.paused_at, row.paused_until
