from datetime import UTC, datetime, timedelta

from tickwork._define.rule_text import parse_rule_text
from tickwork._domain.job import ScheduleSpec
from tickwork._domain.schedules.pattern import SYMBOLS
from tickwork._inspect.schedules import ActiveSchedule, upcoming_firings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def an_active_schedule(name: str, expression: str, **spec) -> ActiveSchedule:
    timing = parse_rule_text(expression, symbols=SYMBOLS)
    rule = timing.rule(tz="UTC", anchor=NOON, key=name)
    found = ScheduleSpec(name=name, job="report", rule=rule.to_text(), **spec)
    return ActiveSchedule(found, rule, rule.next_after(NOON), is_written=True)


def firings(*active: ActiveSchedule, limit: int = 10, until: datetime | None = None):
    found = upcoming_firings([], active, now=NOON, seen_after=NOON, limit=limit, until=until)
    return [(each.at - NOON, each.schedule) for each in found.firings]


def minutes(count: int) -> timedelta:
    return timedelta(minutes=count)


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
