"""A calendar of past and coming firings: by month, week or day."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from tickwork._domain.schedules.contract import walk
from tickwork._inspect.runs import RunView
from tickwork._inspect.schedules import ActiveSchedule
from tickwork.dashboard.problems import ProblemError

VIEWS: Final = ("month", "week", "day")
ITEMS_MAX: Final = {"month": 3, "week": 2, "day": 20}
"""The most schedules that a cell names."""

TIMES_MAX: Final = 12
"""The most instants of one schedule and hour that the view of a day lists."""

WALK_MAX: Final = 48
"""A schedule with more firings on a day is counted by the hour, not listed."""

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarItem:
    """A schedule in a cell."""

    name: str
    times: int
    text: str  # the instants, in the view of a day


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarCell:
    """A day, or an hour of a day."""

    begin: datetime
    is_inside: bool  # of the month that is shown
    is_now: bool
    items: list[CalendarItem]
    more: int

    @property
    def day(self) -> str:
        """The day in a URL."""
        return f"{self.begin:%Y-%m-%d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The cells of a month, row by row, or of the hours of one day or seven."""

    view: str
    date: str
    label: str
    before: str
    after: str
    days: list[datetime]
    rows: list[list[CalendarCell]]


def read_date(text: str, now: datetime) -> datetime:
    """The day that a URL names; today, if it names none.

    Raises:
        ProblemError: It is not a day, or too far away.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if not text:
        return today
    found = re.fullmatch(r"(\d{4})-(\d\d)(?:-(\d\d))?", text)
    if found is not None and now.year - 1 <= int(found[1]) <= now.year + 5:
        with suppress(ValueError):  # there is no such day
            return today.replace(year=int(found[1]), month=int(found[2]), day=int(found[3] or 1))
    raise ProblemError(
        422, "date must be a day such as 2026-03-31, at most five years ahead.", field="date"
    )


def build_calendar(
    view: str,
    date: datetime,
    *,
    schedules: Sequence[ActiveSchedule],
    runs: Iterable[RunView],
    now: datetime,
) -> Calendar:
    """Count what the runs show of the past, and what the rules show of the time from now on."""
    first, days = _span(view, date)
    begins = [first + number * _DAY for number in range(days)]
    step = _DAY if view == "month" else _HOUR
    counts: dict[datetime, Counter[str]] = {}
    times: dict[tuple[datetime, str], list[datetime]] = {}
    for run in runs:
        at = run.nominal_at
        if run.schedule is not None and at is not None and first <= at < begins[-1] + _DAY:
            begin = first + (at - first) // step * step
            counts.setdefault(begin, Counter())[run.schedule] += run.instants
            times.setdefault((begin, run.schedule), []).append(at.astimezone(first.tzinfo))
    for each in schedules:
        for begin, count, instants in _coming(each, begins, step, now):
            counts.setdefault(begin, Counter())[each.spec.name] += count
            times.setdefault((begin, each.spec.name), []).extend(instants)

    def cell(begin: datetime) -> CalendarCell:
        found = counts.get(begin, Counter()).most_common()
        most = ITEMS_MAX[view]
        return CalendarCell(
            begin=begin,
            is_inside=view != "month" or begin.month == date.month,
            is_now=begin <= now < begin + step,
            items=[
                CalendarItem(name=name, times=count, text=_list_times(times.get((begin, name), [])))
                for name, count in found[:most]
            ],
            more=max(len(found) - most, 0),
        )

    if view == "month":
        rows = [[cell(begin) for begin in begins[at : at + 7]] for at in range(0, days, 7)]
    else:
        rows = [[cell(begin + hour * _HOUR) for begin in begins] for hour in range(24)]
    before, after = _neighbours(view, date)
    return Calendar(
        view=view,
        date=f"{date:%Y-%m-%d}",
        label=_label(view, date, begins),
        before=f"{before:%Y-%m-%d}",
        after=f"{after:%Y-%m-%d}",
        days=begins[:7],
        rows=rows,
    )


def count_firings(schedule: ActiveSchedule, begin: datetime, end: datetime) -> int:
    """The firings of a schedule in a span of time, without listing them."""
    first = max(begin, schedule.next_due_at or end)
    last = min(end, schedule.spec.until or end)
    return schedule.rule.count_between(first, last) if first <= last else 0


def _coming(
    schedule: ActiveSchedule, begins: Sequence[datetime], step: timedelta, now: datetime
) -> Iterator[tuple[datetime, int, list[datetime]]]:
    """The cells in which a schedule will fire: how often, and when if that is not too often."""
    for day in begins:
        begin, end = max(day, now), day + _DAY - _MICROSECOND
        total = count_firings(schedule, begin, end) if begin <= end else 0
        if not total:
            continue
        if step == _DAY:
            yield day, total, []
        elif total <= WALK_MAX:
            first = max(begin, schedule.next_due_at or end)
            for at in islice(walk(schedule.rule, first - _MICROSECOND), total):
                yield day + (at - day) // _HOUR * _HOUR, 1, [at.astimezone(day.tzinfo)]
        else:
            for hour in (day + number * _HOUR for number in range(24)):
                count = count_firings(schedule, max(hour, now), hour + _HOUR - _MICROSECOND)
                if count:
                    yield hour, count, []


def _span(view: str, date: datetime) -> tuple[datetime, int]:
    if view == "day":
        return date, 1
    if view == "week":
        return date - date.weekday() * _DAY, 7
    month = date.replace(day=1)
    return month - month.weekday() * _DAY, 42


def _neighbours(view: str, date: datetime) -> tuple[datetime, datetime]:
    if view == "month":
        first = date.replace(day=1)
        return (first - _DAY).replace(day=1), (first + 32 * _DAY).replace(day=1)
    length = _DAY if view == "day" else 7 * _DAY
    return date - length, date + length


def _label(view: str, date: datetime, begins: Sequence[datetime]) -> str:
    if view == "month":
        return f"{date:%B %Y}"
    if view == "day":
        return f"{date:%a} {date.day} {date:%B %Y}"
    first, last = begins[0], begins[-1]
    return f"{first.day} {first:%b} to {last.day} {last:%b %Y}"


def _list_times(instants: Sequence[datetime]) -> str:
    shown = [f"{at:%H:%M:%S}".removesuffix(":00") for at in sorted(set(instants))[:TIMES_MAX]]
    return ", ".join([*shown, "…"] if len(instants) > TIMES_MAX else shown)
