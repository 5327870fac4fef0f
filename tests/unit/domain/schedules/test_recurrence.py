"""Recurrences count whole days, weeks, months and years from their anchor."""

import calendar
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork.errors import InvalidSchedule, NaiveDatetime

SECOND = timedelta(seconds=1)
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia"]

quickly = settings(
    max_examples=80,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # the other phases take minutes
)


def at(text, zone="UTC"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def every(interval, unit, anchor, tz="UTC", **facts):
    return Recurrence(unit=Unit(unit), interval=interval, anchor=at(anchor, tz), tz=tz, **facts)


def first_of(rule, count=4, after=None):
    after = rule.anchor - SECOND if after is None else after
    return [f"{moment:%Y-%m-%d %H:%M}" for moment in rule.preview(count, after=after)]


# ---------------------------------------------------------------- by hand


class TestByHand:
    """What a person with a calendar would find."""

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            pytest.param(
                every(1, "day", "2026-02-27T09:00"),
                ["2026-02-27 09:00", "2026-02-28 09:00", "2026-03-01 09:00"],
                id="every day",
            ),
            pytest.param(
                every(3, "day", "2028-02-27T09:00"),
                ["2028-02-27 09:00", "2028-03-01 09:00", "2028-03-04 09:00"],
                id="every third day, over a leap day",
            ),
            pytest.param(
                every(2, "week", "2026-01-06T09:00"),
                ["2026-01-06 09:00", "2026-01-20 09:00", "2026-02-03 09:00"],
                id="every second week, on the anchor's weekday",
            ),
            pytest.param(
                every(2, "week", "2026-01-06T09:00", weekdays=(5, 1, 7)),
                ["2026-01-09 09:00", "2026-01-11 09:00", "2026-01-19 09:00", "2026-01-23 09:00"],
                id="on several weekdays; a week begins on Monday, and its Monday was over",
            ),
            pytest.param(
                every(1, "month", "2026-01-31T09:00"),
                ["2026-01-31 09:00", "2026-02-28 09:00", "2026-03-31 09:00", "2026-04-30 09:00"],
                id="the 31st is the last day of a short month, and the 31st again after it",
            ),
            pytest.param(
                every(1, "month", "2026-01-31T09:00", missing=Missing.SKIP),
                ["2026-01-31 09:00", "2026-03-31 09:00", "2026-05-31 09:00", "2026-07-31 09:00"],
                id="the 31st, or nothing",
            ),
            pytest.param(
                every(1, "month", "2027-12-30T09:00"),
                ["2027-12-30 09:00", "2028-01-30 09:00", "2028-02-29 09:00", "2028-03-30 09:00"],
                id="the 30th in a leap year's February",
            ),
            pytest.param(
                every(5, "month", "2026-11-30T09:00"),
                ["2026-11-30 09:00", "2027-04-30 09:00", "2027-09-30 09:00", "2028-02-29 09:00"],
                id="every fifth month, over new year",
            ),
            pytest.param(
                every(12, "month", "2028-02-29T09:00", missing=Missing.SKIP),
                ["2028-02-29 09:00", "2032-02-29 09:00"],
                id="twelve months are a year",
            ),
            pytest.param(
                every(1, "year", "2028-02-29T09:00"),
                ["2028-02-29 09:00", "2029-02-28 09:00", "2030-02-28 09:00", "2031-02-28 09:00"],
                id="a leap day is the 28th in other years",
            ),
            pytest.param(
                every(1, "year", "2096-02-29T09:00", missing=Missing.SKIP),
                ["2096-02-29 09:00", "2104-02-29 09:00"],
                id="a leap day, or nothing: eight years when a century has none",
            ),
            pytest.param(
                every(3, "year", "2026-06-01T09:00"),
                ["2026-06-01 09:00", "2029-06-01 09:00", "2032-06-01 09:00"],
                id="every third year",
            ),
        ],
    )
    def test_first_instants(self, rule, expected):
        assert first_of(rule, len(expected)) == expected

    def test_a_long_step_leads_through_other_months(self):
        rule = every(400, "month", "2000-02-29T00:00", missing=Missing.SKIP)

        # From February to June, October and back, which takes a century.
        assert first_of(rule, 3) == ["2000-02-29 00:00", "2033-06-29 00:00", "2066-10-29 00:00"]

    def test_a_step_longer_than_time_is_taken_once(self):
        rule = every(9000, "year", "2026-01-01T00:00")

        assert first_of(rule) == ["2026-01-01 00:00"]
        assert rule.prev_before(at("2030-01-01")) == at("2026-01-01")


