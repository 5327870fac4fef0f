"""Rules in plain English say what will happen, and nothing else."""

import re

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.describe import describe
from tickwork._domain.schedules.fields import (
    EVERY_DAY,
    EVERY_MONTH,
    EVERY_WEEKDAY,
    EVERY_YEAR,
    NO_MARKS,
    DayMarks,
    Fields,
    FieldValues,
    bits,
)
from tickwork._domain.schedules.pattern import Pattern

ODD_DAYS = "days 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29 and 31 of the month"

IN_ENGLISH = {
    # how often
    "* * * * * *": "every second",
    "*/10 * * * * *": "every 10 seconds",
    "* * * * *": "every minute",
    "*/5 * * * *": "every 5 minutes",
    "0,30 * * * *": "every 30 minutes",
    "0 * * * *": "every hour",
    "@hourly": "every hour",
    "0 */2 * * *": "every 2 hours",
    "0 0,12 * * *": "every 12 hours",
    # at which second, minute and hour
    "30 * * * * *": "at second 30 of every minute",
    "30 * * * *": "at minute 30 of every hour",
    "5,35 * * * *": "at minutes 5 and 35 of every hour",
    "0 9-17 * * *": "at minute 0 of hours 9 to 17",
    "5 */5 * * * *": "at second 5 of every 5th minute",
    "5 1,31 */2 * * *": "at second 5 of minutes 1 and 31 of every 2nd hour",
    "* */5 * * * *": "every second of every 5th minute",
    "0,30 0 * * * *": "every 30 seconds of minute 0",
    # a pace that the hours interrupt
    "* 9 * * *": "every minute during hour 9",
    "* 0 9 * * *": "every second of minute 0 during hour 9",
    "*/15 */2 * * *": "every 15 minutes during every 2nd hour",
    "*/15 */3 * * *": "every 15 minutes during every 3rd hour",
    "*/15 */4 * * *": "every 15 minutes during every 4th hour",
    "*/20 */10 9-17 * * *": "every 20 seconds of every 10th minute during hours 9 to 17",
    "*/15 9-17 * * 1-5": "every 15 minutes during hours 9 to 17 on Monday to Friday",
    # steps that are not even: "every 7 minutes" would be a lie
    "*/7 * * * *": "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour",
    "*/7 * * * * *": "at seconds 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every minute",
    "0 */5 * * *": "at 00:00, 05:00, 10:00, 15:00 and 20:00",
    "15-59/15 */6 * * *": "at minutes 15, 30 and 45 of every 6th hour",
    # times of day
    "0 0 * * *": "at 00:00",
    "30 9,17 * * *": "at 09:30 and 17:30",
    "15 30 9 * * *": "at 09:30:15",
    "0,15 30 9 * * *": "at 09:30:00 and 09:30:15",
    "*/30 0 * * *": "at 00:00 and 00:30",
    # days
    "0 0 1 * *": "at 00:00 on day 1 of the month",
    "0 0 1-3,10 * *": "at 00:00 on days 1 to 3 and 10 of the month",
    "0 0 L * *": "at 00:00 on the last day of the month",
    "0 0 LW * *": "at 00:00 on the last Monday-to-Friday day of the month",
    "0 0 15W * *": "at 00:00 on the Monday-to-Friday day nearest to day 15",
    "0 0 1,L * *": "at 00:00 on day 1 of the month and the last day of the month",
    "0 0 * * 1": "at 00:00 on Monday",
    "0 0 ? * MON": "at 00:00 on Monday",
    "0 0 * * 1,3,5": "at 00:00 on Monday, Wednesday and Friday",
    "0 0 * * 1-5": "at 00:00 on Monday to Friday",
    "0 0 * * 0,6": "at 00:00 on Saturday and Sunday",
    "0 0 * * 5-7": "at 00:00 on Sunday, Friday and Saturday",
    "0 0 * * 5L": "at 00:00 on the last Friday of the month",
    "0 0 * * 5#2": "at 00:00 on the 2nd Friday of the month",
    "0 0 * * 1,5#3": "at 00:00 on Monday and the 3rd Friday of the month",
    # days of both kinds
    "0 0 13 * 5": "at 00:00 on day 13 of the month, or on Friday",
    "0 0 1 * 5L": "at 00:00 on day 1 of the month, or on the last Friday of the month",
    "0 0 */2 * 1": f"at 00:00 on {ODD_DAYS}, but only on Monday",
    "0 0 1-31 * MON": "at 00:00",
    "0 0 15 * 0-6": "at 00:00",
    # months
    "0 0 1 1 *": "at 00:00 on day 1 of the month in January",
    "0 0 * 6-8 *": "at 00:00 in June to August",
    "0 0 * 1,4,7,10 *": "at 00:00 in January, April, July and October",
}


