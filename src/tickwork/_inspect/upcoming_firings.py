"""Schedules that will fire, and when."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from tickwork._control.catalog import Catalog
from tickwork._domain.firings import Firings, first_due, plan_firings
from tickwork._domain.job import Overlap, ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.rules import from_text
from tickwork._stores.contract import Store
from tickwork.errors import InvalidSchedule

SCHEDULES_MAX: Final = 10_000
"""The most schedules that one report reads. A database may hold a million."""

PAGE: Final = 1_000


class ActiveSchedule(NamedTuple):
    """A schedule that will fire, with its rule and its next instant."""

    spec: ScheduleSpec
    rule: Rule
    next_due_at: datetime | None
    is_written: bool
    overdue: Firings | None = None  # what the next tick decides, if an instant has passed

    def instants(self) -> Iterator[datetime]:
        """The coming instants, in order; endless if the rule is."""
        at = self.next_due_at
        while at is not None:
            yield at
            at = first_due(self.rule, after=at, until=self.spec.until)

    def overdue_firings(self) -> int | None:
        """How many runs the overdue instants create together; None if none is overdue."""
        if self.overdue is None:
            return None
        is_single = self.spec.overlap in {Overlap.SKIP, Overlap.QUEUE_ONE}
        return min(len(self.overdue.times), 1 if is_single else sys.maxsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """An instant at which a schedule falls due, in the schedule's time zone."""

    at: datetime
    schedule: str
    tenant: str
    job: str
    zone: str
    rule: str  # in plain English
    is_written: bool  # false: defined in code, not yet in the database
    overdue_firings: int | None = None  # set if overdue since ``at``: how often it will fire


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcomingFirings:
    """The next firings, and how many schedules have none."""

    now: datetime
    firings: list[Firing]
    paused: int  # schedules that are paused
    retired: int  # schedules that no running program defines
    finished: int  # schedules without a further instant


def read_schedule_rows(store: Store) -> Iterator[ScheduleRow]:
    """Read the schedules of all tenants, by tenant and name, up to ``SCHEDULES_MAX``."""
    after: tuple[str, str] | None = None
    for _ in range(SCHEDULES_MAX // PAGE):
        rows = store.list_schedules(after=after, limit=PAGE)
        yield from rows
        if len(rows) < PAGE:
            return
        after = (rows[-1].spec.tenant, rows[-1].spec.name)


def is_readable(row: ScheduleRow) -> bool:
    """Whether this version understands the rule. A newer program may have written it."""
    try:
        from_text(row.spec.rule)
    except InvalidSchedule:
        return False
    return True


def active_schedules(
    rows: Iterable[ScheduleRow], catalog: Catalog, *, now: datetime, seen_after: datetime
) -> list[ActiveSchedule]:
    """The schedules that will fire: those in the database, and those only in code so far."""
    schedules = []
    for row in rows:
        is_stopped = row.is_paused_at(now) and row.paused_until is None
        is_retired = row.is_retired(seen_after=seen_after)
        if is_stopped or is_retired or row.fault or row.next_due_at is None:
            continue
        active = _active_schedule(row, row.next_due_at, now=now)
        if active is not None:
            schedules.append(active)
    for spec in catalog.unwritten():
        rule = from_text(spec.rule)
        next_due_at = first_due(rule, after=now, until=spec.until)
        schedules.append(ActiveSchedule(spec, rule, next_due_at, is_written=False))
    return schedules


def _active_schedule(
    row: ScheduleRow, next_due_at: datetime, *, now: datetime
) -> ActiveSchedule | None:
    """The schedule of a row; None if a tick cannot fire it, whatever the reason is."""
    try:
        rule = from_text(row.spec.rule)
        rule.next_after(now)  # raises for a rule that takes too many steps
        overdue = plan_firings(row, rule, now=now) if next_due_at <= now else None
    except Exception:  # noqa: BLE001  # any error is the row's own
        return None
    return ActiveSchedule(row.spec, rule, next_due_at, True, overdue)


def upcoming_firings(
    rows: Sequence[ScheduleRow],
    active: Iterable[ActiveSchedule],
    *,
    now: datetime,
    seen_after: datetime,
    limit: int,
    until: datetime | None,
    since: datetime | None = None,
) -> UpcomingFirings:
    """The next firings of ``active``, in order; ``rows`` show how many others do not fire."""
    firings: list[Firing] = []
    coming = [_firings(number, each, now, since=since) for number, each in enumerate(active)]
    for at, _, _, each in islice(merge(*coming), limit):
        if until is not None and at > until:
            break
        firings.append(
            Firing(
                at=at,
                schedule=each.spec.name,
                tenant=each.spec.tenant,
                job=each.spec.job,
                zone=each.spec.zone,
                rule=each.rule.describe(),
                is_written=each.is_written,
                overdue_firings=each.overdue_firings() if at <= now else None,
            )
        )
    return UpcomingFirings(
        now=now,
        firings=firings,
        paused=sum(row.is_paused_at(now) for row in rows),
        retired=sum(row.is_retired(seen_after=seen_after) for row in rows),
        finished=sum(row.next_due_at is None and not row.is_paused_at(now) for row in rows),
    )


def _firings(
    number: int, schedule: ActiveSchedule, now: datetime, *, since: datetime | None
) -> Iterator[tuple[datetime, str, int, ActiveSchedule]]:
    """The instants of a schedule, ordered by time, name and number when they are merged.

    Of the overdue ones, only the first is listed. With ``since``, later ones only.
    """
    if since is not None and since > max(schedule.next_due_at or now, now):
        just_before = since - timedelta(microseconds=1)
        first = first_due(schedule.rule, after=just_before, until=schedule.spec.until)
        schedule = schedule._replace(next_due_at=first, overdue=None)
    if schedule.overdue is not None and schedule.next_due_at is not None:
        yield schedule.next_due_at, schedule.spec.name, number, schedule
        upcoming = first_due(schedule.rule, after=now, until=schedule.spec.until)
        schedule = schedule._replace(next_due_at=upcoming)
    for at in schedule.instants():
        yield at, schedule.spec.name, number, schedule
