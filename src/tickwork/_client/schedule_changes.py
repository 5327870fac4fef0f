"""What is said anew about a schedule that is there, written over what was said before."""

from datetime import datetime
from typing import Protocol

from tickwork._domain.firings import due_again
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.contract import Schedule


class ChangingStore(Protocol):
    """All that a change needs of a store."""

    def change_schedule(
        self,
        row: ScheduleRow,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow | None:
        """Replace what was said, if nobody else has since."""
        ...


def write_change(
    store: ChangingStore,
    row: ScheduleRow,
    spec: ScheduleSpec,
    rule: Schedule,
    *,
    now: datetime,
    next_due_at: datetime | None,
) -> ScheduleRow | None:
    """Say this about a schedule instead; None when somebody else has said something since."""
    written = store.change_schedule(row, spec, now=now, next_due_at=next_due_at)
    if written is None or _pause(written) == _pause(row):
        return written
    # Somebody paused or resumed it after we had looked. That settled where it goes on, and
    # we have just written over it.
    next_due_at = due_again(written, rule, now=now, until=spec.until)
    return store.change_schedule(written, spec, now=now, next_due_at=next_due_at)


def is_retimed(before: ScheduleSpec, after: ScheduleSpec) -> bool:
    """Whether it falls due at other instants: only then does its next firing move."""
    return (before.rule, before.until) != (after.rule, after.until)


def _pause(row: ScheduleRow) -> tuple[datetime | None, datetime | None]:
    return row.paused_at, row.paused_until
