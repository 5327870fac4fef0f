"""Patterns: dicts as one seed writes them, symbols, and fields options anew over cron text."""

import pickle
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.fields import bits
from tickwork._domain.schedules.pattern import SYMBOLS, FieldTexts, Pattern
from tickwork._domain.schedules.rules import from_text
from tickwork.errors import InvalidSchedule
from tickwork.schedules import Timetable

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday

quickly = settings(max_examples=100, derandomize=True, database=None, deadline=None)


def first_of(rule, count=4, after=NEW_YEAR):
    return [f"{moment:%m-%d %H:%M:%S}" for moment in rule.preview(count, after=after)]


def dict_pattern(**fields):
    rule = Timetable().pattern(**fields).rule()
    assert isinstance(rule, Pattern)
    return rule


# ---------------------------------------------------------------- dict patterns

BOUNDS = {
    "minutes": ("minutes", range(60)),
    "hours": ("hours", range(24)),
    "mday": ("days", range(1, 32)),
    "wday": ("weekdays", range(7)),
    "mon": ("months", range(1, 13)),
    "year": ("years", range(1970, 9999)),
}


class TestDictPatterns:
    """All fields must match; omitted ones mean any, and the second is 0."""

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({}, ["01-01 00:01:00", "01-01 00:02:00"]),
            ({"minutes": "*"}, ["01-01 00:01:00", "01-01 00:02:00"]),
            ({"minutes": 5}, ["01-01 00:05:00", "01-01 01:05:00"]),
            ({"minutes": "5"}, ["01-01 00:05:00", "01-01 01:05:00"]),
            ({"minutes": "*/25"}, ["01-01 00:25:00", "01-01 00:50:00", "01-01 01:00:00"]),
            ({"minutes": "10-12"}, ["01-01 00:10:00", "01-01 00:11:00", "01-01 00:12:00"]),
            ({"minutes": "10-30/15"}, ["01-01 00:10:00", "01-01 00:25:00", "01-01 01:10:00"]),
            (
                {"minutes": "1,3,58-59"},
                [f"01-01 00:{minute}:00" for minute in ("01", "03", 58, 59)],
            ),
            ({"minutes": " 10 - 12 , 40 - 50 / 5 "}, ["01-01 00:10:00", "01-01 00:11:00"]),
            ({"minutes": [1, 30]}, ["01-01 00:01:00", "01-01 00:30:00", "01-01 01:01:00"]),
            ({"minutes": 0, "hours": "9-17"}, ["01-01 09:00:00", "01-01 10:00:00"]),
            (
                {"minutes": 0, "hours": 0, "mday": "*/10"},
                [f"01-{n} 00:00:00" for n in (10, 20, 30)],
            ),
            ({"minutes": 0, "hours": 0, "day": "*/10"}, [f"01-{n} 00:00:00" for n in (10, 20, 30)]),
            ({"minutes": 0, "hours": 0, "mday": "L"}, ["01-31 00:00:00", "02-28 00:00:00"]),
            ({"minutes": 0, "hours": 0, "wday": 0}, ["01-04 00:00:00", "01-11 00:00:00"]),
            ({"minutes": 0, "hours": 0, "wday": 7}, ["01-04 00:00:00", "01-11 00:00:00"]),
            ({"minutes": 0, "hours": 0, "wday": "6-7"}, ["01-03 00:00:00", "01-04 00:00:00"]),
            (
                {"minutes": 0, "hours": 0, "mday": 1, "mon": "*/3"},
                [f"{month} 00:00:00" for month in ("03-01", "06-01", "09-01", "12-01")],
            ),
            (
                {"minutes": 0, "hours": 0, "mday": 13, "wday": 5},
                ["02-13 00:00:00", "03-13 00:00:00", "11-13 00:00:00"],
            ),
        ],
    )
    def test_first_instants(self, fields, expected):
        assert first_of(dict_pattern(**fields), len(expected)) == expected

    def test_every_example_of_the_mission(self):
        rule = dict_pattern(minutes="*/15", hours="9-17", wday="1-5", year="2026-2030")

        assert first_of(rule, 2) == ["01-01 09:00:00", "01-01 09:15:00"]
        assert rule.count_between(NEW_YEAR, datetime(2030, 12, 31, tzinfo=UTC)) == (
            # 261 workdays in 2026, 2027 and 2029, 260 in 2028, and in 2030 without its last day
            (261 + 261 + 260 + 261 + 260) * 9 * 4
        )
        assert rule.next(datetime(2030, 12, 31, 18, tzinfo=UTC)) is None
        assert rule.prev(NEW_YEAR) is None

    @quickly
    @given(st.sampled_from(sorted(BOUNDS)), st.integers(1, 60))
    def test_a_star_with_a_step_is_every_value_that_the_step_divides(self, name, step):
        attribute, values = BOUNDS[name]
        divided = [value for value in values if value % step == 0]
        if not divided:
            with pytest.raises(InvalidSchedule, match="matches nothing"):
                dict_pattern(**{name: f"*/{step}"})
            return

        assert bits(getattr(dict_pattern(**{name: f"*/{step}"}).values, attribute)) == divided

    @quickly
    @given(st.sampled_from(sorted(BOUNDS)), st.data())
    def test_numbers_and_their_text_mean_the_same(self, name, data):
        attribute, values = BOUNDS[name]
        given_values = data.draw(st.sets(st.sampled_from(values), min_size=1, max_size=9))

        by_numbers = dict_pattern(**{name: given_values})
        by_text = dict_pattern(**{name: ",".join(map(str, given_values))})

        assert bits(getattr(by_numbers.values, attribute)) == sorted(given_values)
        assert by_numbers.values == by_text.values

    def test_a_fixed_time_of_day_runs_once_when_clocks_change(self):
        fixed = dict_pattern(minutes=30, hours=2)
        by_star = dict_pattern(minutes=30, hours="*")

        assert fixed.values.is_fixed
        assert not by_star.values.is_fixed


