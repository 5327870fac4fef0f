"""Intervals stay on their grid; a single instant comes once."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickwork._domain.schedules.interval import Interval, Once, is_whole, whole_second
from tickwork.errors import InvalidSchedule, NaiveDatetime

T0 = datetime(2026, 1, 1, 0, 7, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
SECOND = timedelta(seconds=1)

quickly = settings(max_examples=150, derandomize=True, database=None, deadline=None)
instants = st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))
lengths = st.integers(1, 10_000_000).map(lambda seconds: timedelta(seconds=seconds))


def a_quarter(**facts):
    return Interval(**{"length": timedelta(minutes=15), "anchor": T0, **facts})


class TestGrid:
    """Every instant is ``anchor + k * length``: no tick, restart or late run shifts them."""

    @quickly
    @given(instants, lengths, st.integers(0, 10_000))
    def test_the_kth_instant_is_k_lengths_from_the_anchor(self, anchor, length, k):
        rule = Interval(length=length, anchor=anchor.replace(microsecond=0))
        kth = rule.anchor + k * length

        assert rule.next_after(kth - SECOND) == kth
        assert rule.next_after(kth) == kth + length
        assert rule.prev_before(kth + SECOND) == kth

    @quickly
    @given(instants, lengths, instants)
    def test_next_is_on_the_grid_and_strictly_later(self, anchor, length, after):
        rule = Interval(length=length, anchor=anchor)

        found = rule.next_after(after)

        assert found is not None
        assert found > after
        assert (found - rule.anchor) % length == timedelta(0)
        assert found == rule.anchor or found - after <= length

    @quickly
    @given(instants, lengths, instants)
    def test_prev_is_on_the_grid_and_strictly_earlier(self, anchor, length, before):
        rule = Interval(length=length, anchor=anchor)

        found = rule.prev_before(before)

        if found is None:
            assert before <= rule.anchor
        else:
            assert rule.anchor <= found < before
            assert before - found <= length
            assert (found - rule.anchor) % length == timedelta(0)

    @quickly
    @given(instants, instants, st.integers(0, 200), st.integers(3600, 100_000))
    def test_count_is_how_many_a_walk_meets(self, anchor, first, hours, seconds):
        rule = Interval(length=timedelta(seconds=seconds), anchor=anchor)
        last = first + timedelta(hours=hours)

        met = [at for at in rule.preview(202, after=first - SECOND) if first <= at <= last]

        assert rule.count_between(first, last) == len(met)

    def test_it_does_not_drift_in_ten_years(self):
        rule = Interval(length=timedelta(seconds=7), anchor=T0)

        later = rule.next_after(T0 + timedelta(days=3653))

        assert later is not None
        assert (later - T0) % timedelta(seconds=7) == timedelta(0)

    def test_before_the_anchor_there_is_nothing(self):
        rule = a_quarter()

        assert rule.next_after(T0 - timedelta(days=400)) == T0
        assert rule.prev_before(T0) is None
        assert rule.prev_before(T0 - timedelta(days=400)) is None
        assert rule.count_between(T0 - timedelta(days=400), T0 - SECOND) == 0
        assert rule.count_between(T0 - timedelta(days=400), T0) == 1

    def test_a_window_that_ends_before_it_begins_holds_nothing(self):
        assert a_quarter().count_between(T0 + timedelta(hours=1), T0) == 0

    def test_fractions_of_a_second_count_as_time(self):
        rule = Interval(length=SECOND, anchor=T0)
        half = T0 + timedelta(seconds=0.5)

        assert rule.next_after(half) == T0 + SECOND
        assert rule.prev_before(half) == T0
        assert rule.count_between(half, half + SECOND) == 1


class TestElapsedTime:
    """A clock that is moved does not move the grid: an hour is 3600 seconds, always."""

    @pytest.mark.parametrize("change", [datetime(2026, 3, 29, 1), datetime(2026, 10, 25, 1)])
    def test_clock_changes_do_not_matter(self, change):
        change = change.replace(tzinfo=UTC)
        rule = Interval(
            length=timedelta(minutes=30), anchor=change - timedelta(hours=2), tz="Europe/Berlin"
        )

        for found in (
            rule.preview(8, after=change - timedelta(hours=2)),
            [rule.next_after(change + n * timedelta(minutes=30)) for n in range(8)],
        ):
            in_utc = [moment.astimezone(UTC) for moment in found if moment is not None]
            assert {b - a for a, b in pairwise(in_utc)} == {timedelta(minutes=30)}

    def test_instants_are_shown_in_the_rules_zone(self):
        rule = a_quarter(tz="Europe/Berlin")

        found = rule.next_after(T0)

        assert str(found) == "2026-01-01 01:22:00+01:00"
        assert [str(moment) for moment in rule.preview(1, after=T0)] == [str(found)]

    def test_an_anchor_is_the_same_in_any_zone(self):
        assert a_quarter(anchor=T0.astimezone(BERLIN)) == a_quarter()
        assert hash(a_quarter(anchor=T0.astimezone(BERLIN))) == hash(a_quarter())


class TestPreview:
    """A preview has the next firings, at most the given number."""

    def test_it_is_next_again_and_again(self):
        assert [f"{at:%H:%M}" for at in a_quarter().preview(3, after=T0)] == [
            "00:22",
            "00:37",
            "00:52",
        ]

    def test_of_nothing_is_nothing(self):
        assert list(a_quarter().preview(0, after=T0)) == []

    def test_it_ends_with_time(self):
        near_the_end = datetime(9998, 12, 31, 23, 30, tzinfo=UTC)

        assert len(a_quarter(anchor=near_the_end).preview(99, after=T0)) == 2
        assert a_quarter().next_after(datetime.max.replace(tzinfo=UTC)) is None
        assert a_quarter(tz="Pacific/Kiritimati").prev_before(
            datetime.max.replace(tzinfo=UTC)
        ) == datetime(9998, 12, 31, 23, 52, tzinfo=UTC)
        assert (
            a_quarter(anchor=near_the_end).count_between(T0, datetime.max.replace(tzinfo=UTC)) == 2
        )


class TestValue:
    """An interval is a value in whole seconds; an interval of zero is an error."""

    @pytest.mark.parametrize(
        "length",
        [
            timedelta(0),
            timedelta(seconds=-1),
            timedelta(days=-1, seconds=1),
            timedelta(milliseconds=999),
            timedelta(seconds=1, microseconds=1),
        ],
    )
    def test_an_invalid_length_is_an_error(self, length):
        with pytest.raises(InvalidSchedule, match="must be a positive whole number of seconds"):
            a_quarter(length=length)

    def test_a_fraction_of_the_anchor_is_rounded_up(self):
        rule = a_quarter(anchor=T0 + timedelta(microseconds=1))

        assert rule.anchor == T0 + SECOND

    def test_anchored_elsewhere_it_keeps_its_length(self):
        assert a_quarter().with_anchor(T0 + SECOND) == a_quarter(anchor=T0 + SECOND)

    def test_naive_anchors_are_errors(self):
        with pytest.raises(NaiveDatetime):
            a_quarter(anchor=datetime(2026, 1, 1))

    def test_unknown_zones_are_errors(self):
        with pytest.raises(InvalidSchedule, match="There is no time zone"):
            a_quarter(tz="Mars")

    def test_it_describes_itself(self):
        assert a_quarter().describe() == "every 15m, counted from 2026-01-01 00:07:00 UTC"


class TestOnce:
    """A single instant comes once, and is over."""

    def test_it_is_next_until_it_is_here(self):
        rule = Once(at=T0)

        assert rule.next_after(T0 - timedelta(microseconds=1)) == T0
        assert rule.next_after(T0) is None
        assert rule.next_after(T0 + SECOND) is None

    def test_it_is_the_previous_one_ever_after(self):
        rule = Once(at=T0)

        assert rule.prev_before(T0) is None
        assert rule.prev_before(T0 + timedelta(microseconds=1)) == T0
        assert rule.prev_before(T0 + timedelta(days=999)) == T0

    @pytest.mark.parametrize(
        ("first", "last", "expected"),
        [
            (T0, T0, 1),
            (T0 - SECOND, T0 + SECOND, 1),
            (T0 + timedelta(microseconds=1), T0 + SECOND, 0),
            (T0 - SECOND, T0 - timedelta(microseconds=1), 0),
            (T0 + SECOND, T0 - SECOND, 0),
        ],
    )
    def test_it_counts_one_where_the_window_holds_it(self, first, last, expected):
        assert Once(at=T0).count_between(first, last) == expected

    def test_a_preview_holds_it_if_it_is_still_to_come(self):
        assert list(Once(at=T0).preview(5, after=T0 - SECOND)) == [T0]
        assert list(Once(at=T0).preview(0, after=T0 - SECOND)) == []
        assert list(Once(at=T0).preview(5, after=T0)) == []

    def test_a_fraction_is_rounded_up_so_as_not_to_be_early(self):
        assert Once(at=T0 + timedelta(microseconds=1)).at == T0 + SECOND

    def test_it_is_shown_in_its_zone(self):
        rule = Once(at=T0, tz="Europe/Berlin")

        assert str(rule.next_after(T0 - SECOND)) == "2026-01-01 01:07:00+01:00"
        assert rule.describe() == "once, at 2026-01-01 01:07:00 (Europe/Berlin)"

    def test_naive_datetimes_are_errors(self):
        naive = datetime(2026, 1, 1)

        for ask in (
            lambda: Once(at=naive),
            lambda: Once(at=T0).next_after(naive),
            lambda: Once(at=T0).prev_before(naive),
            lambda: Once(at=T0).count_between(naive, T0),
            lambda: Once(at=T0).count_between(T0, naive),
        ):
            with pytest.raises(NaiveDatetime):
                ask()

    def test_unknown_zones_are_errors(self):
        with pytest.raises(InvalidSchedule, match="There is no time zone"):
            Once(at=T0, tz="Mars")


class TestWholeSeconds:
    """Starts are rounded up, ends down; times outside of the supported years are errors."""

    def test_a_beginning_is_rounded_up_and_an_end_down(self):
        half = T0 + timedelta(seconds=0.5)

        assert whole_second(half) == T0 + SECOND
        assert whole_second(half, is_end=True) == T0
        assert whole_second(T0) == whole_second(T0, is_end=True) == T0

    @pytest.mark.parametrize(
        "moment",
        [
            datetime(1, 12, 31, 23, 59, 58, tzinfo=UTC),
            datetime(9999, 1, 1, tzinfo=UTC),
            datetime.min.replace(tzinfo=ZoneInfo("Pacific/Kiritimati")),
            datetime.max.replace(tzinfo=ZoneInfo("America/New_York")),
        ],
    )
    def test_times_outside_of_the_supported_years_are_errors(self, moment):
        with pytest.raises(InvalidSchedule, match="is not in the years 2 to 9998"):
            whole_second(moment)

    @pytest.mark.parametrize(
        ("number", "expected"), [(5, True), (-5, True), (True, False), (5.0, False), ("5", False)]
    )
    def test_whole_numbers(self, number, expected):
        assert is_whole(number) is expected
