"""Rules that hold other rules back: ends, windows of the day, dates left out."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tickwork._domain.schedules.bounds import (
    DATES_MAX,
    FIRINGS_MAX,
    Bounded,
    Window,
    Windowed,
    parse_time,
    set_anchor,
)
from tickwork._domain.schedules.contract import walk
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.recurrence import Recurrence, Unit
from tickwork._domain.schedules.zones import Zone, floor_ts
from tickwork.errors import InvalidSchedule, NaiveDatetime

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BERLIN = ZoneInfo("Europe/Berlin")
FOLD = datetime(2026, 10, 25, 1, tzinfo=UTC)  # when clocks in Berlin go back from 03:00
HOURLY = Cron.parse("0 * * * *")
HALF_HOURLY_IN_BERLIN = Cron.parse("*/30 * * * *", tz="Europe/Berlin")

quickly = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # the other phases take minutes
)


def shown(moments):
    return [f"{moment:%m-%d %H:%M}" for moment in moments]


def in_utc(moments):
    return [moment.astimezone(UTC) for moment in moments]


def walked(rule, first, last):
    """Every instant of a window, both ends included, found one by one."""
    found = walk(rule, first - SECOND)
    return list(takewhile(lambda moment: moment.astimezone(UTC) <= last, found))


# ---------------------------------------------------------------- a beginning and an end


class TestBounds:
    """No instant is before the beginning or after the end; both ends count."""

    bounded = Bounded(rule=HOURLY, starting=T0 + timedelta(hours=2), until=T0 + timedelta(hours=5))

    def test_they_are_kept_from_every_side(self):
        assert shown(self.bounded.preview(9, after=T0)) == [
            f"01-01 0{hour}:00" for hour in (2, 3, 4, 5)
        ]
        assert self.bounded.next_after(T0 + timedelta(hours=5)) is None
        assert self.bounded.prev_before(T0 + timedelta(hours=2)) is None
        assert self.bounded.prev_before(T0 + timedelta(days=9)) == T0 + timedelta(hours=5)
        assert self.bounded.count_between(T0, T0 + timedelta(days=9)) == 4
        assert self.bounded.count_between(T0 + timedelta(hours=3), T0 + timedelta(hours=4)) == 2

    @pytest.mark.parametrize(
        ("first", "last"),
        [(0, 1), (6, 9), (5, 2), (0, -1)],
        ids=["before", "after", "empty", "past"],
    )
    def test_a_window_outside_counts_nothing(self, first, last):
        assert (
            self.bounded.count_between(T0 + timedelta(hours=first), T0 + timedelta(hours=last)) == 0
        )

    def test_an_end_before_the_beginning_leaves_nothing(self):
        never = Bounded(rule=HOURLY, starting=T0, until=T0 - timedelta(days=1))

        assert never.next_after(T0 - timedelta(days=9)) is None
        assert never.prev_before(T0 + timedelta(days=9)) is None
        assert never.count_between(T0 - timedelta(days=9), T0 + timedelta(days=9)) == 0

    def test_a_beginning_with_a_fraction_is_rounded_up_and_an_end_down(self):
        half = timedelta(seconds=0.5)
        every_second = Cron.parse("* * * * * *")

        bounded = Bounded(rule=every_second, starting=T0 + half, until=T0 + 2 * SECOND + half)

        assert list(bounded.preview(9, after=T0)) == [T0 + SECOND, T0 + 2 * SECOND]

    def test_a_fraction_of_a_second_does_not_hide_the_next_instant(self):
        bounded = Bounded(rule=Cron.parse("* * * * * *"), starting=T0)

        assert bounded.next_after(T0 + timedelta(seconds=0.5)) == T0 + SECOND
        assert bounded.prev_before(T0 + timedelta(seconds=0.5)) == T0

    def test_it_thinks_in_the_rules_zone(self):
        assert Bounded(rule=HALF_HOURLY_IN_BERLIN, until=T0).tz == "Europe/Berlin"


class TestMaxFirings:
    """The rule's instants are counted from its beginning, and there are no more than that."""

    def test_there_are_exactly_so_many(self):
        bounded = Bounded(rule=HOURLY, starting=T0, max_firings=3)

        assert shown(bounded.preview(9, after=T0 - SECOND)) == [
            "01-01 00:00",
            "01-01 01:00",
            "01-01 02:00",
        ]
        assert bounded.prev_before(T0 + timedelta(days=9)) == T0 + timedelta(hours=2)
        assert bounded.count_between(T0, T0 + timedelta(days=9)) == 3

    def test_the_earlier_of_two_ends_counts(self):
        early = Bounded(rule=HOURLY, starting=T0, until=T0 + timedelta(hours=1), max_firings=5)
        late = Bounded(rule=HOURLY, starting=T0, until=T0 + timedelta(hours=9), max_firings=2)

        assert early.count_between(T0, T0 + timedelta(days=9)) == 2
        assert late.count_between(T0, T0 + timedelta(days=9)) == 2

    def test_a_rule_with_fewer_ends_by_itself(self):
        assert Bounded(rule=Once(at=T0), starting=T0, max_firings=5).count_between(T0, T0) == 1

    def test_a_rule_that_has_ended_has_no_firings(self):
        over = Bounded(rule=Once(at=T0), starting=T0 + SECOND, max_firings=5)

        assert over.next_after(T0 - SECOND) is None
        assert over.prev_before(T0 + timedelta(days=1)) is None

    @pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8])
    def test_in_a_fold_they_are_counted_as_instants(self, count):
        bounded = Bounded(
            rule=HALF_HOURLY_IN_BERLIN, starting=FOLD - timedelta(hours=1), max_firings=count
        )

        found = list(islice(walk(bounded, FOLD - timedelta(hours=2)), 20))

        assert in_utc(found) == [
            FOLD - timedelta(hours=1) + n * timedelta(minutes=30) for n in range(count)
        ]
        assert bounded.count_between(FOLD - timedelta(days=1), FOLD + timedelta(days=1)) == count
        last = bounded.prev_before(FOLD + timedelta(days=1))
        assert last is not None
        assert last.astimezone(UTC) == found[-1].astimezone(UTC)

    def test_a_window_given_in_the_fold_is_measured_in_instants(self):
        bounded = Bounded(rule=HALF_HOURLY_IN_BERLIN, starting=T0, max_firings=FIRINGS_MAX)
        first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
        last = datetime(2026, 10, 25, 2, 0, fold=1, tzinfo=BERLIN)

        assert bounded.count_between(first, last) == 2

    @pytest.mark.parametrize("count", [0, -1, FIRINGS_MAX + 1, 2.5, True, "3"])
    def test_other_numbers_are_an_error(self, count):
        with pytest.raises(InvalidSchedule, match="must be between 1 and 100,000"):
            Bounded(rule=HOURLY, starting=T0, max_firings=count)

    def test_without_a_beginning_there_is_nothing_to_count_from(self):
        with pytest.raises(InvalidSchedule, match="needs a time to count from"):
            Bounded(rule=HOURLY, max_firings=3)

    @quickly
    @given(st.integers(1, 30), st.integers(0, 200), st.integers(0, 200))
    def test_counting_is_walking(self, count, first, hours):
        bounded = Bounded(rule=HALF_HOURLY_IN_BERLIN, starting=FOLD, max_firings=count)
        start = FOLD - timedelta(hours=2) + timedelta(minutes=7 * first)
        end = start + timedelta(minutes=7 * hours)

        assert bounded.count_between(start, end) == len(walked(bounded, start, end))


