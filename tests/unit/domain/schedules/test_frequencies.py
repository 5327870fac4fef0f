"""The methods of a timetable: what each one means, and how they combine."""

# ruff: noqa: E501  # tables

from datetime import UTC, date, datetime, time, timedelta
from itertools import permutations
from zoneinfo import ZoneInfo

import pytest

from tickwork._domain.schedules.bounds import Bounded, Windowed
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.frequencies import Frequencies
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.pattern import Pattern
from tickwork._domain.schedules.recurrence import Missing, Recurrence
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.timing import Timing
from tickwork.errors import CronError, InvalidDuration, InvalidSchedule, NaiveDatetime
from tickwork.schedules import Timetable

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


# ---------------------------------------------------------------- frequencies

# A call and its first firings from New Year 2026 on. A date is written when it changes, a year
# when it is not 2026.
FREQUENCIES = """
every_second() -> 00:00:00, 00:00:01, 00:00:02
every_two_seconds() -> 00:00:00, 00:00:02, 00:00:04
every_five_seconds() -> 00:00:00, 00:00:05, 00:00:10
every_ten_seconds() -> 00:00:00, 00:00:10, 00:00:20
every_fifteen_seconds() -> 00:00:00, 00:00:15, 00:00:30, 00:00:45, 00:01:00
every_twenty_seconds() -> 00:00:00, 00:00:20, 00:00:40, 00:01:00
every_thirty_seconds() -> 00:00:00, 00:00:30, 00:01:00
every_minute() -> 00:00:00, 00:01:00, 00:02:00
every_two_minutes() -> 00:00:00, 00:02:00, 00:04:00
every_three_minutes() -> 00:00:00, 00:03:00, 00:06:00
every_four_minutes() -> 00:00:00, 00:04:00, 00:08:00
every_five_minutes() -> 00:00:00, 00:05:00, 00:10:00
every_ten_minutes() -> 00:00:00, 00:10:00, 00:20:00
every_fifteen_minutes() -> 00:00:00, 00:15:00, 00:30:00, 00:45:00, 01:00:00
every_twenty_minutes() -> 00:00:00, 00:20:00, 00:40:00, 01:00:00
every_thirty_minutes() -> 00:00:00, 00:30:00, 01:00:00
hourly() -> 00:00:00, 01:00:00, 02:00:00
every_hour() -> 00:00:00, 01:00:00, 02:00:00
hourly_at(17) -> 00:17:00, 01:17:00, 02:17:00
hourly_at(0, 30) -> 00:00:00, 00:30:00, 01:00:00
hourly_at([5, 10]) -> 00:05:00, 00:10:00, 01:05:00
hourly_at('5-7') -> 00:05:00, 00:06:00, 00:07:00, 01:05:00
hourly_at(1, [2, 3], '58-59') -> 00:01:00, 00:02:00, 00:03:00, 00:58:00
hourly_at() -> 00:00:00, 01:00:00, 02:00:00
every_two_hours() -> 00:00:00, 02:00:00, 04:00:00
every_three_hours() -> 00:00:00, 03:00:00, 06:00:00
every_four_hours() -> 00:00:00, 04:00:00, 08:00:00
every_six_hours() -> 00:00:00, 06:00:00, 12:00:00, 18:00:00
daily() -> 00:00:00, 01-02 00:00:00, 01-03 00:00:00
daily(interval=2, starting=NEW_YEAR + timedelta(hours=9)) -> 09:00:00, 01-03 09:00:00, 01-05 09:00:00
daily(starting='2026-01-02T09:00Z') -> 01-02 09:00:00, 01-03 09:00:00
daily_at('13:00') -> 13:00:00, 01-02 13:00:00
daily_at('9') -> 09:00:00, 01-02 09:00:00
daily_at('9:05:07') -> 09:05:07, 01-02 09:05:07
daily_at(time(23, 59, 59)) -> 23:59:59, 01-02 23:59:59
twice_daily() -> 01:00:00, 13:00:00
twice_daily(1, 13) -> 01:00:00, 13:00:00
twice_daily(20, 8) -> 08:00:00, 20:00:00
weekly() -> 01-04 00:00:00, 01-11 00:00:00, 01-18 00:00:00
weekly(interval=2, starting='2026-01-06T09:00Z') -> 01-06 09:00:00, 01-20 09:00:00, 02-03 09:00:00
weekly(weekdays=[1, 4], starting='2026-01-06T09:00Z') -> 01-08 09:00:00, 01-12 09:00:00, 01-15 09:00:00
weekly(interval=2, weekdays=5, starting=NEW_YEAR) -> 01-02 00:00:00, 01-16 00:00:00, 01-30 00:00:00
weekly_on(1, '8:00') -> 01-05 08:00:00, 01-12 08:00:00
weekly_on(0) -> 01-04 00:00:00, 01-11 00:00:00
weekly_on(7) -> 01-04 00:00:00, 01-11 00:00:00
weekly_on([1, 3], '8:00') -> 01-05 08:00:00, 01-07 08:00:00, 01-12 08:00:00
monthly() -> 00:00:00, 02-01 00:00:00, 03-01 00:00:00
monthly(interval=2, starting='2026-01-31T09:00Z') -> 01-31 09:00:00, 03-31 09:00:00, 05-31 09:00:00
monthly(starting='2026-01-31T00:00Z') -> 01-31 00:00:00, 02-28 00:00:00, 03-31 00:00:00, 04-30 00:00:00
monthly(starting='2026-01-31T00:00Z', missing='skip') -> 01-31 00:00:00, 03-31 00:00:00, 05-31 00:00:00
monthly_on(4, '15:00') -> 01-04 15:00:00, 02-04 15:00:00
monthly_on() -> 00:00:00, 02-01 00:00:00
monthly_on(31) -> 01-31 00:00:00, 03-31 00:00:00, 05-31 00:00:00
monthly_on([4, 20]) -> 01-04 00:00:00, 01-20 00:00:00, 02-04 00:00:00
twice_monthly() -> 00:00:00, 01-16 00:00:00, 02-01 00:00:00
twice_monthly(1, 16) -> 00:00:00, 01-16 00:00:00, 02-01 00:00:00
twice_monthly(5, 20, '13:00') -> 01-05 13:00:00, 01-20 13:00:00
last_day_of_month() -> 01-31 00:00:00, 02-28 00:00:00, 03-31 00:00:00, 04-30 00:00:00
last_day_of_month('18:00') -> 01-31 18:00:00, 02-28 18:00:00
quarterly() -> 00:00:00, 04-01 00:00:00, 07-01 00:00:00, 10-01 00:00:00
yearly() -> 00:00:00, 2027-01-01 00:00:00
yearly(interval=2, starting='2026-06-01T09:00Z') -> 06-01 09:00:00, 2028-06-01 09:00:00
yearly_on(6, 1, '17:00') -> 06-01 17:00:00, 2027-06-01 17:00:00
yearly_on(6) -> 06-01 00:00:00, 2027-06-01 00:00:00
yearly_on(2, 29) -> 2028-02-29 00:00:00, 2032-02-29 00:00:00
cron('*/5 0 9 * * 1-5') -> 09:00:00, 09:00:05, 09:00:10
cron('@daily') -> 00:00:00, 01-02 00:00:00
pattern(minutes='*/15', hours=9) -> 09:00:00, 09:15:00, 09:30:00
symbol('EVERY_DAY') -> 02:10:00, 01-02 02:10:00
every(minutes=15, starting=NEW_YEAR) -> 00:00:00, 00:15:00, 00:30:00
every(hours=5, starting=NEW_YEAR - timedelta(hours=1)) -> 04:00:00, 09:00:00, 14:00:00
every(days=1, hours=2, minutes=3, seconds=4, starting=NEW_YEAR) -> 00:00:00, 01-02 02:03:04, 01-03 04:06:08
once(NOON) -> 06-10 12:34:56
on(Cron.parse('0 9 * * *')) -> 09:00:00, 01-02 09:00:00
on(Timetable().hourly()) -> 00:00:00, 01:00:00
"""
NAMES = {"UTC": UTC, "datetime": datetime, "time": time, "timedelta": timedelta}
NAMES |= {"Cron": Cron, "Timetable": Timetable, "NEW_YEAR": NEW_YEAR, "NOON": NOON, "date": date}
CASES = [tuple(line.split(" -> ")) for line in FREQUENCIES.strip().splitlines()]
METHODS = dict(reversed([(call.partition("(")[0], call) for call, _ in CASES]))


