"""A calendar of past and coming firings: by month, week or day, in the time zone of the page."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from tickwork._domain.runs.status import RunStatus
from tickwork._domain.schedules.contract import walk
from tickwork._inspect.upcoming_firings import ActiveSchedule
from tickwork._stores.contract import ScheduleOutcome
from tickwork.dashboard.problems import ProblemError

VIEWS: Final = ("month", "week", "day")
ITEMS_MAX: Final = {"month": 4, "week": 3, "day": 20}
"""The most schedules that a cell names."""

TIMES_MAX: Final = 12
"""The most instants of one schedule and hour that the view of a day lists."""

WALK_MAX: Final = 48
"""A schedule with more firings on a day is counted by the hour, not listed."""

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_MICROSECOND: Final = timedelta(microseconds=1)

WORST_FIRST: Final = (
    RunStatus.FAILED_PERMANENT,
    RunStatus.FAILED,
    RunStatus.RUNNING,
    RunStatus.SKIPPED,
    RunStatus.CANCELED,
    RunStatus.PENDING,
    RunStatus.COMPLETED,
)
"""An item with several outcomes has the colour of the worst."""

ScheduleKey: TypeAlias = tuple[str, str]
"""The tenant and the name of a schedule."""

ZoneOf: TypeAlias = Callable[[str], tzinfo]
"""The zone in which the times of a schedule with this zone are shown."""


class _Cell(NamedTuple):
    """What is counted for one schedule in one cell."""

    outcomes: Counter[RunStatus]
    instants: list[str]
    coming: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarItem:
    """A schedule in a cell."""

    name: str
    tenant: str
    times: int
    text: str  # the instants, in the view of a day
    status: RunStatus | None  # the worst outcome; None: it will fire
    summary: str  # the outcomes in words


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarCell:
    """A day, or an hour of a day. Its times are those of a wall clock, without a zone."""

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
    """The day that a URL names; today, if it names none. It is a time of a wall clock.

    Raises:
        ProblemError: It is not a day, or too far away.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
    if not text:
        return today
    found = re.fullmatch(r"(\d{4})-(\d\d)(?:-(\d\d))?", text)
    if found is not None and now.year - 1 <= int(found[1]) <= now.year + 5:
        with suppress(ValueError):  # there is no such day
            return today.replace(year=int(found[1]), month=int(found[2]), day=int(found[3] or 1))
    raise ProblemError(
        422, "date must be a day such as 2026-03-31, at most five years ahead.", field="date"
    )


def span_of(view: str, date: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The instants at which a calendar begins and ends, a day more on either side.

    With a day more, they are the same in the zone of every schedule.
    """
    first, days = _span(view, date)
    begin, end = first - _DAY, first + (days + 1) * _DAY
    return begin.replace(tzinfo=zone).astimezone(UTC), end.replace(tzinfo=zone).astimezone(UTC)


def build_calendar(
    view: str,
    date: datetime,
    *,
    schedules: Sequence[ActiveSchedule],
    runs: Iterable[ScheduleOutcome],
    zones: Mapping[ScheduleKey, str],
    zone_of: ZoneOf,
    now: datetime,
) -> Calendar:
    """Count what the runs show of the past, and what the rules show of the time from now on.

    ``zones`` are the zones of schedules, and ``zone_of`` is the one in which such times are shown.
    Rare schedules come first: those that fire every minute hide nothing.
    """
    first, days = _span(view, date)
    begins = [first + number * _DAY for number in range(days)]
    step = _DAY if view == "month" else _HOUR
    found: dict[datetime, dict[ScheduleKey, _Cell]] = {}
    totals: Counter[ScheduleKey] = Counter()

    def add(
        begin: datetime,
        key: ScheduleKey,
        number: int,
        *,
        instants: Iterable[datetime] = (),
        status: RunStatus | None = None,
    ) -> None:
        cell = found.setdefault(begin, {}).setdefault(key, _Cell(Counter(), []))
        totals[key] += number
        texts = [f"{at:%H:%M:%S}".removesuffix(":00") for at in instants]
        cell.instants.extend(texts)
        if status is None:
            found[begin][key] = cell._replace(coming=cell.coming + number)
        else:
            cell.outcomes[status] += number

    for run in runs:
        key = (run.tenant, run.schedule)
        local = _wall(run.nominal_at, zone_of(zones.get(key, "")))
        if first <= local < begins[-1] + _DAY:
            begin = first + (local - first) // step * step
            add(begin, key, run.instants, instants=[local], status=run.status)
    for each in schedules:
        zone = zone_of(each.spec.zone)
        for begin, number, instants in _coming(each, begins, step, now, zone):
            add(begin, (each.spec.tenant, each.spec.name), number, instants=instants)
    here = _wall(now, zone_of(""))

    def cell(begin: datetime) -> CalendarCell:
        ordered = sorted(
            found.get(begin, {}).items(), key=lambda item: (totals[item[0]], item[0][1], item[0][0])
        )
        most = ITEMS_MAX[view]
        return CalendarCell(
            begin=begin,
            is_inside=view != "month" or begin.month == date.month,
            is_now=begin <= here < begin + step,
            items=[_item(key, counted) for key, counted in ordered[:most]],
            more=max(len(ordered) - most, 0),
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


def _item(key: ScheduleKey, cell: _Cell) -> CalendarItem:
    worst = next((status for status in WORST_FIRST if cell.outcomes[status]), None)
    parts = [
        f"{cell.outcomes[status]:,} {status.value.replace('_', ' ')}"
        for status in WORST_FIRST
        if cell.outcomes[status]
    ]
    parts += [f"{cell.coming:,} to come"] if cell.coming else []
    shown = sorted(set(cell.instants))
    text = ", ".join([*shown[:TIMES_MAX], *(["…"] if len(shown) > TIMES_MAX else [])])
    return CalendarItem(
        tenant=key[0],
        name=key[1],
        times=cell.outcomes.total() + cell.coming,
        text=text,
        status=worst,
        summary=", ".join(parts),
    )


def _wall(at: datetime, zone: tzinfo) -> datetime:
    """What a clock on the wall shows."""
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def count_firings(schedule: ActiveSchedule, begin: datetime, end: datetime) -> int:
    """The firings of a schedule in a span of time, without listing them."""
    first = max(begin, schedule.next_due_at or end)
    last = min(end, schedule.spec.until or end)
    return schedule.rule.count_between(first, last) if first <= last else 0


def _coming(
    schedule: ActiveSchedule,
    begins: Sequence[datetime],
    step: timedelta,
    now: datetime,
    zone: tzinfo,
) -> Iterator[tuple[datetime, int, list[datetime]]]:
    """The cells in which a schedule will fire: how often, and when if that is not too often."""

    def instant(wall: datetime) -> datetime:
        return max(wall.replace(tzinfo=zone).astimezone(UTC), now)

    for day in begins:
        begin, end = instant(day), instant(day + _DAY) - _MICROSECOND
        total = count_firings(schedule, begin, end) if begin <= end else 0
        if not total:
            continue
        if step == _DAY:
            yield day, total, []
        elif total <= WALK_MAX:
            first = max(begin, schedule.next_due_at or end)
            for at in islice(walk(schedule.rule, first - _MICROSECOND), total):
                local = _wall(at, zone)
                yield local.replace(minute=0, second=0, microsecond=0), 1, [local]
        else:
            for hour in (day + number * _HOUR for number in range(24)):
                begin, end = instant(hour), instant(hour + _HOUR) - _MICROSECOND
                count = count_firings(schedule, begin, end) if begin <= end else 0
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
