from datetime import UTC, datetime, timedelta

import pytest

from tickwork import schedules
from tickwork._domain.schedules.changes import clock_changes, effects

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2027, 1, 1, tzinfo=UTC)


def notes(rule):
    return [
        (effect.missing, effect.repeated, effect.moved_to is not None, effect.is_doubled)
        for effect in effects(rule, after=BEGIN, until=END)
    ]


class TestClockChanges:
    """When clocks are moved, and what they show."""

    def test_a_year_in_berlin(self):
        forward, back = clock_changes("Europe/Berlin", after=BEGIN, until=END)

        assert forward.at == datetime(2026, 3, 29, 1, tzinfo=UTC)
        assert (forward.before.hour, forward.after.hour) == (2, 3)
        assert (back.before.hour, back.after.hour) == (3, 2)
        assert (forward.is_forward, back.is_forward) == (True, False)

    def test_half_an_hour_on_lord_howe(self):
        lengths = {
            abs(change.after - change.before)
            for change in clock_changes("Australia/Lord_Howe", after=BEGIN, until=END)
        }

        assert lengths == {timedelta(minutes=30)}

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
    def test_clocks_that_are_never_moved(self, zone):
        later = datetime(2040, 1, 1, tzinfo=UTC)

        assert list(clock_changes(zone, after=BEGIN, until=later)) == []


class TestEffects:
    """What that does to a rule; the written rule about clock changes is tested elsewhere."""

    @pytest.mark.parametrize(
        ("expression", "found"),
        [
            ("30 2 * * *", [(1, 0, True, False), (0, 1, False, False)]),
            ("0 2,3 * * *", [(1, 0, False, False), (0, 1, False, False)]),
            ("*/30 * * * *", [(2, 0, False, False), (0, 2, False, True)]),
            ("0 12 * * *", []),
            ("30 2 * * MON", []),  # clocks are moved on Sundays
        ],
    )
    def test_cron(self, expression, found):
        assert notes(schedules.cron(expression).timezone("Europe/Berlin").rule()) == found

    def test_it_agrees_with_what_the_rule_does(self):
        for text in ("15 2 * * *", "*/7 * * * *", "0 1-4 * * *", "30 0-5/2 * * *"):
            rule = schedules.cron(text).timezone("America/New_York").rule()
            for effect in effects(rule, after=BEGIN, until=END):
                at = effect.change.at
                if effect.moved_to is not None:
                    assert rule.count_between(at, at) == 1
                if effect.repeated:
                    length = abs(effect.change.after - effect.change.before)
                    second = timedelta(seconds=1)
                    again = rule.count_between(at, at + length - second)
                    assert again == (effect.repeated if effect.is_doubled else 0)

    @pytest.mark.parametrize(
        "rule",
        [
            schedules.every(minutes=10, starting=BEGIN).timezone("Europe/Berlin").rule(),
            schedules.daily_at("02:30").rule(),
        ],
    )
    def test_elapsed_time_and_utc_know_no_changes(self, rule):
        assert notes(rule) == []

    def test_a_window_counts_too(self):
        rule = schedules.every_ten_minutes().between("02:00", "02:29").timezone("Europe/Berlin")

        assert notes(rule.rule())[0][0] == 3