class TestBoundsValue:
    """Bounds describe themselves, reject invalid times, and can get another anchor."""

    def test_they_describe_themselves(self):
        bounded = Bounded(rule=HOURLY, starting=T0, until=T0 + timedelta(days=1), max_firings=3)

        assert bounded.describe() == (
            "every hour (UTC), from 2026-01-01 00:00:00 UTC, until 2026-01-02 00:00:00 UTC, 3 times"
        )

    def test_naive_datetimes_are_an_error(self):
        with pytest.raises(NaiveDatetime):
            Bounded(rule=HOURLY, starting=datetime(2026, 1, 1))
        with pytest.raises(NaiveDatetime):
            Bounded(rule=HOURLY, until=datetime(2026, 1, 1))

    def test_anchored_elsewhere_the_rule_within_is_too(self):
        interval = Interval(length=timedelta(hours=1), anchor=T0)
        windowed = Windowed(rule=interval, between=(Window.parse("9", "17"),))
        later = T0 + timedelta(minutes=7)

        found = set_anchor(Bounded(rule=windowed, until=T0 + timedelta(days=9)), later)

        assert found == Bounded(
            rule=Windowed(rule=interval.with_anchor(later), between=windowed.between),
            starting=later,
            until=T0 + timedelta(days=9),
        )

    def test_a_rule_that_does_not_count_stays_as_it_is(self):
        assert set_anchor(HOURLY, T0) is HOURLY