def build(call, chain=None):
    return eval("chain." + call, NAMES, {"chain": chain or Timetable()})


def parse_times(text):
    day, found = "01-01", []
    for each in text.split(", "):
        day = each[:-9] or day
        found.append(f"{'2026-' * (len(day) == 5)}{day} {each[-8:]}")
    return found


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
    """Each method has exactly these first firings."""

    @pytest.mark.parametrize(("call", "expected"), CASES)
    def test_first_firings(self, call, expected):
        times_expected = parse_times(expected)

        assert first_of(build(call), len(times_expected)) == times_expected

    @pytest.mark.parametrize(("word", "expected"), WEEKDAY_WORDS.items())
    def test_weekdays_alone_mean_midnight(self, word, expected):
        assert first_of(getattr(Timetable(), word)(), len(expected)) == days(*expected)

    def test_every_method_has_a_case(self):
        words = {name for name in vars(Frequencies) if not name.startswith("_")}

        assert words == {*METHODS, *WEEKDAY_WORDS, *FIELD_WORDS, *OTHER_WORDS}

    def test_a_method_returns_a_new_timetable(self):
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
    def test_a_timetable_builds_a_rule_that_can_be_stored(self, say, kind):
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
    """Methods that refine a frequency."""

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
    def test_smaller_fields_become_0_and_larger_ones_match_any_value(self, word, expected):
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

    def test_weekdays_set_only_the_weekday_field(self):
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

    def test_weekdays_add_up(self):
        assert first_of(Timetable().mondays().fridays()) == days("01-02", "01-05", "01-09")
        assert first_of(Timetable().weekdays().saturdays(), 7) == days(
            "01-01", "01-02", "01-03", "01-05", "01-06", "01-07", "01-08"
        )

    def test_weekly_mondays_is_monday(self):
        assert first_of(Timetable().weekly().mondays()) == days("01-05", "01-12", "01-19")

    def test_weekly_is_sunday_at_midnight(self):
        assert first_of(Timetable().weekly(), 1) == days("01-04")

    @pytest.mark.parametrize("length", ["90m", "1h30m", timedelta(minutes=90), 5400])
    def test_every_takes_a_length_of_time(self, length):
        assert Timetable().every(length) == Timetable().every(minutes=90)

    def test_every_takes_one_length_only(self):
        with pytest.raises(InvalidSchedule, match="one length of time"):
            Timetable().every("90m", seconds=5)

    def test_every_names_what_is_not_a_length_of_time(self):
        with pytest.raises(InvalidDuration, match="soon"):
            Timetable().every("soon")

    def test_every_hour_is_an_alias_of_hourly(self):
        assert Timetable().every_hour().rule() == Timetable().hourly().rule()

    def test_every_is_for_other_numbers_of_hours(self):
        assert not hasattr(Timetable(), "every_five_hours")
        assert first_of(Timetable().every(hours=5, starting=NEW_YEAR)) == times(
            "00:00:00", "05:00:00", "10:00:00"
        )

    @pytest.mark.parametrize("second", METHODS)
    def test_two_frequencies_are_an_error_that_names_both(self, second):
        chain = Timetable().daily_at("13:00")

        with pytest.raises(InvalidSchedule) as caught:
            build(METHODS[second], chain)

        assert caught.value.what == (
            f"daily_at() and {second}() both set the frequency of one schedule."
        )

    @pytest.mark.parametrize(
        "calls",
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
    def test_order_does_not_matter(self, calls):
        rules = set()
        for order in permutations(calls):
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
    """Windows, dates and ends remove firings; they never add one."""

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

    def test_max_firings_counts_firings_inside_of_windows(self):
        chain = Timetable().hourly().between("9", "9").starting(NEW_YEAR).max_firings(2)

        assert first_of(chain, 9) == days("01-01", "01-02", at="09:00:00")

    def test_the_last_call_wins(self):
        chain = Timetable().daily().starting(NOON).starting(NEW_YEAR).max_firings(9).max_firings(1)

        assert first_of(chain, 9) == days("01-01")


# ---------------------------------------------------------------- zones, keys, anchors


class TestZone:
    """A timetable uses its own time zone, or else the zone of the app."""

    def test_the_default_is_utc(self):
        assert Timetable().hourly().tz == "UTC"

    def test_a_given_zone_overrides_the_default(self):
        options = Timing(zone="Asia/Tokyo").refine("hour", 9)

        assert options.rule(tz="Europe/Berlin").tz == "Asia/Tokyo"
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
    """H hashes the name of the schedule, which a timetable does not know."""

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

    def test_a_missing_key_is_an_error(self):
        with pytest.raises(CronError, match="needs the name of the schedule"):
            Timetable().cron("H H * * *").rule()


class TestAnchor:
    """A rule counts from a given time, or from its registration."""

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

    def test_the_error_names_the_method(self):
        with pytest.raises(InvalidSchedule, match=r"^every\(\) needs a time"):
            Timetable().every(minutes=5).rule()
        with pytest.raises(InvalidSchedule, match=r"^max_firings\(\) needs a time"):
            Timetable().mondays().max_firings(3).rule()

    def test_an_interval_counts_from_the_anchor_itself(self):
        rule = Timetable().every(minutes=5).timing.rule(anchor=NOON)

        assert rule == Interval(length=timedelta(minutes=5), anchor=NOON)

    def test_the_method_starting_means_the_same_as_the_argument(self):
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

    def test_the_registration_does_not_move_a_given_anchor(self):
        chain = Timetable().every(minutes=7, starting=NEW_YEAR).max_firings(3)

        assert chain.timing.rule(anchor=NOON) == chain.rule()
        assert first_of(chain, 9) == times("00:00:00", "00:07:00", "00:14:00")

    def test_max_firings_counts_from_the_registration_by_default(self):
        rule = Timetable().hourly().max_firings(2).timing.rule(anchor=NOON)

        assert first_of(rule, 9) == ["2026-06-10 13:00:00", "2026-06-10 14:00:00"]


# ---------------------------------------------------------------- bad input


BAD_CALLS = """
daily_at('25:00') -> '25:00' is not a time of day.
daily_at('24:00') -> '24:00' is not a time of day.
daily_at('9:60') -> '9:60' is not a time of day.
daily_at('noon') -> 'noon' is not a time of day.
daily_at('') -> '' is not a time of day.
daily_at(13) -> 13 is not a time of day.
daily_at(None) -> None is not a time of day.
daily_at(time(9, tzinfo=UTC)) -> A time of day must have whole seconds and no time zone, got 09:00:00+00:00.
daily_at(time(9, 0, 0, 5)) -> A time of day must have whole seconds and no time zone, got 09:00:00.000005.
hourly_at(60) -> minute '60' is not in 0-59.
twice_daily(1, 24) -> hour '24' is not in 0-23.
weekly_on(8) -> weekday '8' is not in 0-7.
monthly_on(32) -> day '32' is not in 1-31.
yearly_on(13) -> month '13' is not in 1-12.
seconds(60) -> second '60' is not in 0-59.
hours() -> hours() needs at least one value.
hours(None) -> hours() needs at least one value.
hours([]) -> hour '' is not a pattern.
hours(9.5) -> hour must be an integer, got 9.5.
months('JAN') -> month 'JAN' is not a pattern.
between('9', '25') -> '25' is not a time of day.
between(9, 17) -> 9 is not a time of day.
except_on('2026-02-30') -> '2026-02-30' is not a date.
except_on(5) -> 5 is not a date.
except_on(NEW_YEAR) -> 2026-01-01 00:00:00+00:00 is a datetime, not a date.
timezone('Mars') -> There is no time zone 'Mars'.
max_firings(0) -> max_firings must be between 1 and 100,000, got 0.
max_firings(-1) -> max_firings must be between 1 and 100,000, got -1.
max_firings(100001) -> max_firings must be between 1 and 100,000, got 100001.
max_firings(2.5) -> max_firings must be between 1 and 100,000, got 2.5.
once('next week') -> 'next week' is not a time.
until('tomorrow') -> 'tomorrow' is not a time.
starting(date(2026, 1, 1)) -> datetime.date(2026, 1, 1) is not a time.
once(datetime.max.replace(tzinfo=UTC)) -> 9999-12-31 23:59:59.999999+00:00 is not in the years 2 to 9998.
every() -> An interval must be a positive whole number of seconds, got 0:00:00.
every(seconds=0.5) -> An interval must be a positive whole number of seconds, got 0:00:00.500000.
every(minutes=-1) -> An interval must be a positive whole number of seconds, got -1 day, 23:59:00.
daily(interval=0) -> interval must be between 1 and 10,000, got 0.
daily(interval=1.5) -> interval must be between 1 and 10,000, got 1.5.
daily(interval='2') -> interval must be between 1 and 10,000, got '2'.
weekly(weekdays=[8]) -> weekdays must be between 0 and 7, got (8,).
weekly(weekdays=['mon']) -> weekdays must be between 0 and 7, got ('mon',).
monthly(interval=2, missing='x') -> missing must be 'clamp' or 'skip', got 'x'.
on('hourly') -> on() needs a rule, got 'hourly'.
symbol('NIGHTLY') -> There is no symbol 'NIGHTLY'.
"""


class TestBadInput:
    """An invalid value is an error in the call that passes it."""

    @pytest.mark.parametrize(
        ("call", "message"), [line.split(" -> ") for line in BAD_CALLS.strip().splitlines()]
    )
    def test_an_invalid_value_is_an_error_at_once(self, call, message):
        with pytest.raises(InvalidSchedule) as caught:
            build(call)

        assert caught.value.what == message

    @pytest.mark.parametrize(
        "length", [{"seconds": float("nan")}, {"minutes": "5"}, {"days": None}]
    )
    def test_an_invalid_length_of_time_is_an_error(self, length):
        with pytest.raises(InvalidSchedule, match="needs a length of time"):
            Timetable().every(**length)

    def test_a_length_of_time_that_is_too_long_is_an_error(self):
        with pytest.raises(InvalidSchedule, match="must be at most 36,500 days"):
            Timetable().every(hours=1e300)

    def test_a_cron_expression_is_parsed_at_once(self):
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
    def test_a_naive_datetime_is_an_error_at_once(self, say):
        with pytest.raises(NaiveDatetime):
            say(Timetable(), datetime(2026, 1, 1))

    @pytest.mark.parametrize(
        "chain", [Timetable(), Timetable().between("9", "17"), Timetable().timezone("Asia/Tokyo")]
    )
    def test_an_empty_timetable_has_no_rule(self, chain):
        assert not chain.timing.has_rule
        with pytest.raises(InvalidSchedule, match="The schedule is empty"):
            chain.rule()

    @pytest.mark.parametrize("chain", [Timetable().hourly(), Timetable().mondays()])
    def test_a_timetable_with_a_frequency_or_weekdays_has_a_rule(self, chain):
        assert chain.timing.has_rule

    @pytest.mark.parametrize("missing", list(Missing))
    def test_missing_is_clamp_or_skip(self, missing):
        rule = Timetable().monthly(interval=2, starting=NOON, missing=missing).rule()

        assert isinstance(rule, Recurrence)
        assert rule.missing is missing


class TestEndsAndTexts:
    """A recurrence takes its end as an argument, and times may be ISO text with an offset."""

    def test_until_and_max_firings_can_be_arguments(self):
        start = "2026-01-01T09:00+01:00"

        inside = Timetable().daily(interval=2, starting=start, max_firings=3)
        behind = Timetable().daily(interval=2, starting=start).max_firings(3)

        assert inside == behind
        assert len(inside.preview(9, after=datetime(2025, 1, 1, tzinfo=UTC))) == 3

    @pytest.mark.parametrize("word", ["daily", "weekly", "monthly", "yearly"])
    def test_each_of_them_ends(self, word):
        rule = getattr(Timetable(), word)(until="2026-01-01T00:00Z")

        assert rule.next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None

    def test_text_without_an_offset_is_an_error(self):
        with pytest.raises(NaiveDatetime):
            Timetable().once("2026-01-01T09:00")
