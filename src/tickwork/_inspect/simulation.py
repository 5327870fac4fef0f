"""Simulation of all schedules over a number of days. Nothing is written, and nothing runs."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Final

from tickwork._domain.schedules.changes import effects
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.zones import Zone
from tickwork._inspect.upcoming_firings import ActiveSchedule

INSTANTS_MAX: Final = 20_000
"""Firings of one schedule that are listed one by one. Beyond that they are only counted."""

NAMES_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Collision:
    """An instant at which several schedules fire."""

    at: datetime
    count: int
    schedules: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSchedule:
    """How often one schedule fires, and what clock changes do to it."""

    name: str
    job: str
    zone: str
    rule: str  # in plain English
    firings: int
    first_at: datetime | None
    last_at: datetime | None
    notes: list[str]  # the effects of clock changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The firings of all schedules between ``begin`` and ``end``."""

    begin: datetime
    end: datetime
    zone: str  # of by_hour
    firings: int
    by_hour: list[int]  # firings in each hour of the day
    schedules: list[SimulatedSchedule]  # the most frequent first
    collisions: list[Collision]
    busiest_minute: datetime | None  # the minute with the most firings
    busiest_minute_firings: int


def simulate(
    schedules: Sequence[ActiveSchedule],
    *,
    begin: datetime,
    days: float,
    zone: str | None,
    collisions_max: int,
    progress: Callable[[int, int], None],
) -> Simulation:
    """Simulate ``days`` days. Without a ``zone``, hours are those of the local time zone."""
    end = begin + timedelta(days=days)
    tz = None if zone is None else Zone.named(zone).info
    by_hour = [0] * 24
    names_by_instant: dict[datetime, list[str]] = {}
    # Schedules with too many firings to list, each with its last listed instant.
    frequent: list[tuple[ActiveSchedule, datetime]] = []
    results = []
    for number, each in enumerate(schedules):
        progress(number, len(schedules))
        first, last = each.next_due_at or begin, min(end, each.spec.until or end)
        total = each.rule.count_between(first, last)
        at = None
        for at in islice(takewhile(end.__ge__, each.instants()), INSTANTS_MAX):
            names_by_instant.setdefault(at, []).append(each.spec.name)
            if total <= INSTANTS_MAX:
                by_hour[at.astimezone(tz).hour] += 1
        if total > INSTANTS_MAX and at is not None:
            frequent.append((each, at))
            for hour, count in _count_by_hour(each.rule, first, last, tz):
                by_hour[hour] += count
        results.append(
            SimulatedSchedule(
                name=each.spec.name,
                job=each.spec.job,
                zone=each.spec.zone,
                rule=each.rule.describe(),
                firings=total,
                first_at=each.next_due_at if total else None,
                last_at=each.rule.prev_before(last + timedelta(seconds=1)) if total else None,
                notes=[effect.text for effect in effects(each.rule, after=begin, until=end)],
            )
        )
    progress(len(schedules), len(schedules))
    for each, listed_until in frequent:
        for at, names in names_by_instant.items():
            if at > listed_until and each.rule.count_between(at, at):
                names.append(each.spec.name)
    minutes: Counter[datetime] = Counter()
    for at, names in names_by_instant.items():
        minutes[at.replace(second=0)] += len(names)
    busiest = max(minutes.items(), key=lambda pair: (pair[1], -pair[0].timestamp()), default=None)
    shared = sorted(
        (pair for pair in names_by_instant.items() if len(pair[1]) > 1),
        key=lambda pair: (-len(pair[1]), pair[0]),
    )
    return Simulation(
        begin=begin,
        end=end,
        zone=zone or begin.astimezone().tzname() or "local",
        firings=sum(each.firings for each in results),
        by_hour=by_hour,
        schedules=sorted(results, key=lambda each: -each.firings),
        collisions=[
            Collision(at=at, count=len(names), schedules=names[:NAMES_MAX])
            for at, names in shared[:collisions_max]
        ],
        busiest_minute=busiest[0] if busiest else None,
        busiest_minute_firings=busiest[1] if busiest else 0,
    )


def _count_by_hour(
    rule: Rule, first: datetime, last: datetime, tz: tzinfo | None
) -> Iterator[tuple[int, int]]:
    """Count the firings in each hour of the clock, without listing them."""
    at = first
    while at <= last:
        local = at.astimezone(tz)
        next_hour = at + (
            timedelta(hours=1)
            - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        )
        yield local.hour, rule.count_between(at, min(next_hour - timedelta(seconds=1), last))
        at = next_hour