class TestBadPatterns:
    """Anything that does not parse is an error when it is defined."""

    @pytest.mark.parametrize(
        ("fields", "what"),
        [
            ({"minute": 5}, "A pattern has no field 'minute'."),
            ({"seconds": 5}, "A pattern has no field 'seconds'."),
            (
                {"mday": 1, "day": 2},
                "A pattern must set the day of the month once, got mday and day.",
            ),
            ({"minutes": 60}, "minute '60' is not in 0-59."),
            ({"hours": "24"}, "hour '24' is not in 0-23."),
            ({"mday": 0}, "day '0' is not in 1-31."),
            ({"mday": "0-5"}, "day '0-5' is not in 1-31."),
            ({"mon": 13}, "month '13' is not in 1-12."),
            ({"wday": 8}, "weekday '8' is not in 0-7."),
            ({"year": 1969}, "year '1969' is not in 1970-9998."),
            ({"year": 9999}, "year '9999' is not in 1970-9998."),
            ({"minutes": "60-5"}, "minute '60-5' is not in 0-59."),
            ({"hours": "22-2"}, "hour '22-2' runs backwards."),
            ({"minutes": "*/0"}, "minute '*/0' has a step of 0."),
            ({"minutes": "5-10/0"}, "minute '5-10/0' has a step of 0."),
            ({"mday": "*/40"}, "day '*/40' matches nothing in 1-31."),
            ({"minutes": "5/10"}, "minute '5/10' is not a pattern."),
            ({"minutes": ""}, "minute '' is not a pattern."),
            ({"minutes": []}, "minute '' is not a pattern."),
            ({"minutes": "a"}, "minute 'a' is not a pattern."),
            ({"minutes": "-5"}, "minute '-5' is not a pattern."),
            ({"minutes": -5}, "minute '-5' is not a pattern."),
            ({"minutes": [-5]}, "minute must not be negative, got -5."),
            ({"minutes": "1,,2"}, "minute '' is not a pattern."),
            ({"minutes": "1 0"}, "minute '1 0' is not a pattern."),
            ({"minutes": "٣"}, "minute '٣' is not a pattern."),
            ({"minutes": "1" * 50}, f"minute '{'1' * 29}...' is not a pattern."),
            ({"minutes": 2.5}, "minute must be an integer, got 2.5."),
            ({"minutes": [1, "2"]}, "minute must be an integer, got '2'."),
            ({"minutes": True}, "minute must be an integer, got True."),
            ({"minutes": [0] * 401}, "minute must have at most 400 values."),
            ({"minutes": 10**9}, "minute '1000000000' is not a pattern."),
            ({"minutes": [10**9]}, "minute '10000' is not in 0-59."),
            ({"mday": "LW"}, "day 'LW' is not a pattern."),
            ({"hours": "L"}, "hour 'L' is not a pattern."),
            ({"wday": "MON"}, "weekday 'MON' is not a pattern."),
        ],
    )
    def test_the_error_names_the_field_and_the_reason(self, fields, what):
        with pytest.raises(InvalidSchedule) as caught:
            Timetable().pattern(**fields)

        assert caught.value.what == what

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("hours", "22-2"),
            ("wday", "6-1"),
            ("wday", "7-2"),
            ("mday", "31-1"),
            ("minutes", "5/10"),
        ],
    )
    def test_the_cure_works(self, name, text):
        with pytest.raises(InvalidSchedule) as caught:
            Timetable().pattern(**{name: text})

        cure = caught.value.fix.removeprefix("Write '").removesuffix("'.")
        assert Timetable().pattern(**{name: cure}).next_after(NEW_YEAR) is not None

    def test_too_many_terms_are_an_error(self):
        with pytest.raises(InvalidSchedule):
            Timetable().pattern(minutes=",".join(["1"] * 1000))

    def test_an_unknown_zone_is_an_error(self):
        with pytest.raises(InvalidSchedule, match="There is no time zone 'Mars'"):
            Pattern.of(minute=0, tz="Mars")