# ---------------------------------------------------------------- windows of the day


def windowed(rule=HOURLY, between=(), unless=(), dates=()):
    return Windowed(
        rule=rule,
        between=tuple(Window.parse(*pair) for pair in between),
        unless=tuple(Window.parse(*pair) for pair in unless),
        dates=frozenset(date.fromisoformat(day) for day in dates),
    )


class TestWindows:
    """Only instants whose wall time a window holds, in the rule's own zone."""

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            (
                windowed(between=[("9:00", "11:00")]),
                ["01-01 09:00", "01-01 10:00", "01-01 11:00", "01-02 09:00"],
            ),
            (
                windowed(between=[("9:00", "10:59:59")]),
                ["01-01 09:00", "01-01 10:00", "01-02 09:00"],
            ),
            (
                windowed(between=[("22:00", "1:00")]),
                ["01-01 00:00", "01-01 01:00", "01-01 22:00", "01-01 23:00", "01-02 00:00"],
            ),
            (
                windowed(between=[("9", "9"), ("12", "12")]),
                ["01-01 09:00", "01-01 12:00", "01-02 09:00"],
            ),
            (
                windowed(unless=[("1:00", "22:59:59")]),
                ["01-01 00:00", "01-01 23:00", "01-02 00:00"],
            ),
            (
                windowed(unless=[("22:00", "21:00")]),
                [],
            ),
            (
                windowed(unless=[("20:00", "3:00")]),
                ["01-01 04:00", "01-01 05:00"],
            ),
            (
                windowed(between=[("9", "12")], unless=[("10", "11")]),
                ["01-01 09:00", "01-01 12:00", "01-02 09:00"],
            ),
            (
                windowed(Cron.parse("0 0,12 * * *"), dates=["2026-01-01", "2026-01-03"]),
                ["01-02 00:00", "01-02 12:00", "01-04 00:00"],
            ),
            (
                windowed(between=[("23", "0")], dates=["2026-01-01"]),
                ["01-02 00:00", "01-02 23:00", "01-03 00:00"],
            ),
        ],
    )
    def test_first_instants(self, rule, expected):
        assert shown(rule.preview(len(expected), after=T0 - SECOND)) == expected

    def test_the_way_back_is_the_same(self):
        rule = windowed(between=[("22:00", "1:00")], dates=["2026-01-02"])
        there = rule.preview(8, after=T0)

        back = [there[-1]]
        while len(back) < 8:
            earlier = rule.prev_before(back[-1])
            assert earlier is not None
            back.append(earlier)

        assert back[::-1] == there

    def test_it_is_read_in_the_rules_zone(self):
        rule = windowed(Cron.parse("0 * * * *", tz="Asia/Tokyo"), between=[("9", "9")])

        assert rule.tz == "Asia/Tokyo"
        assert rule.next_after(T0 - SECOND) == T0

    def test_a_window_in_a_gap_has_only_times_that_exist(self):
        every_ten = Cron.parse("*/10 * * * *", tz="Europe/Berlin")
        rule = windowed(every_ten, between=[("2:00", "3:00")])
        gap = datetime(2026, 3, 29, tzinfo=UTC)

        found = walked(rule, gap, gap + timedelta(hours=12))

        assert [str(moment) for moment in found] == ["2026-03-29 03:00:00+02:00"]
        assert rule.count_between(gap, gap + timedelta(hours=12)) == 1

    def test_a_window_in_a_fold_holds_both_passes(self):
        rule = windowed(HALF_HOURLY_IN_BERLIN, between=[("2:00", "2:59")])

        found = walked(rule, FOLD - timedelta(hours=12), FOLD + timedelta(hours=12))

        assert in_utc(found) == [FOLD + n * timedelta(minutes=30) for n in (-2, -1, 0, 1)]
        assert rule.count_between(FOLD - timedelta(hours=12), FOLD + timedelta(hours=12)) == 4
        assert rule.prev_before(FOLD + timedelta(hours=12)) == found[-1]

    def test_a_date_that_clocks_left_out_holds_nothing(self):
        rule = windowed(Cron.parse("0 */6 * * *", tz="Pacific/Apia"), dates=["2011-12-31"])
        noon = datetime(2011, 12, 29, 12, tzinfo=ZoneInfo("Pacific/Apia"))

        assert shown(rule.preview(2, after=noon)) == ["12-29 18:00", "01-01 00:00"]


