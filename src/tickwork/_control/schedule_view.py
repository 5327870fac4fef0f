"""A schedule as ``app.schedules`` returns it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tickwork._define.option_table import OPTIONS
from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin, ScheduleRow
from tickwork._domain.schedules.rules import from_text
from tickwork.errors import InvalidSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule and its state at one moment. Times are in UTC.

    ``rule`` is in plain English. ``next_due_at`` is None when there are no firings left; while
    the schedule is paused, ignore it. ``origin`` is ``code`` or ``api``. A schedule from code
    that no running program defines any more ``is_retired``: it does not fire.
    """

    name: str
    job: str
    rule: str
    zone: str
    tenant: str = ""
    next_due_at: datetime | None = None
    last_fired_at: datetime | None = None
    created_at: datetime
    revision: int = 1  # and one more for each change
    until: datetime | None = None
    queue: str | None = None  # None: the job's
    priority: int | None = None
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.ONE
    target: str | None = None
    tags: tuple[str, ...] = ()
    origin: ScheduleOrigin = ScheduleOrigin.CODE
    is_retired: bool = False
    is_paused: bool = False
    paused_at: datetime | None = None
    paused_until: datetime | None = None  # None: until it is resumed
    paused_note: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether there are no firings left."""
        return self.next_due_at is None and not self.is_paused


_FROM_SPEC: Final = (
    *("name", "tenant", "job", "zone", "origin"),
    *(option.column for option in OPTIONS if option.is_listed),
)


def view_of(row: ScheduleRow, *, now: datetime, seen_after: datetime) -> ScheduleView:
    is_paused = row.is_paused_at(now)
    return ScheduleView(
        **{name: getattr(row.spec, name) for name in _FROM_SPEC},
        rule=describe_rule(row),
        next_due_at=row.next_due_at,
        last_fired_at=row.last_fired_at,
        created_at=row.created_at,
        revision=row.revision,
        is_retired=row.is_retired(seen_after=seen_after),
        is_paused=is_paused,
        paused_at=row.paused_at if is_paused else None,
        paused_until=row.paused_until if is_paused else None,
        paused_note=row.paused_note if is_paused else "",
    )


def describe_rule(row: ScheduleRow) -> str:
    """Describe the rule in plain English; as stored, if this version cannot read it."""
    try:
        return from_text(row.spec.rule).describe()
    except InvalidSchedule:
        return row.spec.rule