# ---------------------------------------------------------------- symbols


class TestSymbols:
    """Five symbols have a fixed meaning, that of the seed they come from."""

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("EVERY_MINUTE", ["01-01 00:01:00", "01-01 00:02:00", "01-01 00:03:00"]),
            ("EVERY_HOUR", ["01-01 00:01:00", "01-01 01:01:00", "01-01 02:01:00"]),
            ("EVERY_DAY", ["01-01 02:10:00", "01-02 02:10:00", "01-03 02:10:00"]),
            ("EVERY_WEEK", ["01-05 06:20:00", "01-12 06:20:00", "01-19 06:20:00"]),
            ("EVERY_MONTH", ["01-01 01:30:00", "02-01 01:30:00", "03-01 01:30:00"]),
        ],
    )
    def test_first_instants(self, name, expected):
        assert first_of(Timetable().symbol(name), 3) == expected

    def test_these_are_all_and_cannot_be_changed(self):
        assert sorted(SYMBOLS) == [
            "EVERY_DAY",
            "EVERY_HOUR",
            "EVERY_MINUTE",
            "EVERY_MONTH",
            "EVERY_WEEK",
        ]
        with pytest.raises(TypeError):
            SYMBOLS["NIGHTLY"] = {}  # type: ignore[index]

    def test_the_error_for_an_unknown_symbol_lists_the_symbols(self):
        with pytest.raises(InvalidSchedule) as caught:
            Timetable().symbol("EVERY_DAI")

        assert caught.value.what == "There is no symbol 'EVERY_DAI'."
        assert all(name in caught.value.why for name in SYMBOLS)
        assert caught.value.fix == "Did you mean 'EVERY_DAY'?"

    def test_the_error_for_an_unknown_symbol_tells_how_to_add_it(self):
        with pytest.raises(InvalidSchedule) as caught:
            Timetable().symbol("xyz")

        assert "app.symbols" in caught.value.fix


# ---------------------------------------------------------------- over cron text


class TestOverCronText:
    """A field replaces the field of the expression; then both day fields must match."""

    def refined(self, expr, key=None, **options):
        return Pattern(FieldTexts(**options), cron=expr, key=key)

    def test_other_fields_stay_as_in_the_expression(self):
        rule = self.refined("*/20 9 * * *", hour="12-13")

        assert first_of(rule) == [f"01-01 {at}:00" for at in ("12:00", "12:20", "12:40", "13:00")]

    def test_without_fields_it_matches_the_expression(self):
        rule = self.refined("30 */6 13 2-3 FRI")

        assert rule.values == Cron.parse("30 */6 13 2-3 FRI").values

    @pytest.mark.parametrize(
        ("expr", "options", "is_either"),
        [
            ("0 0 13 * 5", {}, True),
            ("0 0 13 * 5", {"hour": "9"}, True),
            ("0 0 13 * 5", {"day": "13"}, False),
            ("0 0 13 * 5", {"weekday": "5"}, False),
            ("0 0 13 * *", {"weekday": "5"}, False),
            ("0 0 * * 5", {"day": "13"}, False),
        ],
    )
    def test_either_matches_only_where_both_day_fields_come_from_the_text(
        self, expr, options, is_either
    ):
        friday_the_13th = ["02-13", "03-13", "11-13"]

        rule = self.refined(expr, **options)

        assert rule.values.is_either is is_either
        if not is_either:
            assert [at[:5] for at in first_of(rule, 3)] == friday_the_13th

    @pytest.mark.parametrize(
        ("expr", "options", "days"),
        [
            ("0 0 LW * *", {"day": "1"}, ["02-01", "03-01"]),
            ("0 0 15W * *", {"day": "1"}, ["02-01", "03-01"]),
            ("0 0 1 * *", {"day": "L"}, ["01-31", "02-28"]),
            ("0 0 L * *", {"day": "2"}, ["01-02", "02-02"]),
            ("0 0 * * 5L", {"weekday": "1"}, ["01-05", "01-12"]),
            ("0 0 * * 5#2", {"weekday": "1"}, ["01-05", "01-12"]),
            ("0 0 L * *", {"month": "2"}, ["02-28", "02-28"]),
            ("0 0 * * 5L", {"month": "2"}, ["02-27", "02-26"]),
        ],
    )
    def test_days_without_a_number_go_with_their_field(self, expr, options, days):
        assert [at[:5] for at in first_of(self.refined(expr, **options), 2)] == days

    @pytest.mark.parametrize(
        ("expr", "options", "is_fixed"),
        [
            ("30 2 * * *", {}, True),
            ("30 2 * * *", {"hour": "*"}, False),
            ("30 * * * *", {"hour": "2"}, True),
            ("* * * * * *", {"hour": "2", "minute": "30"}, False),
            ("* * * * * *", {"hour": "2", "minute": "30", "second": "0"}, True),
        ],
    )
    def test_it_is_a_fixed_time_when_no_time_field_begins_with_a_star(
        self, expr, options, is_fixed
    ):
        assert self.refined(expr, **options).values.is_fixed is is_fixed

    def test_a_year_can_be_added(self):
        rule = self.refined("0 0 1 1 *", year="2030")

        assert rule.next(NEW_YEAR) == datetime(2030, 1, 1, tzinfo=UTC)

    def test_a_hash_keeps_its_key(self):
        rule = self.refined("H H * * *", key="nightly", day="1")

        assert rule.values.minutes == Cron.parse("H H * * *", key="nightly").values.minutes
        assert from_text(rule.to_text()) == rule