class TestNever:
    """A rule that never meets its window is given up on, and soon."""

    @pytest.mark.parametrize(
        "rule",
        [
            windowed(Cron.parse("0 12 * * *"), between=[("9", "10")]),
            windowed(Cron.parse("0 12 * * *", tz="Europe/Berlin"), unless=[("0:00", "23:59:59")]),
            windowed(Cron.parse("* * * * * *"), between=[("9", "10")], unless=[("8", "11")]),
            windowed(Interval(length=timedelta(days=1), anchor=T0), between=[("9", "10")]),
            windowed(
                Recurrence(unit=Unit.MONTH, anchor=T0, tz="Europe/Berlin"), between=[("9", "10")]
            ),
        ],
    )
    def test_there_is_no_next_and_no_previous(self, rule):
        counted_rule = CountedRule(rule.rule)
        counted = Windowed(
            rule=counted_rule, between=rule.between, unless=rule.unless, dates=rule.dates
        )

        assert counted.next_after(T0) is None
        assert counted.prev_before(T0 + timedelta(days=3650)) is None
        assert counted_rule.times <= 2 * 1502
        assert rule.count_between(T0, T0 + timedelta(days=30)) == 0

    def test_as_many_dates_as_are_allowed_are_passed(self):
        rule = windowed(
            Cron.parse("0 * * * *", tz="Europe/Berlin"),
            between=[("9", "10"), ("15", "16")],
            unless=[("9:30", "9:40")],
        )
        dates = frozenset(date(2026, 1, 1) + timedelta(days=n) for n in range(DATES_MAX))
        full = Windowed(rule=rule.rule, between=rule.between, unless=rule.unless, dates=dates)
        after = max(dates) + timedelta(days=1)

        found = full.next_after(T0)

        assert found is not None
        assert (found.date(), found.hour) == (after, 9)
        last = full.prev_before(found)
        assert last is not None
        assert (last.date(), last.hour) == (date(2025, 12, 31), 16)

    def test_too_many_dates_are_an_error(self):
        dates = frozenset(date(2026, 1, 1) + timedelta(days=n) for n in range(DATES_MAX + 1))

        with pytest.raises(InvalidSchedule, match="at most 10,000 dates, got 10,001"):
            Windowed(rule=HOURLY, dates=dates)

    def test_a_window_over_all_of_time_is_left_to_the_years_that_exist(self):
        once = windowed(Once(at=datetime(3, 1, 1, 9, tzinfo=UTC)), between=[("9", "10")])

        first = datetime.min.replace(tzinfo=UTC)
        assert once.count_between(first, datetime(3, 2, 1, tzinfo=UTC)) == 1


class CountedRule:
    """A rule that counts its calls."""

    def __init__(self, rule):
        self.rule = rule
        self.tz = rule.tz
        self.times = 0

    def next_after(self, after):
        self.times += 1
        return self.rule.next_after(after)

    def prev_before(self, before):
        self.times += 1
        return self.rule.prev_before(before)

    def __getattr__(self, name):
        return getattr(self.rule, name)


# ---------------------------------------------------------------- windows, by definition

clock_times = st.builds(time, st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))
some_windows = st.lists(st.tuples(clock_times, clock_times), max_size=2)
ZONED = {
    "Europe/Berlin": datetime(2026, 10, 24, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2026, 10, 2, 12, tzinfo=UTC),
    "America/Sao_Paulo": datetime(2018, 11, 3, tzinfo=UTC),
    "Pacific/Apia": datetime(2011, 12, 29, tzinfo=UTC),
    "UTC": T0,
}