# ---------------------------------------------------------------- clock changes


class TestClockChanges:
    """It is a job at a fixed time of day: once a day, at an instant that exists."""

    def test_in_a_gap_it_is_the_first_instant_after_it(self):
        rule = every(1, "day", "2026-03-27T02:30", "Europe/Berlin")

        assert [str(moment) for moment in rule.preview(4, after=rule.anchor - SECOND)] == [
            "2026-03-27 02:30:00+01:00",
            "2026-03-28 02:30:00+01:00",
            "2026-03-29 03:00:00+02:00",
            "2026-03-30 02:30:00+02:00",
        ]

    def test_in_a_fold_it_is_the_first_pass_only(self):
        rule = every(1, "day", "2026-10-24T02:30", "Europe/Berlin")

        assert [str(moment) for moment in rule.preview(3, after=rule.anchor - SECOND)] == [
            "2026-10-24 02:30:00+02:00",
            "2026-10-25 02:30:00+02:00",
            "2026-10-26 02:30:00+01:00",
        ]
        fold = datetime(2026, 10, 25, tzinfo=UTC)
        assert rule.count_between(fold, fold + timedelta(hours=12)) == 1

    def test_half_an_hour_is_a_gap_too(self):
        rule = every(1, "day", "2026-10-03T02:15", "Australia/Lord_Howe")

        assert first_of(rule, 3) == ["2026-10-03 02:15", "2026-10-04 02:30", "2026-10-05 02:15"]

    def test_a_day_that_was_left_out_is_made_up_for_at_midnight(self):
        rule = every(1, "day", "2011-12-29T12:00", "Pacific/Apia")

        assert first_of(rule, 4) == [
            "2011-12-29 12:00",
            "2011-12-31 00:00",
            "2011-12-31 12:00",
            "2012-01-01 12:00",
        ]

    def test_two_firings_at_the_same_moment_count_as_one(self):
        rule = every(1, "day", "2011-12-29T00:00", "Pacific/Apia")

        assert first_of(rule, 3) == ["2011-12-29 00:00", "2011-12-31 00:00", "2012-01-01 00:00"]
        assert rule.count_between(rule.anchor, at("2012-01-01", "Pacific/Apia")) == 3
        assert rule.prev_before(at("2011-12-31", "Pacific/Apia")) == at(
            "2011-12-29", "Pacific/Apia"
        )

    def test_the_anchors_own_time_of_day_counts_in_the_rules_zone(self):
        rule = Recurrence(
            unit=Unit.DAY, anchor=datetime(2026, 1, 1, 8, tzinfo=UTC), tz="Europe/Berlin"
        )

        assert first_of(rule, 1, at("2026-07-01", "UTC")) == ["2026-07-01 09:00"]

    def test_an_anchor_in_a_second_pass_has_had_its_day(self):
        second_pass = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
        rule = Recurrence(unit=Unit.DAY, anchor=second_pass, tz="Europe/Berlin")

        assert first_of(rule, 1) == ["2026-10-26 02:30"]

    @pytest.mark.parametrize("first", [0, 1])
    @pytest.mark.parametrize("last", [0, 1])
    def test_a_window_within_a_fold_is_measured_in_instants(self, first, last):
        zone = ZoneInfo("Europe/Berlin")
        rule = every(1, "day", "2026-10-24T02:30", "Europe/Berlin")
        window = (
            datetime(2026, 10, 25, 2, 20, fold=first, tzinfo=zone),
            datetime(2026, 10, 25, 2, 10, fold=last, tzinfo=zone),
        )

        # 02:30 comes between 02:20 of the first pass and 02:10 of the second.
        assert rule.count_between(*window) == (1 if (first, last) == (0, 1) else 0)


