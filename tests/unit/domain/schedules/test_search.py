"""From wall times to instants: the written DST rule, in zones that make it hard."""

from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from oracle import brute_force
from tickwork._domain.schedules import search
from tickwork._domain.schedules.fields import (
    EVERY_HOUR,
    EVERY_MINUTE,
    EVERY_MONTH,
    EVERY_YEAR,
    NO_MARKS,
    Fields,
    FieldValues,
)
from tickwork._domain.schedules.zones import DAY, FIRST_TS, LAST_TS, Zone, floor_ts

ZONES = [
    "Africa/Casablanca",  # changes around Ramadan
    "America/Sao_Paulo",  # at midnight
    "America/St_Johns",  # at 00:01
    "Asia/Kathmandu",  # a quarter of an hour, once
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Pacific/Apia",  # a whole day, once
    "UTC",
]
FIRST, LAST = (floor_ts(datetime(year, 1, 1, tzinfo=UTC)) for year in (1980, 2030))

quickly = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # the other phases take minutes
)


# ---------------------------------------------------------------- the second opinion


@cache
def changes_of(zone):
    return brute_force.offset_changes(ZoneInfo(zone), FIRST, LAST) if zone != "UTC" else []


def offset_at(zone, ts):
    return seconds(brute_force.offset_at(ts, ZoneInfo(zone)))


