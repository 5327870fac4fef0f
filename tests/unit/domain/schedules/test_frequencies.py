"""The words of a chain: what each one means, and how they go together."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from itertools import permutations
from zoneinfo import ZoneInfo

import pytest

from tickwork._domain.schedules.bounds import Bounded, Windowed
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.frequencies import Frequencies, Timetable
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.pattern import Pattern
from tickwork._domain.schedules.recurrence import Missing, Recurrence
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.timing import Timing
from tickwork.errors import CronError, InvalidSchedule, NaiveDatetime

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
JUST_BEFORE = NEW_YEAR - timedelta(seconds=1)
NOON = datetime(2026, 6, 10, 12, 34, 56, tzinfo=UTC)  # a Wednesday
BERLIN = ZoneInfo("Europe/Berlin")


def first_of(chain, count=3, after=JUST_BEFORE):
    return [f"{moment:%Y-%m-%d %H:%M:%S}" for moment in chain.preview(count, after=after)]


def times(*at, day="2026-01-01"):
    return [f"{day} {each}" for each in at]


def days(*on, at="00:00:00", year=2026):
    return [f"{year}-{each} {at}" for each in on]


# ---------------------------------------------------------------- every frequency word

FREQUENCIES: dict[str, list[tuple[Callable[[Timetable], Timetable], list[str]]]] = {
    "every_second": [
        (lambda t: t.every_second(), times("00:00:00", "00:00:01", "00:00:02")),
    ],
    "every_two_seconds": [
        (lambda t: t.every_two_seconds(), times("00:00:00", "00:00:02", "00:00:04")),
    ],
    "every_five_seconds": [
        (lambda t: t.every_five_seconds(), times("00:00:00", "00:00:05", "00:00:10")),
    ],
    "every_ten_seconds": [
        (lambda t: t.every_ten_seconds(), times("00:00:00", "00:00:10", "00:00:20")),
    ],
    "every_fifteen_seconds": [
        (
            lambda t: t.every_fifteen_seconds(),
            times("00:00:00", "00:00:15", "00:00:30", "00:00:45", "00:01:00"),
        ),
    ],
    "every_twenty_seconds": [
        (
            lambda t: t.every_twenty_seconds(),
            times("00:00:00", "00:00:20", "00:00:40", "00:01:00"),
        ),
    ],
    "every_thirty_seconds": [
        (lambda t: t.every_thirty_seconds(), times("00:00:00", "00:00:30", "00:01:00")),
    ],
    "every_minute": [
        (lambda t: t.every_minute(), times("00:00:00", "00:01:00", "00:02:00")),
    ],
    "every_two_minutes": [
        (lambda t: t.every_two_minutes(), times("00:00:00", "00:02:00", "00:04:00")),
    ],
    "every_three_minutes": [
        (lambda t: t.every_three_minutes(), times("00:00:00", "00:03:00", "00:06:00")),
    ],
    "every_four_minutes": [
        (lambda t: t.every_four_minutes(), times("00:00:00", "00:04:00", "00:08:00")),
    ],
    "every_five_minutes": [
        (lambda t: t.every_five_minutes(), times("00:00:00", "00:05:00", "00:10:00")),
    ],
    "every_ten_minutes": [
        (lambda t: t.every_ten_minutes(), times("00:00:00", "00:10:00", "00:20:00")),
    ],
    "every_fifteen_minutes": [
        (
            lambda t: t.every_fifteen_minutes(),
            times("00:00:00", "00:15:00", "00:30:00", "00:45:00", "01:00:00"),
        ),
    ],
    "every_twenty_minutes": [
        (
            lambda t: t.every_twenty_minutes(),
            times("00:00:00", "00:20:00", "00:40:00", "01:00:00"),
        ),
    ],
    "every_thirty_minutes": [
        (lambda t: t.every_thirty_minutes(), times("00:00:00", "00:30:00", "01:00:00")),
    ],
    "hourly": [
        (lambda t: t.hourly(), times("00:00:00", "01:00:00", "02:00:00")),
    ],
    "every_hour": [
        (lambda t: t.every_hour(), times("00:00:00", "01:00:00", "02:00:00")),
    ],
    "hourly_at": [
        (lambda t: t.hourly_at(17), times("00:17:00", "01:17:00", "02:17:00")),
        (lambda t: t.hourly_at(0, 30), times("00:00:00", "00:30:00", "01:00:00")),
        (lambda t: t.hourly_at([5, 10]), times("00:05:00", "00:10:00", "01:05:00")),
        (lambda t: t.hourly_at("5-7"), times("00:05:00", "00:06:00", "00:07:00", "01:05:00")),
        (
            lambda t: t.hourly_at(1, [2, 3], "58-59"),
            times("00:01:00", "00:02:00", "00:03:00", "00:58:00"),
        ),
        (lambda t: t.hourly_at(), times("00:00:00", "01:00:00", "02:00:00")),
    ],
    "every_two_hours": [
        (lambda t: t.every_two_hours(), times("00:00:00", "02:00:00", "04:00:00")),
    ],
    "every_three_hours": [
        (lambda t: t.every_three_hours(), times("00:00:00", "03:00:00", "06:00:00")),
    ],
    "every_four_hours": [
        (lambda t: t.every_four_hours(), times("00:00:00", "04:00:00", "08:00:00")),
    ],
    "every_six_hours": [
        (lambda t: t.every_six_hours(), times("00:00:00", "06:00:00", "12:00:00", "18:00:00")),
    ],
    "daily": [
        (lambda t: t.daily(), days("01-01", "01-02", "01-03")),
        (
            lambda t: t.daily(interval=2, starting=NEW_YEAR + timedelta(hours=9)),
            days("01-01", "01-03", "01-05", at="09:00:00"),
        ),
        (
            lambda t: t.daily(starting=datetime(2026, 1, 2, 9, tzinfo=UTC)),
            days("01-02", "01-03", at="09:00:00"),
        ),
    ],
    "daily_at": [
        (lambda t: t.daily_at("13:00"), days("01-01", "01-02", at="13:00:00")),
        (lambda t: t.daily_at("9"), days("01-01", "01-02", at="09:00:00")),
        (lambda t: t.daily_at("9:05:07"), days("01-01", "01-02", at="09:05:07")),
        (lambda t: t.daily_at(time(23, 59, 59)), days("01-01", "01-02", at="23:59:59")),
    ],
    "twice_daily": [
        (lambda t: t.twice_daily(), times("01:00:00", "13:00:00")),
        (lambda t: t.twice_daily(1, 13), times("01:00:00", "13:00:00")),
        (lambda t: t.twice_daily(20, 8), times("08:00:00", "20:00:00")),
    ],
    "weekly": [
        (lambda t: t.weekly(), days("01-04", "01-11", "01-18")),
        (
            lambda t: t.weekly(interval=2, starting=datetime(2026, 1, 6, 9, tzinfo=UTC)),
            days("01-06", "01-20", "02-03", at="09:00:00"),
        ),
        (
            lambda t: t.weekly(weekdays=[1, 4], starting=datetime(2026, 1, 6, 9, tzinfo=UTC)),
            days("01-08", "01-12", "01-15", at="09:00:00"),
        ),
        (
            lambda t: t.weekly(interval=2, weekdays=5, starting=NEW_YEAR),
            days("01-02", "01-16", "01-30"),
        ),
    ],
    "weekly_on": [
        (lambda t: t.weekly_on(1, "8:00"), days("01-05", "01-12", at="08:00:00")),
        (lambda t: t.weekly_on(0), days("01-04", "01-11")),
        (lambda t: t.weekly_on(7), days("01-04", "01-11")),
        (lambda t: t.weekly_on([1, 3], "8:00"), days("01-05", "01-07", "01-12", at="08:00:00")),
    ],
    "monthly": [
        (lambda t: t.monthly(), days("01-01", "02-01", "03-01")),
        (
            lambda t: t.monthly(interval=2, starting=datetime(2026, 1, 31, 9, tzinfo=UTC)),
            days("01-31", "03-31", "05-31", at="09:00:00"),
        ),
        (
            lambda t: t.monthly(starting=datetime(2026, 1, 31, tzinfo=UTC)),
            days("01-31", "02-28", "03-31", "04-30"),
        ),
        (
            lambda t: t.monthly(starting=datetime(2026, 1, 31, tzinfo=UTC), missing="skip"),
            days("01-31", "03-31", "05-31"),
        ),
    ],
    "monthly_on": [
        (lambda t: t.monthly_on(4, "15:00"), days("01-04", "02-04", at="15:00:00")),
        (lambda t: t.monthly_on(), days("01-01", "02-01")),
        (lambda t: t.monthly_on(31), days("01-31", "03-31", "05-31")),
        (lambda t: t.monthly_on([4, 20]), days("01-04", "01-20", "02-04")),
    ],
    "twice_monthly": [
        (lambda t: t.twice_monthly(), days("01-01", "01-16", "02-01")),
        (lambda t: t.twice_monthly(1, 16), days("01-01", "01-16", "02-01")),
        (lambda t: t.twice_monthly(5, 20, "13:00"), days("01-05", "01-20", at="13:00:00")),
    ],
    "last_day_of_month": [
        (lambda t: t.last_day_of_month(), days("01-31", "02-28", "03-31", "04-30")),
        (lambda t: t.last_day_of_month("18:00"), days("01-31", "02-28", at="18:00:00")),
    ],
    "quarterly": [
        (lambda t: t.quarterly(), days("01-01", "04-01", "07-01", "10-01")),
    ],
    "yearly": [
        (lambda t: t.yearly(), ["2026-01-01 00:00:00", "2027-01-01 00:00:00"]),
        (
            lambda t: t.yearly(interval=2, starting=datetime(2026, 6, 1, 9, tzinfo=UTC)),
            ["2026-06-01 09:00:00", "2028-06-01 09:00:00"],
        ),
    ],
    "yearly_on": [
        (
            lambda t: t.yearly_on(6, 1, "17:00"),
            ["2026-06-01 17:00:00", "2027-06-01 17:00:00"],
        ),
        (lambda t: t.yearly_on(6), ["2026-06-01 00:00:00", "2027-06-01 00:00:00"]),
        (lambda t: t.yearly_on(2, 29), ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
    ],
    "cron": [
        (lambda t: t.cron("*/5 0 9 * * 1-5"), times("09:00:00", "09:00:05", "09:00:10")),
        (lambda t: t.cron("@daily"), days("01-01", "01-02")),
    ],
    "pattern": [
        (lambda t: t.pattern(minutes="*/15", hours=9), times("09:00:00", "09:15:00", "09:30:00")),
    ],
    "symbol": [
        (lambda t: t.symbol("EVERY_DAY"), days("01-01", "01-02", at="02:10:00")),
    ],
    "every": [
        (
            lambda t: t.every(minutes=15, starting=NEW_YEAR),
            times("00:00:00", "00:15:00", "00:30:00"),
        ),
        (
            lambda t: t.every(hours=5, starting=NEW_YEAR - timedelta(hours=1)),
            ["2026-01-01 04:00:00", "2026-01-01 09:00:00", "2026-01-01 14:00:00"],
        ),
        (
            lambda t: t.every(days=1, hours=2, minutes=3, seconds=4, starting=NEW_YEAR),
            ["2026-01-01 00:00:00", "2026-01-02 02:03:04", "2026-01-03 04:06:08"],
        ),
    ],
    "once": [
        (lambda t: t.once(NOON), ["2026-06-10 12:34:56"]),
    ],
    "on": [
        (lambda t: t.on(Cron.parse("0 9 * * *")), days("01-01", "01-02", at="09:00:00")),
        (lambda t: t.on(Timetable().hourly()), times("00:00:00", "01:00:00")),
    ],
}

WEEKDAY_WORDS: dict[str, list[str]] = {
    "weekdays": ["01-01", "01-02", "01-05", "01-06", "01-07", "01-08", "01-09", "01-12"],
    "weekends": ["01-03", "01-04", "01-10", "01-11"],
    "sundays": ["01-04", "01-11"],
    "mondays": ["01-05", "01-12"],
    "tuesdays": ["01-06", "01-13"],
    "wednesdays": ["01-07", "01-14"],
    "thursdays": ["01-01", "01-08"],
    "fridays": ["01-02", "01-09"],
    "saturdays": ["01-03", "01-10"],
}
FIELD_WORDS = ["seconds", "minutes", "hours", "days", "months"]
OTHER_WORDS = [
    "timezone",
    "between",
    "unless_between",
    "except_on",
    "starting",
    "until",
    "max_firings",
]


class TestFrequencies:
    """Each word has exactly these first instants, from New Year 2026 on."""

    @pytest.mark.parametrize(
        ("say", "expected"),
        [
            pytest.param(say, expected, id=f"{word}-{n}")
            for word, cases in FREQUENCIES.items()
            for n, (say, expected) in enumerate(cases, start=1)
        ],
    )
    def test_first_instants(self, say, expected):
        assert first_of(say(Timetable()), len(expected)) == expected

    @pytest.mark.parametrize(("word", "expected"), WEEKDAY_WORDS.items())
    def test_a_weekday_word_alone_means_midnight(self, word, expected):
        assert first_of(getattr(Timetable(), word)(), len(expected)) == days(*expected)

    def test_no_word_is_missing_here(self):
        words = {name for name in vars(Frequencies) if not name.startswith("_")}

        assert words == {*FREQUENCIES, *WEEKDAY_WORDS, *FIELD_WORDS, *OTHER_WORDS}

    def test_a_word_changes_nothing_but_gives_another_chain(self):
        hourly = Timetable().hourly()

        assert hourly.weekdays() != hourly
        assert hourly == Timetable().hourly()
        assert hash(hourly) == hash(Timetable().hourly())

    @pytest.mark.parametrize(
        ("say", "kind"),
        [
            (lambda t: t.cron("0 9 * * *"), Cron),
            (lambda t: t.cron("0 9 * * *").hours(10), Pattern),
            (lambda t: t.hourly(), Pattern),
            (lambda t: t.weekdays(), Pattern),
            (lambda t: t.every(minutes=5, starting=NOON), Interval),
            (lambda t: t.once(NOON), Once),
            (lambda t: t.daily(interval=2, starting=NOON), Recurrence),
            (lambda t: t.hourly().between("9", "17"), Windowed),
            (lambda t: t.hourly().between("9", "17").until(NOON), Bounded),
        ],
    )
    def test_a_chain_makes_a_plain_rule_that_fits_into_a_row(self, say, kind):
        chain = say(Timetable())

        rule = chain.rule()

        assert type(rule) is kind
        assert from_text(chain.to_text()) == rule
        assert chain.describe() == rule.describe()
        assert chain.tz == rule.tz == "UTC"
        assert chain.next_after(JUST_BEFORE) == rule.next_after(JUST_BEFORE)
        assert chain.prev_before(NOON) == rule.prev_before(NOON)
        assert chain.count_between(NEW_YEAR, NOON) == rule.count_between(NEW_YEAR, NOON)


# ---------------------------------------------------------------- refining


class TestRefining:
    """Every sentence of "Refining" in the mission."""

    @pytest.mark.parametrize(
        ("word", "expected"),
        [
            ("seconds", times("00:00:07", "00:01:07", "00:02:07")),
            ("minutes", times("00:07:00", "01:07:00", "02:07:00")),
            ("hours", days("01-01", "01-02", "01-03", at="07:00:00")),
            ("days", days("01-07", "02-07", "03-07")),
            ("months", ["2026-07-01 00:00:00", "2027-07-01 00:00:00", "2028-07-01 00:00:00"]),
        ],
    )
    def test_smaller_fields_that_nobody_set_become_0_and_larger_ones_stay_any(self, word, expected):
        assert first_of(getattr(Timetable(), word)(7)) == expected

    def test_smaller_fields_become_0_also_between_two_that_were_set(self):
        assert first_of(Timetable().seconds(30).hours(9), 2) == days(
            "01-01", "01-02", at="09:00:30"
        )
        assert first_of(Timetable().minutes(30).days(5), 2) == days("01-05", "02-05", at="00:30:00")

    def test_months_with_weekdays_mean_these_weekdays_not_the_first(self):
        assert first_of(Timetable().months(6).mondays()) == days("06-01", "06-08", "06-15")

    @pytest.mark.parametrize(
        ("chain", "expected"),
        [
            (Timetable().daily().hours([9, 12]), times("09:00:00", "12:00:00")),
            (Timetable().daily().minutes(30), days("01-01", "01-02", at="00:30:00")),
            (Timetable().daily_at("13:45").hours(9), days("01-01", "01-02", at="09:45:00")),
            (Timetable().hourly().seconds(30), times("00:00:30", "01:00:30")),
            (Timetable().every_minute().seconds(0, 30), times("00:00:00", "00:00:30")),
            (Timetable().monthly().days(15), days("01-15", "02-15")),
            (Timetable().yearly().months(6), ["2026-06-01 00:00:00", "2027-06-01 00:00:00"]),
            (Timetable().quarterly().days("L"), days("01-31", "04-30", "07-31", "10-31")),
            (Timetable().hours(9).hours(10), days("01-01", "01-02", at="10:00:00")),
            (Timetable().cron("15 3 * * *").hours(9), days("01-01", "01-02", at="09:15:00")),
            (Timetable().pattern(minutes=5, hours=3).hours(9), days("01-01", at="09:05:00")),
            (Timetable().symbol("EVERY_DAY").hours(9), days("01-01", at="09:10:00")),
        ],
    )
    def test_seconds_to_months_replace_their_own_field(self, chain, expected):
        assert first_of(chain, len(expected)) == expected

    def test_narrowing_does_not_overwrite_the_minutes(self):
        office = Timetable().every_five_minutes().hours(range(9, 18)).weekdays()

        assert first_of(office) == times("09:00:00", "09:05:00", "09:10:00")
        assert office.count_between(NEW_YEAR, NEW_YEAR + timedelta(days=7)) == 5 * 9 * 12

    def test_one_value_or_several(self):
        ways = [
            Timetable().hours(9, 12, 13),
            Timetable().hours([9, 12, 13]),
            Timetable().hours("9,12,13"),
            Timetable().hours(9, "12-13"),
            Timetable().hours(value for value in (9, 12, 13)),
        ]

        assert len({tuple(first_of(way, 9)) for way in ways}) == 1

    def test_different_fields_always_and(self):
        both = Timetable().days([1, 15]).weekdays()

        assert first_of(both) == days("01-01", "01-15", "04-01")

    def test_either_matches_holds_only_inside_cron_text(self):
        inside = Timetable().cron("0 0 13 * 5")
        refined = Timetable().cron("0 0 13 * *").fridays()

        assert first_of(inside) == days("01-02", "01-09", "01-13")
        assert first_of(refined) == days("02-13", "03-13", "11-13")

    def test_weekday_words_set_the_weekday_field_and_nothing_else(self):
        assert first_of(Timetable().every_minute().mondays(), 2) == times(
            "00:00:00", "00:01:00", day="2026-01-05"
        )
        assert first_of(Timetable().daily_at("13:00").mondays(), 2) == days(
            "01-05", "01-12", at="13:00:00"
        )
        assert first_of(Timetable().monthly().mondays(), 2) == [
            "2026-06-01 00:00:00",
            "2027-02-01 00:00:00",
        ]

    def test_weekday_words_add_up(self):
        assert first_of(Timetable().mondays().fridays()) == days("01-02", "01-05", "01-09")
        assert first_of(Timetable().weekdays().saturdays(), 7) == days(
            "01-01", "01-02", "01-03", "01-05", "01-06", "01-07", "01-08"
        )

    def test_weekly_mondays_is_monday(self):
        assert first_of(Timetable().weekly().mondays()) == days("01-05", "01-12", "01-19")

    def test_weekly_is_sunday_at_midnight(self):
        assert first_of(Timetable().weekly(), 1) == days("01-04")

    def test_every_hour_is_an_alias_of_hourly(self):
        assert Timetable().every_hour().rule() == Timetable().hourly().rule()

    def test_other_hours_are_said_by_every(self):
        assert not hasattr(Timetable(), "every_five_hours")
        assert first_of(Timetable().every(hours=5, starting=NEW_YEAR)) == times(
            "00:00:00", "05:00:00", "10:00:00"
        )

    @pytest.mark.parametrize("second", FREQUENCIES)
    def test_two_frequency_words_are_an_error_that_names_both(self, second):
        chain = Timetable().daily_at("13:00")

        with pytest.raises(InvalidSchedule) as caught:
            FREQUENCIES[second][0][0](chain)

        assert caught.value.what == (
            f"daily_at() and {second}() both set the frequency of one schedule."
        )

    @pytest.mark.parametrize(
        "words",
        [
            [
                lambda t: t.every_five_minutes(),
                lambda t: t.hours(range(9, 18)),
                lambda t: t.weekdays(),
            ],
            [lambda t: t.weekly(), lambda t: t.mondays(), lambda t: t.hours(9)],
            [lambda t: t.cron("0 0 13 * 5"), lambda t: t.mondays(), lambda t: t.minutes(30)],
            [
                lambda t: t.hourly(),
                lambda t: t.timezone("Asia/Tokyo"),
                lambda t: t.between("9", "17"),
            ],
            [lambda t: t.days(1), lambda t: t.months(6), lambda t: t.hours(9)],
            [
                lambda t: t.every(hours=1),
                lambda t: t.starting(NEW_YEAR),
                lambda t: t.max_firings(3),
            ],
        ],
    )
    def test_order_does_not_matter(self, words):
        rules = set()
        for order in permutations(words):
            chain = Timetable()
            for say in order:
                chain = say(chain)
            rules.add(chain.rule())

        assert len(rules) == 1

    @pytest.mark.parametrize(
        "chain",
        [
            Timetable().every(minutes=5, starting=NOON).hours(9),
            Timetable().once(NOON).mondays(),
            Timetable().daily(interval=2, starting=NOON).weekdays(),
            Timetable().on(Timetable().hourly()).mondays(),
        ],
    )
    def test_a_rule_without_calendar_fields_cannot_be_refined(self, chain):
        with pytest.raises(InvalidSchedule, match=r"\(\) has no calendar fields to refine"):
            chain.rule()


# ---------------------------------------------------------------- windows, dates, ends


class TestWindowsAndEnds:
    """Windows, dates and ends hold a rule back; they never add an instant."""

    def test_between_includes_both_ends(self):
        assert first_of(Timetable().hourly().between("9:00", "11:00"), 4) == [
            *times("09:00:00", "10:00:00", "11:00:00"),
            "2026-01-02 09:00:00",
        ]

    def test_several_between_are_alternatives(self):
        chain = Timetable().hourly().between("9", "9").between(time(12), time(13))

        assert first_of(chain) == times("09:00:00", "12:00:00", "13:00:00")

    def test_unless_between_leaves_out_both_ends(self):
        chain = Timetable().hourly().unless_between("1:00", "22:00")

        assert first_of(chain) == [*times("00:00:00", "23:00:00"), "2026-01-02 00:00:00"]

    def test_except_on_leaves_out_dates(self):
        chain = (
            Timetable().daily().except_on("2026-01-01", date(2026, 1, 3)).except_on(["2026-01-04"])
        )

        assert first_of(chain, 2) == days("01-02", "01-05")

    def test_windows_are_read_in_the_chains_zone(self):
        chain = Timetable().hourly().between("9", "9").timezone("Asia/Tokyo")

        assert chain.next_after(JUST_BEFORE) == datetime(2026, 1, 1, 0, tzinfo=UTC)

    def test_starting_is_included(self):
        chain = Timetable().daily().starting(datetime(2026, 1, 5, tzinfo=UTC))

        assert first_of(chain, 2) == days("01-05", "01-06")
        assert chain.prev_before(datetime(2026, 1, 5, tzinfo=UTC)) is None

    def test_until_is_included(self):
        chain = Timetable().daily().until(datetime(2026, 1, 2, tzinfo=UTC))

        assert first_of(chain, 9) == days("01-01", "01-02")

    def test_until_with_a_fraction_is_not_rounded_up(self):
        chain = Timetable().every_second().until(NEW_YEAR.replace(microsecond=500_000))

        assert first_of(chain, 9) == times("00:00:00")

    def test_max_firings_counts_from_starting(self):
        chain = Timetable().daily().starting(NEW_YEAR).max_firings(2)

        assert first_of(chain, 9) == days("01-01", "01-02")

    def test_max_firings_counts_from_the_start_of_an_interval(self):
        by_interval = Timetable().every(hours=1, starting=NEW_YEAR).max_firings(2)
        by_days = Timetable().daily(interval=3, starting=NEW_YEAR).max_firings(2)

        assert first_of(by_interval, 9) == times("00:00:00", "01:00:00")
        assert first_of(by_days, 9) == days("01-01", "01-04")

    def test_max_firings_counts_what_windows_let_through(self):
        chain = Timetable().hourly().between("9", "9").starting(NEW_YEAR).max_firings(2)

        assert first_of(chain, 9) == days("01-01", "01-02", at="09:00:00")

    def test_the_last_word_wins(self):
        chain = Timetable().daily().starting(NOON).starting(NEW_YEAR).max_firings(9).max_firings(1)

        assert first_of(chain, 9) == days("01-01")


# ---------------------------------------------------------------- zones, keys, anchors


class TestZone:
    """A chain thinks in its own zone, or else in the app's."""

    def test_the_default_is_utc(self):
        assert Timetable().hourly().tz == "UTC"

    def test_a_zone_that_was_said_wins_over_the_default(self):
        said = Timing(zone="Asia/Tokyo").refine("hour", 9)

        assert said.rule(tz="Europe/Berlin").tz == "Asia/Tokyo"
        assert Timing().refine("hour", 9).rule(tz="Europe/Berlin").tz == "Europe/Berlin"

    @pytest.mark.parametrize("zone", ["Europe/Berlin", BERLIN])
    @pytest.mark.parametrize(
        "chain",
        [
            Timetable().daily_at("9"),
            Timetable().cron("0 9 * * *"),
            Timetable().cron("0 0 * * *").hours(9),
            Timetable().daily(interval=1, starting=datetime(2026, 1, 1, 9, tzinfo=BERLIN)),
        ],
    )
    def test_a_time_of_day_is_read_in_the_zone(self, chain, zone):
        summer = chain.timezone(zone).next_after(datetime(2026, 7, 1, tzinfo=UTC))

        assert summer == datetime(2026, 7, 1, 7, tzinfo=UTC)
        assert f"{summer:%H:%M}" == "09:00"
        assert chain.timezone(zone).tz == "Europe/Berlin"

    def test_the_last_zone_wins(self):
        chain = Timetable().hourly().timezone("Asia/Tokyo").timezone("Europe/Berlin")

        assert chain.tz == "Europe/Berlin"

    def test_a_plain_rule_given_to_on_keeps_its_zone(self):
        rule = Cron.parse("0 9 * * *", tz="Asia/Tokyo")

        chain = Timetable().on(rule)

        assert chain.tz == "Asia/Tokyo"
        assert chain.timing.rule(tz="Europe/Berlin") == rule
        assert chain.timezone("Asia/Tokyo").rule() == rule

    def test_a_plain_rule_in_another_zone_is_an_error(self):
        chain = Timetable().on(Cron.parse("0 9 * * *", tz="Asia/Tokyo")).timezone("Europe/Berlin")

        with pytest.raises(InvalidSchedule, match="has 'Asia/Tokyo'"):
            chain.rule()

    def test_a_chain_given_to_on_gets_the_zone_unless_it_has_one(self):
        plain, zoned = Timetable().daily_at("9"), Timetable().daily_at("9").timezone("Asia/Tokyo")

        assert Timetable().on(plain).timezone("Europe/Berlin").tz == "Europe/Berlin"
        assert Timetable().on(plain).timing.rule(tz="Europe/Berlin").tz == "Europe/Berlin"
        assert Timetable().on(zoned).timezone("Europe/Berlin").tz == "Asia/Tokyo"
        assert Timetable().on(zoned).timezone("Europe/Berlin").rule().tz == "Asia/Tokyo"


