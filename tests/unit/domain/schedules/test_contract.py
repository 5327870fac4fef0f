"""Every rule keeps the contract of a `Rule`, whatever it is made of."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from tickwork._domain.schedules.bounds import Bounded, Window, Windowed
from tickwork._domain.schedules.contract import Rule, walk
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.pattern import Pattern
from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork._domain.schedules.rules import from_text
from tickwork.errors import NaiveDatetime
from tickwork.schedules import Timetable

SECOND = timedelta(seconds=1)
BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 27, 1, 30, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 23, 0, 30, tzinfo=UTC)
OFFICE_HOURS = (Window(time(1), time(2, 30)), Window(time(22), time(0, 30)))


def rules_in(tz):
    half_hourly = Cron.parse("*/30 * * * *", tz=tz)
    return {
        "cron, wildcard": half_hourly,
        "cron, fixed": Cron.parse("30 2,3 * * *", tz=tz),
        "pattern": Pattern.of(minute=30, hour="*/2", weekday="0-6", tz=tz),
        "interval": Interval(length=timedelta(minutes=50), anchor=SPRING, tz=tz),
        "once": Once(at=AUTUMN, tz=tz),
        "every day": Recurrence(unit=Unit.DAY, anchor=SPRING, tz=tz),
        "every second week": Recurrence(
            unit=Unit.WEEK, interval=2, weekdays=(0, 1, 6), anchor=SPRING, tz=tz
        ),
        "every month": Recurrence(unit=Unit.MONTH, anchor=SPRING, tz=tz, missing=Missing.SKIP),
        "every year": Recurrence(unit=Unit.YEAR, anchor=SPRING, tz=tz),
        "bounded": Bounded(rule=half_hourly, starting=SPRING, until=AUTUMN + timedelta(days=2)),
        "bounded by count": Bounded(
            rule=half_hourly, starting=AUTUMN + timedelta(days=1), max_firings=53
        ),
        "windowed": Windowed(
            rule=half_hourly, between=OFFICE_HOURS, dates=frozenset({date(2026, 10, 24)})
        ),
        "windowed and bounded": Bounded(
            rule=Windowed(rule=half_hourly, unless=OFFICE_HOURS), starting=SPRING, max_firings=300
        ),
        "chain": Timetable().every_thirty_minutes().between("0", "4").timezone(tz),
        "chain with a rule": Timetable().on(Cron.parse("*/30 * * * *", tz=tz)),
        "chain with an interval": Timetable().every(minutes=50, starting=SPRING).timezone(tz),
    }


RULES = {
    f"{name}, {tz}": rule
    for tz in ("UTC", "Europe/Berlin", "Australia/Lord_Howe")
    for name, rule in rules_in(tz).items()
}
# Windows over both clock changes in Europe, with bounds of any kind.
WINDOWS = [
    (SPRING, SPRING + timedelta(days=3)),
    (AUTUMN, AUTUMN + timedelta(days=3)),
    (SPRING - timedelta(days=2), SPRING + SECOND / 2),
    (AUTUMN + SECOND / 2, AUTUMN + timedelta(hours=30)),
    (
        datetime(2026, 10, 25, 2, 30, fold=0, tzinfo=BERLIN),
        datetime(2026, 10, 25, 2, 15, fold=1, tzinfo=BERLIN),
    ),
    (AUTUMN, AUTUMN),
    (AUTUMN, AUTUMN - timedelta(days=1)),
]


def ts(moment):
    """Compare instants, never datetimes: in one zone, Python compares their wall times."""
    return moment.timestamp()


def met_on_the_way(rule, first, last):
    found = walk(rule, first.astimezone(UTC) - SECOND / 1_000_000)
    return list(takewhile(lambda moment: ts(moment) <= ts(last), islice(found, 1000)))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
class TestEveryRule:
    """The ticker relies on all of this, for any rule."""

    def test_it_is_a_schedule(self, rule):
        assert isinstance(rule, Rule)
        assert hash(rule) == hash(rule)
        assert rule.describe()

    def test_next_is_strictly_later_and_a_whole_second_in_the_rules_zone(self, rule):
        for first, last in WINDOWS:
            for after in (first, last, first - SECOND / 2):
                found = rule.next_after(after)

                if found is not None:
                    assert ts(found) > ts(after)
                    assert found.microsecond == 0
                    assert str(found.tzinfo) == rule.tz

    def test_prev_is_strictly_earlier_and_a_whole_second_in_the_rules_zone(self, rule):
        for first, last in WINDOWS:
            for before in (first, last, last + SECOND / 2):
                found = rule.prev_before(before)

                if found is not None:
                    assert ts(found) < ts(before)
                    assert found.microsecond == 0
                    assert str(found.tzinfo) == rule.tz

    def test_next_and_prev_are_each_others_way_back(self, rule):
        for first, last in WINDOWS:
            for earlier, later in pairwise(met_on_the_way(rule, first, last)):
                assert ts(rule.prev_before(later)) == ts(earlier)
                assert ts(rule.next_after(earlier)) == ts(later)

    def test_a_moment_just_before_an_instant_leads_to_it(self, rule):
        for first, last in WINDOWS:
            for found in met_on_the_way(rule, first, last)[:20]:
                in_utc = found.astimezone(UTC)
                for near in (SECOND, SECOND / 2, SECOND / 1_000_000):
                    assert ts(rule.next_after(in_utc - near)) == ts(found)
                    assert ts(rule.prev_before(in_utc + near)) == ts(found)

    def test_a_preview_is_a_walk(self, rule):
        for first, _ in WINDOWS:
            expected = [ts(found) for found in islice(walk(rule, first), 12)]

            assert [ts(found) for found in rule.preview(12, after=first)] == expected
            assert list(rule.preview(0, after=first)) == []

    def test_count_between_is_how_many_a_walk_meets(self, rule):
        for first, last in WINDOWS:
            assert rule.count_between(first, last) == len(met_on_the_way(rule, first, last))

    def test_a_naive_datetime_is_an_error(self, rule):
        naive = datetime(2026, 10, 25)

        for ask in (
            lambda: rule.next_after(naive),
            lambda: rule.prev_before(naive),
            lambda: rule.preview(1, after=naive),
            lambda: rule.count_between(naive, AUTUMN),
            lambda: rule.count_between(AUTUMN, naive),
        ):
            with pytest.raises(NaiveDatetime):
                ask()

    def test_it_comes_back_from_its_text(self, rule):
        copy = from_text(rule.to_text())

        assert copy.to_text() == rule.to_text()
        for first, last in WINDOWS:
            assert copy.count_between(first, last) == rule.count_between(first, last)


class TestUnfinished:
    """A chain is a schedule even before it has what it counts from, or what H hashes."""

    @pytest.mark.parametrize(
        "chain",
        [Timetable(), Timetable().every(minutes=5), Timetable().cron("H * * * *")],
        ids=["nothing options", "no anchor", "no key"],
    )
    def test_it_is_a_schedule(self, chain):
        assert isinstance(chain, Rule)

    @pytest.mark.parametrize("thing", [None, "hourly", 5, timedelta(hours=1), SPRING])
    def test_other_objects_are_no_rules(self, thing):
        assert not isinstance(thing, Rule)