# ---------------------------------------------------------------- never drifts


def kth_day(unit, interval, start, k):
    """Where the kth place is, found by counting, not by arithmetic on months."""
    if unit is Unit.DAY:
        return start + timedelta(days=k * interval)
    if unit is Unit.WEEK:
        return start + timedelta(weeks=k * interval)
    year, month = start.year, start.month
    for _ in range(k * interval * (12 if unit is Unit.YEAR else 1)):
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    last = calendar.monthrange(year, month)[1]
    return date(year, month, min(start.day, last))


anchors = st.datetimes(datetime(2005, 1, 1), datetime(2020, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)
recurrences = st.builds(
    lambda unit, interval, anchor, zone, missing, weekdays: Recurrence(
        unit=unit,
        interval=interval,
        anchor=anchor.replace(tzinfo=ZoneInfo(zone)),
        tz=zone,
        missing=missing,
        weekdays=tuple(weekdays) if unit is Unit.WEEK else (),
    ),
    st.sampled_from(Unit),
    st.integers(1, 14),
    anchors,
    st.sampled_from(ZONES),
    st.sampled_from(Missing),
    st.sets(st.integers(0, 7), max_size=3),
)


class TestNoDrift:
    """Each firing is computed from the anchor, never from the one before."""

    @quickly
    @given(st.sampled_from(Unit), st.integers(1, 14), anchors, st.integers(0, 60))
    def test_the_kth_firing_is_k_steps_from_the_anchor(self, unit, interval, anchor, k):
        anchor = anchor.replace(tzinfo=UTC)
        rule = Recurrence(unit=unit, interval=interval, anchor=anchor)

        kth = datetime.combine(kth_day(unit, interval, anchor.date(), k), anchor.time(), UTC)

        assert rule.next_after(kth - SECOND) == kth
        assert rule.prev_before(kth + SECOND) == kth
        assert rule.count_between(anchor, kth) == k + 1

    @quickly
    @given(st.integers(1, 14), anchors, st.integers(0, 400), st.sampled_from(ZONES))
    def test_in_any_zone_the_time_of_day_is_the_anchors_unless_clocks_changed(
        self, interval, anchor, k, name
    ):
        zone = ZoneInfo(name)
        rule = Recurrence(
            unit=Unit.DAY, interval=interval, anchor=anchor.replace(tzinfo=zone), tz=name
        )
        local = rule.anchor.astimezone(zone)  # an anchor in a gap has moved
        wanted = datetime.combine(local.date() + timedelta(days=k * interval), local.time(), zone)
        if wanted.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wanted.replace(
            tzinfo=None
        ):
            found = rule.next_after(wanted.astimezone(UTC) - SECOND)

            if wanted.astimezone(UTC) >= rule.anchor:
                assert found is not None
                assert found.astimezone(UTC) == wanted.astimezone(UTC)


class TestEachOther:
    """next, prev, preview and count tell one story."""

    @quickly
    @given(recurrences, st.integers(0, 4000))
    def test_they_agree(self, rule, days):
        after = rule.anchor + timedelta(days=days, hours=days % 24)

        walked = list(rule.preview(6, after=after))

        for earlier, later in pairwise(walked):
            assert rule.next_after(earlier) == later
            assert rule.prev_before(later) == earlier
        if walked:
            assert rule.count_between(walked[0], walked[-1]) == len(walked)
            first_known = rule.prev_before(walked[0])
            assert first_known is None or first_known.astimezone(UTC) <= after

    @quickly
    @given(recurrences)
    def test_nothing_is_before_the_anchor(self, rule):
        first = rule.next_after(rule.anchor - timedelta(days=5000))

        assert first is not None
        assert first.astimezone(UTC) >= rule.anchor
        assert rule.prev_before(first) is None
        assert rule.count_between(rule.anchor - timedelta(days=5000), first) == 1
        assert rule.prev_before(rule.anchor) is None

    def test_fractions_of_a_second_count_as_time(self):
        rule = every(1, "day", "2026-01-01T09:00")
        half = rule.anchor + timedelta(seconds=0.5)

        assert rule.prev_before(half) == rule.anchor
        assert rule.count_between(half, half + timedelta(days=1)) == 1
        assert rule.count_between(rule.anchor, half) == 1

    @pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
    @pytest.mark.parametrize("unit", Unit)
    def test_they_end_with_time(self, zone, unit):
        rule = Recurrence(unit=unit, anchor=at("2026-01-31T23:30", zone), tz=zone)
        end = datetime.max.replace(tzinfo=UTC)

        last = rule.prev_before(end)

        assert last is not None
        assert last.astimezone(UTC) >= datetime(9998, 1, 1, tzinfo=UTC)
        assert rule.next_after(last) is None
        assert rule.next_after(end) is None
        assert rule.count_between(last, end) == 1
        assert rule.prev_before(datetime.min.replace(tzinfo=UTC)) is None


class TestValue:
    """A recurrence is a value; invalid options are errors."""

    @pytest.mark.parametrize("interval", [0, -1, 10_001, 1.5, True, "2", None])
    def test_invalid_intervals_are_errors(self, interval):
        with pytest.raises(InvalidSchedule, match="must be between 1 and 10,000"):
            every(interval, "day", "2026-01-01")

    @pytest.mark.parametrize("weekdays", [(8,), (-1,), (1.5,), ("mon",), (True,)])
    def test_invalid_weekdays_are_errors(self, weekdays):
        with pytest.raises(InvalidSchedule, match="must be between 0 and 7"):
            every(1, "week", "2026-01-01", weekdays=weekdays)

    @pytest.mark.parametrize("unit", ["day", "month", "year"])
    def test_weekdays_belong_to_weeks(self, unit):
        with pytest.raises(InvalidSchedule, match="weekdays is for weekly recurrences"):
            every(1, unit, "2026-01-01", weekdays=(1,))

    def test_weekdays_are_a_set_in_which_7_is_sunday(self):
        assert every(1, "week", "2026-01-01", weekdays=(7, 3, 3)) == every(
            1, "week", "2026-01-01", weekdays=(0, 3)
        )

    def test_naive_anchors_are_errors(self):
        with pytest.raises(NaiveDatetime):
            Recurrence(unit=Unit.DAY, anchor=datetime(2026, 1, 1))

    def test_unknown_zones_are_errors(self):
        with pytest.raises(InvalidSchedule, match="There is no time zone"):
            Recurrence(unit=Unit.DAY, anchor=at("2026-01-01"), tz="Mars")

    def test_anchored_elsewhere_it_keeps_the_rest(self):
        rule = every(2, "week", "2026-01-01", weekdays=(1,))

        assert rule.with_anchor(at("2026-02-01")) == every(2, "week", "2026-02-01", weekdays=(1,))

    @pytest.mark.parametrize(
        ("rule", "words"),
        [
            (
                every(1, "day", "2026-01-01T09:00", "Europe/Berlin"),
                "every day at 09:00:00, counted from 2026-01-01 (Europe/Berlin)",
            ),
            (
                every(2, "week", "2026-01-01", weekdays=(5, 1)),
                "every 2 weeks on Monday, Friday at 00:00:00, counted from 2026-01-01 (UTC)",
            ),
        ],
    )
    def test_it_describes_itself(self, rule, words):
        assert rule.describe() == words

    def test_a_time_of_day_with_seconds_is_kept(self):
        rule = every(1, "day", "2026-01-01T23:59:59")

        assert [moment.time() for moment in rule.preview(2, after=rule.anchor)] == [
            time(23, 59, 59)
        ] * 2