@st.composite
def windows_near_changes(draw):
    zone = draw(st.sampled_from(sorted(ZONED)))
    days = [(ZONED[zone] + timedelta(days=n)).date().isoformat() for n in range(4)]
    rule = windowed(
        Cron.parse(draw(st.sampled_from(["*/15 * * * *", "30 * * * *", "0 */5 * * *"])), tz=zone),
        between=draw(some_windows),
        unless=draw(st.lists(st.tuples(clock_times, clock_times), max_size=1)),
        dates=draw(st.sets(st.sampled_from(days), max_size=2)),
    )
    first = ZONED[zone] + timedelta(minutes=draw(st.integers(0, 1000)))
    return rule, first, first + timedelta(minutes=draw(st.integers(0, 3000)))


def is_held(window, clock):
    if window.first <= window.last:
        return window.first <= clock <= window.last
    return clock >= window.first or clock <= window.last


class TestByDefinition:
    """A windowed rule is its rule without the instants that the windows do not hold."""

    @quickly
    @given(windows_near_changes())
    def test_only_firings_inside_the_windows_are_left(self, case):
        rule, first, last = case

        expected = [
            moment
            for moment in walked(rule.rule, first, last)
            if (not rule.between or any(is_held(each, moment.time()) for each in rule.between))
            and not any(is_held(each, moment.time()) for each in rule.unless)
            and moment.date() not in rule.dates
        ]

        assert in_utc(walked(rule, first, last)) == in_utc(expected)
        assert rule.count_between(first, last) == len(expected)
        if expected:
            assert rule.prev_before(last + SECOND) == expected[-1]


# ---------------------------------------------------------------- values


class TestWindowsValue:
    """Windows are values: equal in any order, and described in English."""

    def test_order_and_repetition_do_not_matter(self):
        one = windowed(between=[("9", "10"), ("12", "13")], unless=[("1", "2"), ("1", "2")])
        other = windowed(between=[("12", "13"), ("9", "10")], unless=[("1", "2")])

        assert one == other
        assert hash(one) == hash(other)
        assert one.to_text() == other.to_text()

    def test_they_describe_themselves(self):
        rule = windowed(
            between=[("9", "10"), ("12", "13")], unless=[("1", "2")], dates=["2026-01-01"]
        )

        assert rule.describe() == (
            "every hour (UTC), only between 09:00:00-10:00:00 or 12:00:00-13:00:00, "
            "not between 01:00:00-02:00:00, not on 1 date"
        )
        assert windowed(dates=["2026-01-01", "2026-01-02"]).describe().endswith("not on 2 dates")

    @pytest.mark.parametrize(
        ("pair", "inside", "outside"),
        [
            (("9", "17"), ["9:00:00", "12:00", "17:00:00"], ["8:59:59", "17:00:01"]),
            (("22", "2"), ["22:00:00", "0:00", "2:00:00"], ["21:59:59", "2:00:01", "12:00"]),
            (("9", "9"), ["9:00:00"], ["8:59:59", "9:00:01"]),
            (("0:00", "23:59:59"), ["0:00", "23:59:59"], []),
        ],
    )
    def test_both_ends_belong_to_a_window(self, pair, inside, outside):
        window = Window.parse(*pair)

        for expected, texts in ((True, inside), (False, outside)):
            for text in texts:
                at = parse_time(text)
                assert window.holds(at.hour * 3600 + at.minute * 60 + at.second) is expected, text

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("9", time(9)),
            ("09", time(9)),
            ("9:05", time(9, 5)),
            ("09:05:07", time(9, 5, 7)),
            (" 23:59:59 ", time(23, 59, 59)),
            (time(1, 2, 3), time(1, 2, 3)),
        ],
    )
    def test_times_of_day(self, text, expected):
        assert parse_time(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "24",
            "9:60",
            "9:5",
            "9:00:60",
            "09:00:00.5",
            "9am",
            "-1",
            "٩",
            "9:00:00:00",
            9,
            None,
            b"9",
        ],
    )
    def test_an_invalid_time_of_day_is_an_error(self, text):
        with pytest.raises(InvalidSchedule, match="is not a time of day"):
            parse_time(text)

    def test_a_range_ends_at_a_clock_change(self):
        rule = windowed(HALF_HOURLY_IN_BERLIN, between=[("1:30", "2:30")])
        zone, before = Zone.named("Europe/Berlin"), floor_ts(FOLD) - 1

        start, end = rule._range_around(zone, before)

        assert end == floor_ts(FOLD)
        assert start == floor_ts(datetime(2026, 10, 25, 2, 30, 1, tzinfo=BERLIN))