# ---------------------------------------------------------------- a value


class TestValue:
    """A pattern is a value: equal to its copies, also after pickling."""

    PATTERNS = (
        Pattern.of(minute=0, hour=9),
        Pattern.of(second="*/10", weekday=[1, 2, 3]),
        Pattern.of(minute=0, day="L", year=range(2026, 2030), tz="Asia/Tokyo"),
        Pattern(FieldTexts(hour="9"), cron="*/5 * 1 * 5"),
        Pattern(FieldTexts(hour="9"), cron="H * * * *", key="job"),
        Pattern(FieldTexts(hour="9"), cron="H * * * *", key="other job"),
        Pattern(FieldTexts(hour="9"), cron="H * * * *", key="job", tz="Europe/Berlin"),
    )

    @pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
    def test_it_survives_text_and_pickle(self, pattern):
        for copy in (from_text(pattern.to_text()), pickle.loads(pickle.dumps(pattern))):
            assert copy == pattern
            assert hash(copy) == hash(pattern)
            assert copy.to_text() == pattern.to_text()
            assert copy.preview(3, after=NEW_YEAR) == pattern.preview(3, after=NEW_YEAR)

    def test_all_of_these_differ(self):
        assert len(set(self.PATTERNS)) == len(self.PATTERNS)
        assert len({pattern.to_text() for pattern in self.PATTERNS}) == len(self.PATTERNS)

    def test_a_cron_is_no_pattern(self):
        assert Pattern(FieldTexts(), cron="0 9 * * *") != Cron.parse("0 9 * * *")

    def test_ways_to_say_the_same_are_equal(self):
        assert Pattern.of(hour=range(9, 18)) == Pattern.of(hour="9-17")
        assert Pattern.of(hour={3, 1, 2}) == Pattern.of(hour=[1, 2, 3])
        assert Pattern.of(tz=ZoneInfo("Asia/Tokyo")) == Pattern.of(tz="Asia/Tokyo")

    def test_nothing_about_it_can_be_changed(self):
        with pytest.raises(AttributeError, match="Pattern is immutable"):
            Pattern.of(minute=0).fields = FieldTexts()

    def test_its_repr_shows_the_fields(self):
        assert repr(Pattern.of(minute="*/5")) == "Pattern(second='0', minute='*/5', tz='UTC')"
        assert repr(Pattern(FieldTexts(hour="9"), cron="0 0 * * *", tz="Asia/Tokyo")) == (
            "Pattern(cron='0 0 * * *', hour='9', tz='Asia/Tokyo')"
        )

    def test_the_second_is_0_by_default(self):
        assert first_of(Pattern.of(minute=5), 1) == ["01-01 00:05:00"]
        assert first_of(Pattern.of(second=None, minute=5), 2) == [
            "01-01 00:05:00",
            "01-01 00:05:01",
        ]
        assert first_of(Pattern.of(second=30, minute=5), 1) == ["01-01 00:05:30"]
