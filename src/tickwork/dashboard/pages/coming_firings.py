"""The page *Time*: a calendar, and the load of the next 24 hours."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from tickwork._inspect.agenda import Agenda
from tickwork._inspect.simulation import Collision, Simulation, simulate
from tickwork._inspect.upcoming_firings import ActiveSchedule
from tickwork._kernel.plain_text import count_of
from tickwork.dashboard.bulk import BulkActions
from tickwork.dashboard.calendar_view import (
    VIEWS,
    Calendar,
    build_calendar,
    count_firings,
    read_date,
    span_of,
)
from tickwork.dashboard.context import DashboardContext
from tickwork.dashboard.display_zone import DisplayZone
from tickwork.dashboard.pages.renderer import PageRenderer
from tickwork.dashboard.problems import ProblemError

SCHEDULES_MAX: Final = 300
"""The most schedules whose coming firings are counted for the page *Time*."""

COLLISIONS_MAX: Final = 2_000
LOAD_CACHE_TIME: Final = timedelta(minutes=1)
"""How long the load of the next 24 hours is shown before it is computed again."""

CALENDAR_TIME: Final = timedelta(seconds=10)
"""How long a calendar is shown before it is made again."""

COLLISIONS_SHOWN: Final = 15
AGENDA_MAX: Final = 100
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)


class TimePage(PageRenderer):
    """The calendar of past and coming firings."""

    def __init__(self, context: DashboardContext, bulk: BulkActions) -> None:
        super().__init__(context, bulk)
        self._calendar_cache: tuple[Any, datetime, tuple[Calendar, datetime | None]] | None = None
        self._load_cache: tuple[list[Any], datetime, Any] | None = None  # key, time, load

    async def time(self, request: Request) -> Response:
        now, zone = self.app.clock.now(), self.zone_of(request)
        date = read_date(request.query_params.get("date", ""), now.astimezone(zone.info))
        view = request.query_params.get("view", "month")
        if view not in VIEWS:
            raise ProblemError(422, "view must be month, week or day.", field="view")

        hour = _read_hour(request.query_params.get("hour", ""))

        def read() -> dict[str, Any]:
            agenda = self._read_agenda(date, hour, now, zone) if view == "day" else None
            return {"hour": hour, "agenda": agenda, **self._read_time(view, date, now, zone)}

        return await self.show(request, "time", read, title="Time")

    def _read_time(
        self, view: str, date: datetime, now: datetime, zone: DisplayZone
    ) -> dict[str, Any]:
        inspect = self.app.inspect
        active = inspect.active_schedules()[:SCHEDULES_MAX]
        calendar, cut_at = self._read_calendar(view, date, active, now, zone)
        load, cells = self._read_load(active, now, zone)
        busiest = load.busiest_minute
        return {
            "calendar": calendar,
            "cut_at": cut_at,
            "views": VIEWS,
            "heat": _draw_heat(cells, now.astimezone(zone.info)),
            "busiest": "none"
            if busiest is None
            else f"{busiest.astimezone(zone.info):%H:%M} with {load.busiest_minute_firings}",
            "collisions": _group_collisions(load.collisions),
            "local_now": now.astimezone(zone.info),
        }

    def _read_calendar(
        self,
        view: str,
        date: datetime,
        active: Sequence[ActiveSchedule],
        now: datetime,
        zone: DisplayZone,
    ) -> tuple[Calendar, datetime | None]:
        """The calendar, and since when it has all runs of the most frequent schedules.

        It is kept for some seconds: the hours of a week of hundreds of schedules take a while.
        """
        key = (view, date, zone, [(each.spec, each.next_due_at) for each in active])
        cached = self._calendar_cache
        if (
            cached is not None
            and cached[0] == key
            and timedelta(0) <= now - cached[1] < CALENDAR_TIME
        ):
            return cached[2]
        known = self.app.schedules.page(limit=SCHEDULES_MAX)
        zones = {(each.tenant, each.name): each.zone for each in known}
        since, before = span_of(view, date, zone.info)
        past = self.app.inspect.past_firings(list(zones), since=since, before=min(before, now))
        calendar = build_calendar(
            view,
            date,
            schedules=active,
            runs=past.runs,
            zones=zones,
            zone_of=zone.info_of,
            now=now,
        )
        found = calendar, max(past.cut.values(), default=None)
        self._calendar_cache = (key, now, found)
        return found

    def _read_agenda(
        self, date: datetime, hour: int | None, now: datetime, zone: DisplayZone
    ) -> Agenda | None:
        """What is due on a day or in an hour of it: firings, delayed runs and retries."""
        first = date if hour is None else date + hour * _HOUR
        last = date + _DAY if hour is None else first + _HOUR
        begin, end = (each.replace(tzinfo=zone.info).astimezone(UTC) for each in (first, last))
        if end <= now:
            return None
        # The end belongs to the next hour.
        until = end - timedelta(microseconds=1)
        return self.app.inspect.agenda(since=begin, until=until, limit=AGENDA_MAX)

    def _read_load(
        self, active: Sequence[ActiveSchedule], now: datetime, zone: DisplayZone
    ) -> tuple[Simulation, Counter[tuple[int, int]]]:
        """The firings of the next 24 hours: a simulation, and counts by hour and five minutes.

        They are computed once a minute: hundreds of schedules take half a second.
        """
        key = [zone.name, *((each.spec.tenant, each.spec.name, each.spec.rule) for each in active)]
        cached = self._load_cache
        if cached is None or cached[0] != key or now - cached[1] >= LOAD_CACHE_TIME:
            cached = self._load_cache = (key, now, _compute_load(active, now, zone.info))
        return cached[2]


def _compute_load(
    active: Sequence[ActiveSchedule], now: datetime, zone: tzinfo
) -> tuple[Simulation, Counter[tuple[int, int]]]:
    load = simulate(
        active,
        begin=now,
        days=1,
        zone="UTC",
        collisions_max=COLLISIONS_MAX,
        progress=lambda *_: None,
    )
    cells: Counter[tuple[int, int]] = Counter()
    five_minutes = timedelta(minutes=5)
    start = now.replace(minute=now.minute // 5 * 5, second=0, microsecond=0) + five_minutes
    for part in range(24 * 12):
        begin = start + part * five_minutes
        end = begin + five_minutes - timedelta(microseconds=1)
        local = begin.astimezone(zone)
        cells[local.hour, local.minute // 5] += sum(
            count_firings(each, begin, end) for each in active
        )
    return load, cells


def _draw_heat(cells: Counter[tuple[int, int]], now: datetime) -> list[dict[str, Any]]:
    """The rows of the heatmap: an hour each."""
    most = max(cells.values(), default=0)
    return [
        {
            "label": f"{hour:02}:00",
            "y": hour * 15,
            "cells": [
                {
                    "level": _heat_level(cells[hour, part], most),
                    "is_now": (hour, part) == (now.hour, now.minute // 5),
                    "text": f"{hour:02}:{part * 5:02}: {count_of(cells[hour, part], 'firing')}",
                }
                for part in range(12)
            ],
        }
        for hour in range(24)
    ]


def _group_collisions(collisions: Sequence[Collision]) -> list[dict[str, Any]]:
    """Collisions of the same schedules as one, the largest group first."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for each in sorted(collisions, key=lambda each: each.at):
        names = tuple(sorted(each.schedules))
        group = found.setdefault(
            names,
            {"names": names, "more": each.count - len(names), "at": each.at, "times": 0},
        )
        group["times"] += 1
    by_size = sorted(found.values(), key=lambda group: (-len(group["names"]), group["at"]))
    return by_size[:COLLISIONS_SHOWN]


def _read_hour(text: str) -> int | None:
    if not text:
        return None
    if not re.fullmatch(r"\d{1,2}", text) or int(text) > 23:
        raise ProblemError(422, "hour must be between 0 and 23.", field="hour")
    return int(text)


def _heat_level(count: int, most: int) -> int:
    return 0 if not count else 1 + min(int(count / most * 4), 3)