class TestKey:
    """What H hashes is the schedule's name, which a chain does not know."""

    def test_the_key_reaches_the_expression(self):
        chain = Timetable().cron("H H * * *")

        assert chain.rule(key="a") == Cron.parse("H H * * *", key="a")
        assert chain.rule(key="a") != chain.rule(key="b")

    def test_the_key_reaches_a_refined_expression_and_a_chain_within(self):
        minutes = Cron.parse("H H * * *", key="a").values.minutes
        refined = Timetable().cron("H H * * *").mondays().rule(key="a")

        assert isinstance(refined, Pattern)
        assert refined.values.minutes == minutes
        assert Timetable().on(Timetable().cron("H H * * *")).rule(key="a") == Cron.parse(
            "H H * * *", key="a"
        )

    def test_a_key_that_nothing_depends_on_is_not_kept(self):
        assert Timetable().cron("0 9 * * *").rule(key="a") == Timetable().cron("0 9 * * *").rule()

    def test_without_one_there_is_an_error(self):
        with pytest.raises(CronError, match="needs the name of the schedule"):
            Timetable().cron("H H * * *").rule()


class TestAnchor:
    """A rule that counts does so from an instant that was said, or from its registration."""

    @pytest.mark.parametrize(
        ("chain", "needs_anchor"),
        [
            (Timetable().hourly(), False),
            (Timetable().cron("0 9 * * *"), False),
            (Timetable().once(NOON), False),
            (Timetable().every(minutes=5), True),
            (Timetable().every(minutes=5, starting=NOON), False),
            (Timetable().every(minutes=5).starting(NOON), False),
            (Timetable().daily(), False),
            (Timetable().daily(interval=2), True),
            (Timetable().daily(interval=2).starting(NOON), False),
            (Timetable().weekly(weekdays=[1]), True),
            (Timetable().hourly().max_firings(3), True),
            (Timetable().hourly().starting(NOON).max_firings(3), False),
            (Timetable().every(minutes=5, starting=NOON).max_firings(3), False),
            (Timetable().on(Timetable().every(minutes=5)), True),
            (Timetable().on(Timetable().every(minutes=5)).starting(NOON), False),
            (Timetable().on(Timetable().hourly()), False),
            (Timetable().on(Cron.parse("0 9 * * *")), False),
        ],
    )
    def test_needs_anchor(self, chain, needs_anchor):
        assert chain.timing.needs_anchor is needs_anchor
        if needs_anchor:
            with pytest.raises(InvalidSchedule, match="needs a time to count from"):
                chain.rule()
        else:
            assert chain.rule() == chain.timing.rule(anchor=NEW_YEAR)

    def test_the_error_names_the_word(self):
        with pytest.raises(InvalidSchedule, match=r"^every\(\) needs a time"):
            Timetable().every(minutes=5).rule()
        with pytest.raises(InvalidSchedule, match=r"^max_firings\(\) needs a time"):
            Timetable().mondays().max_firings(3).rule()

    def test_an_interval_counts_from_the_anchor_itself(self):
        rule = Timetable().every(minutes=5).timing.rule(anchor=NOON)

        assert rule == Interval(length=timedelta(minutes=5), anchor=NOON)

    def test_the_word_starting_means_the_same_as_the_argument(self):
        by_word = Timetable().every(minutes=7).starting(NEW_YEAR)
        by_argument = Timetable().every(minutes=7, starting=NEW_YEAR)

        assert first_of(by_word, 5) == first_of(by_argument, 5)

    def test_a_chain_within_counts_from_the_same_anchor(self):
        rule = Timetable().on(Timetable().every(minutes=5)).timing.rule(anchor=NOON)

        assert rule == Interval(length=timedelta(minutes=5), anchor=NOON)

    @pytest.mark.parametrize(
        ("chain", "expected"),
        [
            (Timetable().daily(interval=2), ["06-10", "06-12", "06-14"]),
            (Timetable().weekly(interval=2), ["06-07", "06-21", "07-05"]),
            (Timetable().weekly(interval=2, weekdays=[1, 3]), ["06-10", "06-22", "06-24"]),
            (Timetable().monthly(interval=2), ["06-01", "08-01", "10-01"]),
        ],
    )
    def test_a_recurrence_counts_from_a_midnight_in_its_zone(self, chain, expected):
        rule = chain.timezone("Europe/Berlin").timing.rule(anchor=NOON)

        found = rule.preview(3, after=datetime(2026, 6, 1, tzinfo=BERLIN) - timedelta(seconds=1))
        assert [f"{moment:%m-%d %H:%M %Z}" for moment in found] == [
            f"{day} 00:00 CEST" for day in expected
        ]

    def test_a_yearly_recurrence_counts_from_new_year(self):
        rule = Timetable().yearly(interval=2).timing.rule(anchor=NOON)

        assert first_of(rule, 2) == ["2026-01-01 00:00:00", "2028-01-01 00:00:00"]

    def test_an_anchor_at_midnight_counts_from_itself(self):
        rule = Timetable().daily(interval=2).timing.rule(anchor=NEW_YEAR)

        assert first_of(rule, 2) == days("01-01", "01-03")

    def test_a_day_without_midnight_is_not_counted_from(self):
        # Clocks in Cairo went from 00:00 to 01:00 on 2026-04-24. A recurrence counted from
        # 01:00 would stay there.
        cairo = Timetable().daily(interval=2).timezone("Africa/Cairo")
        noon = datetime(2026, 4, 24, 12, tzinfo=ZoneInfo("Africa/Cairo"))

        found = cairo.timing.rule(anchor=noon).preview(3, after=noon)

        assert [f"{moment:%d %H:%M}" for moment in found] == ["25 00:00", "27 00:00", "29 00:00"]

    def test_an_anchor_that_was_said_is_not_moved_by_the_registration(self):
        chain = Timetable().every(minutes=7, starting=NEW_YEAR).max_firings(3)

        assert chain.timing.rule(anchor=NOON) == chain.rule()
        assert first_of(chain, 9) == times("00:00:00", "00:07:00", "00:14:00")

    def test_max_firings_counts_from_the_registration_when_nothing_else_was_said(self):
        rule = Timetable().hourly().max_firings(2).timing.rule(anchor=NOON)

        assert first_of(rule, 9) == ["2026-06-10 13:00:00", "2026-06-10 14:00:00"]


