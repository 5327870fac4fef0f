"""Writes a changed spec over a stored schedule, and records the firings that a change drops."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.firings import due_again, find_undecided, first_due
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.tick import RULE_CHANGED, Move, new_skip
from tickwork._stores.contract import ScheduleStore
from tickwork.errors import InvalidSchedule
from tickwork.events.bus import EventBus
from tickwork.events.skipped_firings import report_skip

TRIES_MAX: Final = 10
"""How often a change is tried again after another process changed the schedule meanwhile."""

_MICROSECOND: Final = timedelta(microseconds=1)


class ScheduleWriter:
    """Changes rows by compare and set."""

    def __init__(self, *, store: ScheduleStore, bus: EventBus) -> None:
        self._store = store
        self._bus = bus

    def change(
        self, row: ScheduleRow, spec: ScheduleSpec, *, now: datetime, next_due_at: datetime | None
    ) -> ScheduleRow | None:
        """Replace the spec of a schedule; None if another process changed it since ``row``."""
        if is_retimed(row.spec, spec):
            until = now if next_due_at is None else min(now, next_due_at - _MICROSECOND)
            self._drop_old_firings(row, now=now, until=until)
        written = self._store.change_schedule(row, spec, now=now, next_due_at=next_due_at)
        if written is None or _pause(written) == _pause(row):
            return written
        # The schedule was paused or resumed after we read it. That set its next firing, which we
        # have just overwritten: compute it again from the row as it is now.
        next_due_at = due_again(written, from_text(spec.rule), now=now, until=spec.until)
        return self._store.change_schedule(written, spec, now=now, next_due_at=next_due_at)

    def drop_firings(
        self, row: ScheduleRow, *, until: datetime, now: datetime, reason: str
    ) -> ScheduleRow | None:
        """Record that what is due until then does not fire. This ends a pause.

        Returns None if the schedule has fired or changed since ``row``, and nothing was written.
        """
        try:
            rule = from_text(row.spec.rule)
            gap = find_undecided(row, rule, until=until)
        except InvalidSchedule:
            return row  # this version cannot read its rule, so it cannot list its firings
        if gap is None or row.next_due_at is None:
            return row
        skip = new_skip(row, gap, reason)
        next_due_at = first_due(rule, after=max(now, gap.last_at), until=row.spec.until)
        move = Move(row.id, row.next_due_at, next_due_at, gap.last_at)
        if not self._store.drop_firings(skip, move, now=now):
            return None
        report_skip(self._bus, skip, at=now)
        return replace(
            row,
            next_due_at=next_due_at,
            last_fired_at=gap.last_at,
            paused_at=None,
            paused_until=None,
            paused_note="",
        )

    def _drop_old_firings(self, row: ScheduleRow, *, now: datetime, until: datetime) -> None:
        """Record what was due under a rule that is replaced. A pause records its own firings."""
        current: ScheduleRow | None = row
        for _ in range(TRIES_MAX):
            if (
                current is None
                or current.revision != row.revision
                or current.is_paused_at(now)
                or self.drop_firings(current, until=until, now=now, reason=RULE_CHANGED)
            ):
                return
            current = self._store.get_schedule(row.spec.tenant, row.spec.name)


def is_retimed(before: ScheduleSpec, after: ScheduleSpec) -> bool:
    """Whether the schedule fires at other instants: only then does its next firing move."""
    return (before.rule, before.until) != (after.rule, after.until)


def _pause(row: ScheduleRow) -> tuple[datetime | None, datetime | None]:
    return row.paused_at, row.paused_until