def firings(fields, zone, first, last):
    """Every firing, both ends included, by the rule, in steps of half a minute."""
    near = [change for change in changes_of(zone) if first - 2 * DAY < change.at < last + 2 * DAY]
    offsets = {offset_at(zone, first - DAY), *(seconds(change.after) for change in near)}
    found = set()
    for wall in range((first - DAY) // 30 * 30, last + DAY, 30):
        if fields.matches(wall):
            # When clocks show it: once, twice or never.
            shown = {
                wall - offset for offset in offsets if offset_at(zone, wall - offset) == offset
            }
            if fields.is_fixed:
                # When they first show it, or else when they first show anything later.
                gaps = [change.at for change in near if skips(change, wall)]
                found.add(min(shown or gaps))
            else:
                found |= shown
    return sorted(ts for ts in found if first <= ts <= last)


def skips(change, wall):
    return change.at + seconds(change.before) <= wall < change.at + seconds(change.after)


def seconds(length):
    return round(length.total_seconds())


# ---------------------------------------------------------------- what is drawn


def masks(low, high):
    return st.one_of(
        st.just((2 << high) - (1 << low)),
        st.sets(st.integers(low, high), min_size=1, max_size=4).map(
            lambda found: sum(1 << value for value in found)
        ),
    )


some_fields = st.builds(
    FieldValues,
    seconds=st.sampled_from([1, 1, 1 << 30, 1 | 1 << 30]),
    minutes=st.one_of(masks(0, 59), st.sampled_from([1, 1 << 30, 1 << 15 | 1 << 45])),
    hours=st.one_of(masks(0, 23), st.sampled_from([1, 1 << 1, 1 << 2, 1 << 3])),
    days=st.one_of(st.just((1 << 32) - 2), masks(1, 31)),
    months=st.just(EVERY_MONTH),
    weekdays=st.one_of(st.just(127), masks(0, 6)),
    years=st.just(EVERY_YEAR),
    marks=st.just(NO_MARKS),
    is_either=st.booleans(),
    is_fixed=st.booleans(),
).map(Fields)


@st.composite
def windows(draw):
    """A zone, and a window of hours that is likely to be near a change."""
    zone = draw(st.sampled_from(ZONES))
    instants = [change.at for change in changes_of(zone)]
    near = draw(st.sampled_from(instants) if instants else st.integers(FIRST, LAST))
    first = near + draw(st.one_of(st.integers(-3, 3), st.integers(-DAY, DAY)))
    return zone, first, first + draw(st.one_of(st.just(0), st.integers(0, DAY // 2)))


class TestTheRule:
    """Firings follow the documented rule, also near a clock change."""

    @quickly
    @given(some_fields, windows())
    def test_instants_are_the_firings(self, fields, window):
        zone, first, last = window

        found = list(search.instants(fields, Zone.named(zone), first, last))

        assert found == firings(fields, zone, first, last)

    @pytest.mark.parametrize(
        ("zone", "is_fixed", "when", "expected"),
        [
            ("Europe/Berlin", True, "2026-03-29 02:30", ["01:00"]),
            ("Europe/Berlin", False, "2026-03-29 02:30", []),
            ("Europe/Berlin", True, "2026-10-25 02:30", ["00:30"]),
            ("Europe/Berlin", False, "2026-10-25 02:30", ["00:30", "01:30"]),
            ("Europe/Berlin", True, "2026-10-25 03:00", ["02:00"]),
            ("Australia/Lord_Howe", True, "2026-10-03 02:15", ["15:30"]),
            ("Australia/Lord_Howe", True, "2026-04-04 01:45", ["14:45"]),
            ("Australia/Lord_Howe", False, "2026-04-04 01:45", ["14:45", "15:15"]),
            ("America/Sao_Paulo", True, "2018-11-04 00:00", ["03:00"]),
            ("Pacific/Apia", True, "2011-12-30 09:00", ["10:00", "19:00"]),
            ("Pacific/Apia", False, "2011-12-30 09:00", ["19:00"]),
        ],
    )
    def test_worked_out_by_hand(self, zone, is_fixed, when, expected):
        day = datetime.fromisoformat(f"{when}Z")
        fields = Fields(FieldValues(1, 1 << day.minute, 1 << day.hour, is_fixed=is_fixed))
        midnight = floor_ts(day.replace(hour=0, minute=0))

        for found in every_way(fields, Zone.named(zone), midnight, midnight + DAY - 1):
            assert [f"{datetime.fromtimestamp(ts, UTC):%H:%M}" for ts in found] == expected

    @pytest.mark.parametrize("years", [EVERY_YEAR, 1 << 2026], ids=["each year", "never again"])
    def test_the_second_pass_of_a_fold_is_not_jumped_over(self, years):
        # After the first 02:30 the next one, by the calendar, is a year away.
        fields = Fields(FieldValues(1, 1 << 30, 1 << 2, days=1 << 25, months=1 << 10, years=years))
        fold = floor_ts(datetime(2026, 10, 25, 1, tzinfo=UTC))

        for found in every_way(fields, Zone.named("Europe/Berlin"), fold - DAY, fold + DAY):
            assert found == [fold - 1800, fold + 1800]

    def test_a_fixed_job_that_meets_a_gap_twice_runs_once_after_it(self):
        two_and_three = Fields(FieldValues(1, 1, 1 << 2 | 1 << 3, is_fixed=True))
        first, last = (floor_ts(datetime(2026, 3, 29, hour, tzinfo=UTC)) for hour in (0, 12))

        found = list(search.instants(two_and_three, Zone.named("Europe/Berlin"), first, last))

        assert found == [floor_ts(datetime(2026, 3, 29, 1, tzinfo=UTC))]
        assert search.count(two_and_three, Zone.named("Europe/Berlin"), first, last) == 1


def every_way(fields, zone, first, last):
    """The firings of a window in order, as each kind of search finds them."""
    yield list(search.instants(fields, zone, first, last))

    forward = []
    ts = search.next_ts(fields, zone, first - 1)
    while ts is not None and ts <= last:
        forward.append(ts)
        ts = search.next_ts(fields, zone, ts)
    yield forward

    backward = []
    ts = search.prev_ts(fields, zone, last + 1)
    while ts is not None and ts >= first:
        backward.append(ts)
        ts = search.prev_ts(fields, zone, ts)
    yield backward[::-1]


class TestEachOther:
    """next_ts, prev_ts, instants, count and matches_ts tell one story."""

    @quickly
    @given(some_fields, windows())
    def test_walking_forward_and_back_gives_the_instants(self, fields, window):
        name, first, last = window
        assume(fields.count(first, last) < 100)

        found, forward, backward = every_way(fields, Zone.named(name), first, last)

        assert found == forward == backward

    @quickly
    @given(some_fields, windows(), st.integers(0, 400))
    def test_count_is_how_many_there_are(self, fields, window, days):
        name, first, last = window
        zone = Zone.named(name)
        assume(fields.values.minutes != EVERY_MINUTE)
        last += days * DAY

        assert search.count(fields, zone, first, last) == len(
            list(search.instants(fields, zone, first, last))
        )

    @quickly
    @given(some_fields, windows())
    def test_matches_is_true_at_the_instants_and_nowhere_else(self, fields, window):
        name, first, last = window
        zone = Zone.named(name)
        found = set(search.instants(fields, zone, first, last))
        near = {first, last, *(change.at for change in changes_of(zone.name))}
        moments = {ts + n for ts in near | set(list(found)[:50]) for n in (-30, -1, 0, 1, 30)}

        for ts in moments:
            if first <= ts <= last:
                assert search.matches_ts(fields, zone, ts) is (ts in found), ts

    def test_a_window_that_ends_before_it_begins_holds_nothing(self):
        fields, zone = Fields(FieldValues()), Zone.named("Europe/Berlin")

        assert list(search.instants(fields, zone, 100, 99)) == []
        assert search.count(fields, zone, 100, 99) == 0


class CountedZone(Zone):
    """A zone that counts the calls of span_at()."""

    __slots__ = ("calls",)

    def __init__(self, name):
        super().__init__(name, ZoneInfo(name))
        self.calls = 0

    def span_at(self, ts):
        self.calls += 1
        return super().span_at(ts)


class TestFarJumps:
    """A match far away is found without a look at every span on the way."""

    @pytest.mark.parametrize("is_fixed", [True, False])
    @pytest.mark.parametrize(
        ("values", "later", "earlier"),
        [
            pytest.param(
                FieldValues(1, 1, 1, years=1 << 9000), "9000-01-01", None, id="one year, far away"
            ),
            pytest.param(
                FieldValues(1, 1, 1, days=1 << 29, months=1 << 2, weekdays=1 << 1),
                "2044-02-29",
                "2016-02-29",
                id="29 February, a Monday",
            ),
            pytest.param(
                FieldValues(1, 1, 1, days=1 << 1, months=1 << 1, years=1 << 1900 | 1 << 2400),
                "2400-01-01",
                "1900-01-01",
                id="two years, far apart",
            ),
            pytest.param(FieldValues(1, 1, 1, days=1 << 31, months=1 << 4), None, None, id="never"),
        ],
    )
    def test_few_spans_are_visited(self, values, later, earlier, is_fixed):
        fields = Fields(values._replace(is_fixed=is_fixed))
        zone = CountedZone("Europe/Berlin")
        now = floor_ts(datetime(2026, 6, 1, tzinfo=UTC))

        found = search.next_ts(fields, zone, now), search.prev_ts(fields, zone, now)

        assert [ts and f"{zone.datetime_at(ts):%Y-%m-%d}" for ts in found] == [later, earlier]
        assert zone.calls <= 16

    def test_a_walk_over_centuries_visits_spans_near_matches_only(self):
        fields = Fields(FieldValues(1, 1, 1, days=1 << 29, months=1 << 2, weekdays=1 << 1))
        zone = CountedZone("Europe/Berlin")
        first, last = (floor_ts(datetime(year, 1, 1, tzinfo=UTC)) for year in (2026, 2826))

        found = list(search.instants(fields, zone, first, last))

        assert len(found) == sum(1 for year in range(2026, 2826) if is_leap_monday(year))
        assert zone.calls <= 12 * len(found)


def is_leap_monday(year):
    try:
        return datetime(year, 2, 29).weekday() == 0
    except ValueError:
        return False


BEFORE_TIME = floor_ts(datetime(1, 1, 1, tzinfo=UTC))
AFTER_TIME = floor_ts(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))


class TestTheEndsOfTime:
    """Before the year 2 and after 9998 there are no firings, and no errors."""

    @pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
    @pytest.mark.parametrize(
        "values",
        [
            pytest.param(FieldValues(), id="every minute"),
            pytest.param(FieldValues(1, 1, 1, is_fixed=True), id="midnight"),
            pytest.param(FieldValues(1, 1, 1, days=2, is_fixed=True), id="the first of a month"),
            pytest.param(FieldValues(1, 1, EVERY_HOUR, weekdays=2), id="hourly on Monday"),
        ],
    )
    class TestAnywhere:
        """In UTC, west and east of it."""

        def test_next_ends_with_the_year_9998(self, zone, values):
            for distance in (0, 1, 3600, DAY, 3 * DAY, 400 * DAY):
                found = search.next_ts(Fields(values), Zone.named(zone), LAST_TS - distance)

                assert found is None or LAST_TS - distance < found <= LAST_TS

        def test_prev_ends_with_the_year_2(self, zone, values):
            for distance in (0, 1, 3600, DAY, 3 * DAY, 400 * DAY):
                found = search.prev_ts(Fields(values), Zone.named(zone), FIRST_TS + distance)

                assert found is None or FIRST_TS <= found < FIRST_TS + distance

        def test_from_outside_the_first_and_the_last_are_found(self, zone, values):
            first = search.next_ts(Fields(values), Zone.named(zone), BEFORE_TIME)
            last = search.prev_ts(Fields(values), Zone.named(zone), AFTER_TIME)

            assert first is not None
            assert last is not None
            assert FIRST_TS <= first < FIRST_TS + 32 * DAY
            assert LAST_TS - 32 * DAY < last <= LAST_TS

        def test_outside_there_is_nothing(self, zone, values):
            assert search.next_ts(Fields(values), Zone.named(zone), AFTER_TIME) is None
            assert search.prev_ts(Fields(values), Zone.named(zone), BEFORE_TIME) is None

        def test_count_and_instants_end_there_too(self, zone, values):
            fields, named = Fields(values), Zone.named(zone)

            found = list(search.instants(fields, named, LAST_TS - 40 * DAY, AFTER_TIME))

            assert search.count(fields, named, LAST_TS - 40 * DAY, AFTER_TIME) == len(found)
            assert found[-1] == search.prev_ts(fields, named, LAST_TS + 1)