class TestEnglish:
    """Each expression has one sentence."""

    @pytest.mark.parametrize(("expr", "english"), IN_ENGLISH.items())
    def test_of_a_cron_expression(self, expr, english):
        assert describe(Cron.parse(expr).values) == english

    @pytest.mark.parametrize(
        ("fields", "english"),
        [
            ({"year": 2026}, "every minute in 2026"),
            ({"minute": 0, "hour": 9, "year": "2026-2030"}, "at 09:00 in 2026 to 2030"),
            (
                {"minute": 0, "hour": 9, "day": 13, "weekday": 5},
                "at 09:00 on day 13 of the month, but only on Friday",
            ),
            (
                {"minute": 0, "hour": 9, "month": "*/3", "year": "2026,2028"},
                "at 09:00 in March, June, September and December in 2026 and 2028",
            ),
        ],
    )
    def test_of_a_pattern(self, fields, english):
        assert describe(Pattern.of(**fields).values) == english

    def test_a_rule_adds_its_zone(self):
        assert Cron.parse("0 9 * * *", tz="Asia/Tokyo").describe() == "at 09:00 (Asia/Tokyo)"


# ---------------------------------------------------------------- never a lie


def masks(low, high):
    """Masks that people write: steps, ranges, lists, everything."""
    values = st.one_of(
        st.builds(lambda step: range(low, high + 1, step), st.integers(1, high)),
        st.builds(lambda step: range(0, high + 1, step), st.integers(1, high)),
        st.builds(lambda a, b: range(min(a, b), max(a, b) + 1), *[st.integers(low, high)] * 2),
        st.sets(st.integers(low, high), min_size=1, max_size=4),
    )
    return values.map(lambda found: sum(1 << value for value in found if value >= low))


some_values = st.builds(
    FieldValues,
    seconds=st.one_of(st.just(1), masks(0, 59)),
    minutes=masks(0, 59),
    hours=masks(0, 23),
    days=masks(1, 31),
    months=st.just(EVERY_MONTH),
    weekdays=masks(0, 6),
    years=st.just(EVERY_YEAR),
    marks=st.sampled_from(
        [NO_MARKS, NO_MARKS, DayMarks(last_day=True), DayMarks(last_weekday=1 << 5)]
    ),
    is_either=st.booleans(),
    is_fixed=st.just(True),
)

quickly = settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # the other phases take minutes
)


class TestNoLies:
    """The description contains a word exactly when it is true."""

    @quickly
    @given(some_values)
    def test_or_and_but_only_say_how_the_days_are_joined(self, values):
        words = describe(values)

        are_both_restricted = values.days != EVERY_DAY and values.weekdays != EVERY_WEEKDAY
        assert (", or on " in words) is (are_both_restricted and values.is_either)
        assert (", but only on " in words) is (are_both_restricted and not values.is_either)

    @quickly
    @given(some_values)
    def test_no_word_about_days_means_every_day(self, values):
        fields = Fields(values)
        is_every_day = all(
            fields.has_date(2026, month, day) for month in (2, 3) for day in range(1, 29)
        )

        assert is_every_day or " on " in describe(values)

    @quickly
    @given(some_values)
    def test_a_pace_is_even_around_the_clock(self, values):
        words = describe(values)

        for number, noun in re.findall(r"every (\d+) (second|minute|hour)s", words):
            mask, size = {
                "second": (values.seconds, 60),
                "minute": (values.minutes, 60),
                "hour": (values.hours, 24),
            }[noun]
            steps = bits(mask)
            distances = {
                (after - before) % size
                for before, after in zip(steps, [*steps[1:], steps[0]], strict=True)
            }
            assert distances == {int(number)}, words

    @quickly
    @given(some_values)
    def test_the_unit_is_the_smallest_field_that_changes(self, values):
        words = describe(values)

        if words.startswith("every hour"):
            assert (values.seconds, values.minutes) == (1, 1)
        if words.startswith("every minute"):
            assert values.seconds == 1
