"""Calendar fields find their wall times: next, prev, between and count are one story."""

import calendar
from datetime import date, datetime, timedelta
from functools import cache

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tickwork._domain.schedules.fields import (
    EVERY_DAY,
    EVERY_HOUR,
    EVERY_MINUTE,
    EVERY_MONTH,
    EVERY_SECOND,
    EVERY_WEEKDAY,
    EVERY_YEAR,
    DayMarks,
    Fields,
    FieldValues,
    bits,
)
from tickwork._domain.schedules.grammar import parse_cron

DAY = 86_400
MONTH = 31 * DAY
EPOCH = datetime(1970, 1, 1)

quickly = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # the other phases take minutes
)


# ---------------------------------------------------------------- the second opinion


def wall_of(moment):
    since = moment - EPOCH
    return since.days * DAY + since.seconds


def mask_of(*values):
    return sum(1 << value for value in set(values))


def weekday_of(day):
    return day.isoweekday() % 7


@cache
def month_of(year, month):
    """A month's last day, and its days from Monday to Friday."""
    last = calendar.monthrange(year, month)[1]
    return last, [n for n in range(1, last + 1) if date(year, month, n).weekday() < 5]


def has_day(values, day):
    """Say whether a date matches, by looking at a calendar."""
    marks = values.marks
    last, workdays = month_of(day.year, day.month)
    by_number = (
        bool(values.days >> day.day & 1)
        or (marks.last_day and day.day == last)
        or (marks.last_workday and day.day == workdays[-1])
        or any(
            day.day == min(workdays, key=lambda other: abs(other - wanted))
            for wanted in bits(marks.nearest_workday)
            if wanted <= last
        )
    )
    by_weekday = (
        bool(values.weekdays >> weekday_of(day) & 1)
        or (bool(marks.last_weekday >> weekday_of(day) & 1) and day.day + 7 > last)
        or (weekday_of(day), (day.day + 6) // 7) in marks.nth_weekday
    )
    return (
        bool(values.months >> day.month & 1)
        and bool(values.years >> day.year & 1)
        and ((by_number or by_weekday) if values.is_either else (by_number and by_weekday))
    )


def matches_on(values, n):
    """Every matching wall time of one day, found by counting through its clock."""
    if not has_day(values, (EPOCH + timedelta(days=n)).date()):
        return []
    return [
        n * DAY + hour * 3600 + minute * 60 + second
        for hour in bits(values.hours)
        for minute in bits(values.minutes)
        for second in bits(values.seconds)
    ]


def enumerated(values, first, last):
    """Every matching wall time ``first <= wall < last``, in order."""
    for n in range(first // DAY, (last - 1) // DAY + 1):
        yield from (wall for wall in matches_on(values, n) if first <= wall < last)


# ---------------------------------------------------------------- what is drawn


def masks(low, high, *, most):
    return st.one_of(
        st.just((2 << high) - (1 << low)),
        st.sets(st.integers(low, high), min_size=1, max_size=most).map(
            lambda found: mask_of(*found)
        ),
    )


weekday_numbers = st.integers(0, 6)
some_marks = st.builds(
    DayMarks,
    last_day=st.booleans(),
    last_workday=st.booleans(),
    nearest_workday=st.sets(st.integers(1, 31), max_size=2).map(lambda found: mask_of(*found)),
    last_weekday=st.sets(weekday_numbers, max_size=2).map(lambda found: mask_of(*found)),
    nth_weekday=st.lists(st.tuples(weekday_numbers, st.integers(1, 5)), max_size=2).map(tuple),
)
day_values = st.builds(
    FieldValues,
    seconds=masks(0, 59, most=2).filter(lambda mask: mask != EVERY_SECOND),
    minutes=masks(0, 59, most=3),
    hours=masks(0, 23, most=4),
    days=masks(1, 31, most=4),
    months=masks(1, 12, most=4),
    weekdays=masks(0, 6, most=3),
    years=st.one_of(
        st.just(EVERY_YEAR),
        st.sets(st.integers(1998, 2030), min_size=1).map(lambda found: mask_of(*found)),
    ),
    marks=st.one_of(st.just(DayMarks()), some_marks),
    is_either=st.booleans(),
)
any_walls = st.datetimes(datetime(1999, 1, 1), datetime(2029, 1, 1)).map(wall_of)


class TestEachOther:
    """next, prev, between, count and matches never contradict each other."""

    @quickly
    @given(day_values, any_walls)
    def test_next_is_the_first_match_at_or_after(self, values, wall):
        found = Fields(values).next(wall)

        if found is None or found > wall + MONTH:
            assert list(enumerated(values, wall, wall + MONTH)) == []
        else:
            assert next(enumerated(values, wall, found + 1)) == found

    @quickly
    @given(day_values, any_walls)
    def test_prev_is_the_last_match_at_or_before(self, values, wall):
        found = Fields(values).prev(wall)

        if found is None or found < wall - MONTH:
            assert list(enumerated(values, wall - MONTH, wall + 1)) == []
        else:
            assert list(enumerated(values, found, wall + 1)) == [found]

    @quickly
    @given(day_values, any_walls, st.integers(0, 3 * DAY))
    def test_between_is_every_match_once_and_in_order(self, values, first, length):
        found = list(Fields(values).between(first, first + length))

        assert found == list(enumerated(values, first, first + length))

    @quickly
    @given(day_values, any_walls, st.integers(0, 50 * DAY))
    def test_count_is_how_many_between_gives(self, values, first, length):
        fields = Fields(values)

        found = sum(1 for _ in enumerated(values, first, first + length))
        assert fields.count(first, first + length) == found

    @quickly
    @given(day_values, any_walls, st.integers(-100, 100))
    def test_matches_is_true_where_next_stays(self, values, wall, distance):
        fields = Fields(values)
        near = (fields.next(wall) or wall) + distance

        assert fields.matches(near) is (fields.next(near) == near)
        assert fields.matches(near) is (fields.prev(near) == near)

    @quickly
    @given(day_values, any_walls)
    def test_there_is_nothing_between_a_match_and_its_neighbour(self, values, wall):
        fields = Fields(values)
        match = fields.next(wall)
        if match is not None:
            following = fields.next(match + 1)

            assert fields.prev(match) == match
            if following is not None:
                assert fields.prev(following - 1) == match

    def test_a_field_that_matches_every_second_is_counted_and_walked_alike(self):
        fields = Fields(FieldValues(seconds=EVERY_SECOND))
        midnight = wall_of(datetime(2026, 1, 1))

        for _ in range(2):  # a long list of times is made anew for each use
            assert list(fields.between(midnight - 2, midnight + 3)) == list(
                range(midnight - 2, midnight + 3)
            )
        assert fields.count(midnight - 2, midnight + 3) == 5


# ---------------------------------------------------------------- days


MONTHS_OF_EVERY_SHAPE = [
    next(
        (year, month)
        for year in range(1996, 2040)
        for month in range(1, 13)
        if calendar.monthrange(year, month) == (weekday, length)
    )
    for length in (28, 29, 30, 31)
    for weekday in range(7)
]


@pytest.mark.parametrize(("year", "month"), MONTHS_OF_EVERY_SHAPE)
class TestDaysWithoutANumber:
    """In a month of any length that begins on any weekday, marks name the right days."""

    def days_of(self, year, month, day="*", weekday="*"):
        values, _ = parse_cron(f"0 0 {day} * {weekday}", None)
        fields = Fields(values)
        last = calendar.monthrange(year, month)[1]
        found = [n for n in range(1, last + 1) if fields.has_date(year, month, n)]
        assert found == [n for n in range(1, last + 1) if has_day(values, date(year, month, n))]
        return [date(year, month, n) for n in found]

    def test_last_day(self, year, month):
        assert [d.day for d in self.days_of(year, month, "L")] == [
            calendar.monthrange(year, month)[1]
        ]

    def test_last_workday(self, year, month):
        [found] = self.days_of(year, month, "LW")

        assert found.weekday() < 5
        assert not any(
            (found + timedelta(days=n)).weekday() < 5
            for n in range(1, 4)
            if (found + timedelta(days=n)).month == month
        )

    def test_the_workday_nearest_to_every_day(self, year, month):
        for n in range(1, calendar.monthrange(year, month)[1] + 1):
            [found] = self.days_of(year, month, f"{n}W")

            wanted = date(year, month, n)
            assert found.weekday() < 5
            assert abs(found - wanted) <= timedelta(days=2)
            assert (found == wanted) is (wanted.weekday() < 5)

    def test_the_nearest_workday_to_a_day_that_is_missing_is_none(self, year, month):
        for n in range(calendar.monthrange(year, month)[1] + 1, 32):
            assert self.days_of(year, month, f"{n}W") == []

    def test_the_last_of_every_weekday(self, year, month):
        for weekday in range(7):
            [found] = self.days_of(year, month, weekday=f"{weekday}L")

            assert weekday_of(found) == weekday
            assert (found + timedelta(days=7)).month != month

    def test_the_nth_of_every_weekday(self, year, month):
        weeks = calendar.Calendar().monthdatescalendar(year, month)
        for weekday in range(7):
            all_of_them = [
                d for week in weeks for d in week if d.month == month and weekday_of(d) == weekday
            ]
            for nth in range(1, 6):
                found = self.days_of(year, month, weekday=f"{weekday}#{nth}")

                assert found == all_of_them[nth - 1 : nth]


class TestFarAway:
    """The next match is found, or known never to come, however far away it is."""

    def test_a_leap_day_on_a_monday_skips_a_century_without_leap_day(self):
        values = FieldValues(1, 1, 1, days=1 << 29, months=1 << 2, weekdays=1 << 1)
        fields = Fields(values)

        assert fields.next(wall_of(datetime(2072, 3, 1))) == wall_of(datetime(2112, 2, 29))
        assert fields.prev(wall_of(datetime(2112, 2, 28))) == wall_of(datetime(2072, 2, 29))

    @pytest.mark.parametrize(
        "values",
        [
            pytest.param(FieldValues(1, 1, 1, days=1 << 30, months=1 << 2), id="30 February"),
            pytest.param(
                FieldValues(1, 1, 1, days=1 << 31, months=mask_of(4, 6, 9, 11)), id="31st of 30"
            ),
            pytest.param(
                FieldValues(1, 1, 1, days=1 << 29, months=4, years=1 << 2025), id="no leap"
            ),
            pytest.param(
                FieldValues(
                    1, 1, 1, days=0, weekdays=0, marks=DayMarks(nearest_workday=1 << 31), months=4
                ),
                id="31W in February",
            ),
        ],
    )
    def test_an_impossible_date_is_detected(self, values):
        fields = Fields(values)
        now = wall_of(datetime(2026, 1, 1))

        assert fields.next(now) is None
        assert fields.prev(now) is None
        assert fields.count(now, now + 3000 * DAY) == 0
        assert list(fields.between(now, now + 3000 * DAY)) == []

    def test_one_year_is_found_from_any_distance(self):
        fields = Fields(FieldValues(1, 1, 1, days=1 << 29, months=4, years=mask_of(4, 2024, 9996)))

        assert fields.next(wall_of(datetime(5, 1, 1))) == wall_of(datetime(2024, 2, 29))
        assert fields.next(wall_of(datetime(2024, 3, 1))) == wall_of(datetime(9996, 2, 29))
        assert fields.next(wall_of(datetime(9996, 3, 1))) is None
        assert fields.prev(wall_of(datetime(9990, 1, 1))) == wall_of(datetime(2024, 2, 29))
        assert fields.prev(wall_of(datetime(2024, 2, 28))) == wall_of(datetime(4, 2, 29))
        assert fields.prev(wall_of(datetime(4, 2, 28))) is None

    def test_the_years_1_and_9999_are_the_first_and_the_last(self):
        fields = Fields(FieldValues(1, 1, 1, days=1 << 2, months=1 << 1))

        assert fields.next(wall_of(datetime(1, 1, 1))) == wall_of(datetime(1, 1, 2))
        assert fields.next(wall_of(datetime(9999, 1, 3))) is None
        assert fields.prev(wall_of(datetime(9999, 6, 1))) == wall_of(datetime(9999, 1, 2))


class TestWholeFields:
    """The masks of whole fields hold every value of their field, and no other."""

    @pytest.mark.parametrize(
        ("mask", "values"),
        [
            (EVERY_SECOND, range(60)),
            (EVERY_MINUTE, range(60)),
            (EVERY_HOUR, range(24)),
            (EVERY_DAY, range(1, 32)),
            (EVERY_MONTH, range(1, 13)),
            (EVERY_WEEKDAY, range(7)),
        ],
    )
    def test_bits(self, mask, values):
        assert bits(mask) == list(values)