# ---------------------------------------------------------------- bad input


class TestBadInput:
    """What cannot be is refused where it is said, and the error says what is wrong."""

    @pytest.mark.parametrize(
        ("say", "what"),
        [
            (lambda t: t.daily_at("25:00"), "'25:00' is not a time of day."),
            (lambda t: t.daily_at("24:00"), "'24:00' is not a time of day."),
            (lambda t: t.daily_at("9:60"), "'9:60' is not a time of day."),
            (lambda t: t.daily_at("noon"), "'noon' is not a time of day."),
            (lambda t: t.daily_at(""), "'' is not a time of day."),
            (lambda t: t.daily_at(13), "13 is not a time of day."),
            (lambda t: t.daily_at(None), "None is not a time of day."),
            (
                lambda t: t.daily_at(time(9, tzinfo=UTC)),
                "A time of day must have whole seconds and no time zone, got 09:00:00+00:00.",
            ),
            (
                lambda t: t.daily_at(time(9, 0, 0, 5)),
                "A time of day must have whole seconds and no time zone, got 09:00:00.000005.",
            ),
            (lambda t: t.hourly_at(60), "minute '60' is not in 0-59."),
            (lambda t: t.twice_daily(1, 24), "hour '24' is not in 0-23."),
            (lambda t: t.weekly_on(8), "weekday '8' is not in 0-7."),
            (lambda t: t.monthly_on(32), "day '32' is not in 1-31."),
            (lambda t: t.yearly_on(13), "month '13' is not in 1-12."),
            (lambda t: t.seconds(60), "second '60' is not in 0-59."),
            (lambda t: t.hours(), "hours() needs at least one value."),
            (lambda t: t.hours(None), "hours() needs at least one value."),
            (lambda t: t.hours([]), "hour '' is not a pattern."),
            (lambda t: t.hours(9.5), "hour must be an integer, got 9.5."),
            (lambda t: t.months("JAN"), "month 'JAN' is not a pattern."),
            (lambda t: t.between("9", "25"), "'25' is not a time of day."),
            (lambda t: t.between(9, 17), "9 is not a time of day."),
            (lambda t: t.except_on("2026-02-30"), "'2026-02-30' is not a date."),
            (lambda t: t.except_on(5), "5 is not a date."),
            (
                lambda t: t.except_on(NEW_YEAR),
                "2026-01-01 00:00:00+00:00 is a datetime, not a date.",
            ),
            (lambda t: t.timezone("Mars"), "There is no time zone 'Mars'."),
            (lambda t: t.max_firings(0), "max_firings must be between 1 and 100,000, got 0."),
            (lambda t: t.max_firings(-1), "max_firings must be between 1 and 100,000, got -1."),
            (
                lambda t: t.max_firings(100_001),
                "max_firings must be between 1 and 100,000, got 100001.",
            ),
            (lambda t: t.max_firings(2.5), "max_firings must be between 1 and 100,000, got 2.5."),
            (lambda t: t.once("next week"), "'next week' is not a time."),
            (lambda t: t.until("tomorrow"), "'tomorrow' is not a time."),
            (
                lambda t: t.starting(date(2026, 1, 1)),
                "datetime.date(2026, 1, 1) is not a time.",
            ),
            (
                lambda t: t.once(datetime.max.replace(tzinfo=UTC)),
                "9999-12-31 23:59:59.999999+00:00 is not in the years 2 to 9998.",
            ),
            (
                lambda t: t.every(),
                "An interval must be a positive whole number of seconds, got 0:00:00.",
            ),
            (
                lambda t: t.every(seconds=0.5),
                "An interval must be a positive whole number of seconds, got 0:00:00.500000.",
            ),
            (
                lambda t: t.every(minutes=-1),
                "An interval must be a positive whole number of seconds, got -1 day, 23:59:00.",
            ),
            (lambda t: t.daily(interval=0), "interval must be between 1 and 10,000, got 0."),
            (lambda t: t.daily(interval=1.5), "interval must be between 1 and 10,000, got 1.5."),
            (lambda t: t.daily(interval="2"), "interval must be between 1 and 10,000, got '2'."),
            (lambda t: t.weekly(weekdays=[8]), "weekdays must be between 0 and 7, got (8,)."),
            (
                lambda t: t.weekly(weekdays=["mon"]),
                "weekdays must be between 0 and 7, got ('mon',).",
            ),
            (
                lambda t: t.monthly(interval=2, missing="x"),
                "missing must be 'clamp' or 'skip', got 'x'.",
            ),
            (lambda t: t.on("hourly"), "on() needs a rule, got 'hourly'."),
            (lambda t: t.symbol("NIGHTLY"), "There is no symbol 'NIGHTLY'."),
        ],
    )
    def test_it_is_refused_where_it_is_said(self, say, what):
        with pytest.raises(InvalidSchedule) as caught:
            say(Timetable())

        assert caught.value.what == what

    @pytest.mark.parametrize(
        "length", [{"hours": 1e300}, {"seconds": float("nan")}, {"minutes": "5"}, {"days": None}]
    )
    def test_a_length_of_time_that_is_none_is_refused(self, length):
        with pytest.raises(InvalidSchedule, match="needs a length of time"):
            Timetable().every(**length)

    def test_a_cron_expression_is_read_where_it_is_said(self):
        with pytest.raises(CronError, match="'61' is not in 0-59"):
            Timetable().cron("61 * * * *")

    @pytest.mark.parametrize(
        "say",
        [
            lambda t, naive: t.once(naive),
            lambda t, naive: t.starting(naive),
            lambda t, naive: t.until(naive),
            lambda t, naive: t.every(minutes=5, starting=naive),
            lambda t, naive: t.daily(interval=2, starting=naive),
        ],
    )
    def test_a_naive_datetime_is_refused_where_it_is_said(self, say):
        with pytest.raises(NaiveDatetime):
            say(Timetable(), datetime(2026, 1, 1))

    @pytest.mark.parametrize(
        "chain", [Timetable(), Timetable().between("9", "17"), Timetable().timezone("Asia/Tokyo")]
    )
    def test_a_chain_that_says_nothing_about_when_makes_no_rule(self, chain):
        assert not chain.timing.has_rule
        with pytest.raises(InvalidSchedule, match="The schedule is empty"):
            chain.rule()

    @pytest.mark.parametrize("chain", [Timetable().hourly(), Timetable().mondays()])
    def test_one_that_does_is_said(self, chain):
        assert chain.timing.has_rule

    @pytest.mark.parametrize("missing", list(Missing))
    def test_both_ways_with_missing_days_are_known(self, missing):
        rule = Timetable().monthly(interval=2, starting=NOON, missing=missing).rule()

        assert isinstance(rule, Recurrence)
        assert rule.missing is missing


class TestEndsAndTexts:
    """A recurrence takes its end with it, and instants may be ISO text with an offset."""

    def test_until_and_max_firings_may_stand_in_the_word(self):
        start = "2026-01-01T09:00+01:00"

        inside = Timetable().daily(interval=2, starting=start, max_firings=3)
        behind = Timetable().daily(interval=2, starting=start).max_firings(3)

        assert inside == behind
        assert len(inside.preview(9, after=datetime(2025, 1, 1, tzinfo=UTC))) == 3

    @pytest.mark.parametrize("word", ["daily", "weekly", "monthly", "yearly"])
    def test_each_of_them_ends(self, word):
        rule = getattr(Timetable(), word)(until="2026-01-01T00:00Z")

        assert rule.next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None

    def test_text_without_an_offset_is_refused(self):
        with pytest.raises(NaiveDatetime):
            Timetable().once("2026-01-01T09:00")
