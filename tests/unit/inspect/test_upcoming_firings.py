from datetime import UTC, datetime, timedelta

import pytest

from tickwork._calendars.calendars import NO_CALENDARS
from tickwork._config.rule_text import parse_rule_text
from tickwork._domain.firings import plan_firings
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import Misfire, Overlap, ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.pattern import SYMBOLS
from tickwork._inspect.upcoming_firings import ActiveSchedule, upcoming_firings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def an_active_schedule(name: str, expression: str, **spec) -> ActiveSchedule:
    timing = parse_rule_text(expression, symbols=SYMBOLS, calendars=NO_CALENDARS)
    rule = timing.rule(tz="UTC", anchor=NOON, key=name)
    found = ScheduleSpec(name=name, job="report", rule=rule.to_text(), **spec)
    return ActiveSchedule(found, rule, rule.next_after(NOON), is_written=True)


def firings(*active: ActiveSchedule, limit: int = 10, until: datetime | None = None):
    found = upcoming_firings([], active, now=NOON, seen_after=NOON, limit=limit, until=until)
    return [(each.at - NOON, each.schedule) for each in found.firings]


def minutes(count: int) -> timedelta:
    return timedelta(minutes=count)


def an_overdue_schedule(since: datetime, **spec) -> ActiveSchedule:
    found = an_active_schedule("often", "* * * * * *", **spec)
    row = ScheduleRow(
        id=ScheduleId("1"), spec=found.spec, next_due_at=since, created_at=since, seen_at=since
    )
    overdue = plan_firings(row, found.rule, now=NOON)
    return found._replace(next_due_at=since, overdue=overdue)


class TestOverdueSchedules:
    """All overdue instants of a schedule are one line, then what comes follows."""

    @pytest.mark.parametrize(
        ("policies", "times"),
        [
            ({}, 1),
            ({"misfire": Misfire.ALL}, 1),
            ({"misfire": Misfire.SKIP, "grace": timedelta(0)}, 1),
            ({"misfire": Misfire.ALL, "overlap": Overlap.QUEUE_ALL}, 901),
            ({"misfire": Misfire.ONE, "overlap": Overlap.ALLOW, "grace": timedelta(0)}, 2),
        ],
    )
    def test_next_shows_one_line_and_how_often_it_will_fire(self, policies, times):
        schedule = an_overdue_schedule(NOON - minutes(15), **policies)

        found = upcoming_firings([], [schedule], now=NOON, seen_after=NOON, limit=3, until=None)

        assert [(each.at, each.overdue_firings) for each in found.firings] == [
            (NOON - minutes(15), times),
            (NOON + timedelta(seconds=1), None),
            (NOON + timedelta(seconds=2), None),
        ]


class TestUpcomingFirings:
    """The firings of several schedules are merged, in order."""

    TEN = an_active_schedule("ten", "*/10 * * * *")
    FIFTEEN = an_active_schedule("fifteen", "*/15 * * * *")

    def test_they_are_in_the_order_of_time_then_of_name(self):
        assert firings(self.TEN, self.FIFTEEN, limit=5) == [
            (minutes(10), "ten"),
            (minutes(15), "fifteen"),
            (minutes(20), "ten"),
            (minutes(30), "fifteen"),
            (minutes(30), "ten"),
        ]

    def test_they_end_with_the_given_time(self):
        assert firings(self.TEN, until=NOON + minutes(25)) == [
            (minutes(10), "ten"),
            (minutes(20), "ten"),
        ]

    def test_they_end_with_the_schedule(self):
        ending = an_active_schedule("ending", "*/10 * * * *", until=NOON + minutes(10))

        assert firings(ending) == [(minutes(10), "ending")]

    def test_two_schedules_of_one_name_are_both_listed(self):
        other = an_active_schedule("ten", "*/10 * * * *", tenant="acme")

        assert firings(self.TEN, other, limit=2) == [(minutes(10), "ten")] * 2
