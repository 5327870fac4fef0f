"""``run`` in a configuration file: when a job is due."""

import tomllib
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._calendars.calendars import NO_CALENDARS
from tickwork._config.config_rule import (
    BOUNDS,
    FREQUENCIES,
    REFINEMENTS,
    RULE_METHODS,
    WITHOUT_ARGUMENTS,
    read_timing,
)
from tickwork._config.toml_document import Document
from tickwork._domain.schedules.frequencies import Frequencies
from tickwork._domain.schedules.pattern import PATTERN_FIELDS, SYMBOLS
from tickwork._domain.schedules.timing import Timing
from tickwork.errors import ConfigError, InvalidSchedule, TickworkError
from tickwork.schedules import Timetable

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
CHAIN = Timetable()


def timing_of(run: str, symbols: Any = SYMBOLS) -> Timing | None:
    document = Document("tickwork.toml", f"run = {run}\n")
    timing = read_timing(document, ("run",), document.content["run"], symbols, NO_CALENDARS)
    document.raise_problems()
    return timing


def problems_of(run: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        timing_of(run)
    return [problem.removeprefix("line 1: ") for problem in caught.value.faults]


class TestStrings:
    """A string is a symbol, a cron expression, or a frequency without arguments."""

    @pytest.mark.parametrize(
        ("run", "chain"),
        [
            ('"EVERY_DAY"', CHAIN.symbol("EVERY_DAY")),
            ('"*/5 9-17 * * MON-FRI"', CHAIN.cron("*/5 9-17 * * MON-FRI")),
            ('"0 */5 9 * * 1"', CHAIN.cron("0 */5 9 * * 1")),
            ('"@daily"', CHAIN.cron("@daily")),
            ('"H H * * *"', CHAIN.cron("H H * * *")),
            ('" hourly "', CHAIN.hourly()),
            ('"every_five_minutes"', CHAIN.every_five_minutes()),
            ('"weekly"', CHAIN.weekly()),
            ('"twice_daily"', CHAIN.twice_daily()),
        ],
    )
    def test_it_equals_the_rule_of_the_builder(self, run, chain):
        assert timing_of(run) == chain.timing

    def test_a_symbol_of_the_application(self):
        timing = timing_of('"NIGHTLY"', {"NIGHTLY": {"minutes": 30, "hours": 3}})

        assert timing is not None
        assert timing.base == CHAIN.pattern(minutes=30, hours=3).timing.base

    @pytest.mark.parametrize(
        ("run", "problem"),
        [
            (
                '"EVERY_DYA"',
                "not a symbol, a frequency or a cron expression. Did you mean 'EVERY_DAY'?",
            ),
            ('"every_five_minute"', "Did you mean 'every_five_minutes'?"),
            ('"daily_at"', "'daily_at' needs arguments: run = { daily_at = ... }."),
            ('"weekdays"', "'weekdays' needs arguments"),
            ('"xyz"', "The symbols are EVERY_MINUTE, EVERY_HOUR"),
            ('""', "not a symbol, a frequency"),
            (
                '"61 * * * *"',
                "Invalid cron expression '61 * * * *': minute (field 1) '61' is not in 0-59",
            ),
            ('"@dialy"', "Invalid cron expression"),
            ("5", "run must be a string or a table, got 5."),
            ('["@daily"]', "run must be a string or a table, got ['@daily']."),
        ],
    )
    def test_any_other_value_is_a_problem(self, run, problem):
        [found] = problems_of(run)

        assert problem in found


class TestPatterns:
    """A table without a frequency is a pattern: all given fields must match."""

    @pytest.mark.parametrize(
        ("run", "chain"),
        [
            (
                '{ minutes = "*/15", hours = "9-17", wday = "1-5" }',
                CHAIN.pattern(minutes="*/15", hours="9-17", wday="1-5"),
            ),
            (
                "{ minutes = 0, hours = [9, 12], mday = 1 }",
                CHAIN.pattern(minutes=0, hours=[9, 12], mday=1),
            ),
            ('{ mon = "*/3", year = 2026, day = 1 }', CHAIN.pattern(mon="*/3", year=2026, day=1)),
            (
                '{ minutes = 10, timezone = "Europe/Berlin", between = ["9", "17"] }',
                CHAIN.pattern(minutes=10).timezone("Europe/Berlin").between("9", "17"),
            ),
        ],
    )
    def test_it_equals_the_rule_of_the_builder(self, run, chain):
        assert timing_of(run) == chain.timing

    def test_hours_alone_match_every_minute_of_them(self):
        timing = timing_of("{ hours = 9 }")

        assert timing is not None
        assert timing.rule().describe() == "every minute during hour 9 (UTC)"

    def test_every_invalid_field_is_reported(self):
        found = sorted(problems_of('{ minutes = 60, hour = 9, wday = "x", timezone = "X" }'))

        assert [problem.partition(".")[0] for problem in found] == [
            "There is no time zone 'X'",
            "Unknown key 'hour'",
            "minute '60' is not in 0-59",
            "weekday 'x' is not a pattern",
        ]

    @pytest.mark.parametrize(
        ("run", "problem"),
        [
            ("{ day = 1, mday = 2 }", "must set the day of the month once"),
            ("{ minutes = true }", "minute must be an integer, got True."),
            ("{ minutes = 2.5 }", "minute must be an integer, got 2.5."),
            (
                "{ hours = 9, weekdays = true }",
                "'weekdays' refines a frequency, and this run has none.",
            ),
            ("{ mondays = true }", "'mondays' refines a frequency"),
            ("{ days = 1, minutes = 0 }", "'days' refines a frequency"),
            ("{}", "This run has no frequency."),
            ("{ daily = false }", "This run has no frequency."),
            ('{ timezone = "UTC" }', "This run has no frequency."),
        ],
    )
    def test_an_invalid_pattern(self, run, problem):
        assert any(problem in found for found in problems_of(run))


# Every method of the builder, in a file and in code.
METHOD_CASES = [
    ('{ cron = "0 9 * * *" }', CHAIN.cron("0 9 * * *")),
    ("{ pattern = { minutes = 5 } }", CHAIN.pattern(minutes=5)),
    ('{ symbol = "EVERY_DAY" }', CHAIN.symbol("EVERY_DAY")),
    ("{ every = { minutes = 15 } }", CHAIN.every(minutes=15)),
    ('{ every = "1h30m" }', CHAIN.every(minutes=90)),
    (
        "{ every = { hours = 5, starting = 2026-01-01T09:00:00Z } }",
        CHAIN.every(hours=5, starting=START),
    ),
    ('{ every = "5h", starting = 2026-01-01T09:00:00Z }', CHAIN.every(hours=5).starting(START)),
    ("{ once = 2026-01-01T09:00:00Z }", CHAIN.once(START)),
    ('{ once = "2026-01-01T10:00+01:00" }', CHAIN.once(START)),
    ("{ hourly_at = 17 }", CHAIN.hourly_at(17)),
    ("{ hourly_at = [15, 45] }", CHAIN.hourly_at(15, 45)),
    ("{ daily = { interval = 2 } }", CHAIN.daily(interval=2)),
    (
        "{ daily = { interval = 2, starting = 2026-01-01T09:00:00Z, max_firings = 3 } }",
        CHAIN.daily(interval=2, starting=START, max_firings=3),
    ),
    ('{ daily_at = "13:00" }', CHAIN.daily_at("13:00")),
    ("{ daily_at = 13:00:00 }", CHAIN.daily_at(time(13))),
    ("{ twice_daily = [1, 13] }", CHAIN.twice_daily(1, 13)),
    ("{ weekly = { interval = 2, weekdays = [1, 3] } }", CHAIN.weekly(interval=2, weekdays=[1, 3])),
    ("{ weekly_on = 1 }", CHAIN.weekly_on(1)),
    ('{ weekly_on = [1, "8:00"] }', CHAIN.weekly_on(1, "8:00")),
    ('{ weekly_on = { weekday = "1-5", at = "8:00" } }', CHAIN.weekly_on("1-5", "8:00")),
    ('{ monthly = { interval = 3, missing = "skip" } }', CHAIN.monthly(interval=3, missing="skip")),
    ('{ monthly_on = [4, "15:00"] }', CHAIN.monthly_on(4, "15:00")),
    ('{ monthly_on = [[1, 15], "15:00"] }', CHAIN.monthly_on([1, 15], "15:00")),
    ('{ twice_monthly = [1, 16, "8:00"] }', CHAIN.twice_monthly(1, 16, "8:00")),
    ('{ last_day_of_month = "17:00" }', CHAIN.last_day_of_month("17:00")),
    ("{ yearly = { interval = 2 } }", CHAIN.yearly(interval=2)),
    ('{ yearly_on = [6, 1, "17:00"] }', CHAIN.yearly_on(6, 1, "17:00")),
    ("{ every_minute = true, seconds = [0, 30] }", CHAIN.every_minute().seconds([0, 30])),
    (
        '{ every_five_minutes = true, hours = "9-17", weekdays = true }',
        CHAIN.every_five_minutes().hours("9-17").weekdays(),
    ),
    ("{ hourly = true, minutes = 30, days = [1, 15] }", CHAIN.hourly().minutes(30).days([1, 15])),
    ("{ daily = true, hours = [9, 12], months = 6 }", CHAIN.daily().hours([9, 12]).months(6)),
    ("{ daily = true, mondays = true, fridays = true }", CHAIN.daily().mondays().fridays()),
    ("{ daily = true, mondays = true, fridays = false }", CHAIN.daily().mondays()),
    ("{ daily = true, weekends = true }", CHAIN.daily().weekends()),
    *(
        (f"{{ daily = true, {day} = true }}", getattr(CHAIN.daily(), day)())
        for day in ("sundays", "tuesdays", "wednesdays", "thursdays", "saturdays")
    ),
    ('{ daily = true, timezone = "Europe/Berlin" }', CHAIN.daily().timezone("Europe/Berlin")),
    ('{ hourly = true, between = ["09:00", "17:00"] }', CHAIN.hourly().between("09:00", "17:00")),
    (
        '{ hourly = true, between = [["9", "12"], ["13", "17"]] }',
        CHAIN.hourly().between("9", "12").between("13", "17"),
    ),
    (
        '{ hourly = true, unless_between = { first = "23:00", last = "01:00" } }',
        CHAIN.hourly().unless_between("23:00", "01:00"),
    ),
    ("{ daily = true, except_on = 2026-12-25 }", CHAIN.daily().except_on(date(2026, 12, 25))),
    (
        '{ daily = true, except_on = [2026-12-25, "2026-12-26"] }',
        CHAIN.daily().except_on("2026-12-25", "2026-12-26"),
    ),
    (
        "{ daily = true, starting = 2026-01-01T09:00:00Z, max_firings = 3 }",
        CHAIN.daily().starting(START).max_firings(3),
    ),
    ("{ daily = true, until = 2026-01-01T09:00:00Z }", CHAIN.daily().until(START)),
]


class TestFrequencies:
    """A table with a frequency has the builder's methods as keys, and their arguments."""

    @pytest.mark.parametrize(("run", "chain"), METHOD_CASES)
    def test_they_equal_the_rules_of_the_builder(self, run, chain):
        assert timing_of(run) == chain.timing

    @pytest.mark.parametrize("method", sorted(WITHOUT_ARGUMENTS))
    def test_a_frequency_without_arguments_is_true(self, method):
        expected = getattr(CHAIN, method)().timing

        assert timing_of(f"{{ {method} = true }}") == timing_of(f'"{method}"') == expected

    def test_there_is_a_case_for_every_method(self):
        covered = {
            method for run, _ in METHOD_CASES for method in tomllib.loads(f"run = {run}")["run"]
        }

        assert covered | WITHOUT_ARGUMENTS == RULE_METHODS
        assert {method for method in vars(Frequencies) if method[0] != "_"} == RULE_METHODS | {"on"}
        assert not FREQUENCIES & REFINEMENTS
        assert not FREQUENCIES & BOUNDS

    @pytest.mark.parametrize(
        ("run", "problem"),
        [
            ('{ daily_at = "25:00" }', "'25:00' is not a time of day. Write it as '13:00'."),
            ("{ daily_at = true }", "'daily_at' takes (at)."),
            ("{ daily_at = 13 }", "13 is not a time of day."),
            ("{ hourly = 5 }", "'hourly' takes no arguments. Write hourly = true."),
            ('{ hourly = true, between = "09:00" }', "'between' takes (first, last)."),
            ("{ hourly = true, between = [] }", "'between' takes (first, last)."),
            (
                "{ daily = { intervall = 2 } }",
                "'daily' takes no argument 'intervall'. Did you mean 'interval'?",
            ),
            (
                "{ every = [1, 2] }",
                "'every' takes (length, days, hours, minutes, seconds, starting).",
            ),
            ('{ every = "soon" }', "'soon' is not a length of time"),
            ("{ every = { minutes = 0 } }", ""),
            ("{ once = 2026-01-01T09:00:00 }", "has no time zone. Write it with one"),
            ("{ once = 2026-01-01 }", "is not a time"),
            ('{ symbol = "EVERY_DYA" }', "Did you mean 'EVERY_DAY'?"),
            ("{ symbol = 5 }", "There is no symbol 5."),
            (
                "{ daily = true, weekly = true }",
                "'weekly' comes after 'daily': a schedule has one",
            ),
            (
                "{ daily = true, wday = 1 }",
                "'wday' is a field of a pattern, and 'daily' is a frequency.",
            ),
            (
                "{ daily = true, weekday = true }",
                "Unknown key 'weekday'. Did you mean 'weekdays'?",
            ),
            ('{ daily = true, on = "x" }', "Unknown key 'on'."),
            ("{ daily = true, hours = 24 }", "hour '24' is not in 0-23."),
            ('{ daily = true, except_on = "someday" }', "'someday' is not a date."),
        ],
    )
    def test_invalid_arguments(self, run, problem):
        [found] = problems_of(run)

        assert problem in found

    def test_each_problem_is_reported_once(self):
        assert (
            len(problems_of('{ daily_at = "x", hours = "y", timezone = "Nowhere", week = 1 }')) == 4
        )


VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from(["", "x", "13:00", "5m", "*/5", "UTC", "EVERY_DAY", "2026-01-01T09:00Z"]),
        st.dates(),
        st.times(),
        st.datetimes(),
        st.datetimes(timezones=st.just(UTC)),
    ),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(["minutes", "starting", "interval", "weekdays", "at", "name", "first"]),
            values,
            max_size=3,
        )
    ),
    max_leaves=5,
)
TABLES = st.dictionaries(
    st.sampled_from([*sorted(RULE_METHODS), *PATTERN_FIELDS, "unknown"]), VALUES, max_size=4
)


@given(VALUES | TABLES)
def test_any_value_is_a_rule_or_a_problem(run):
    document = Document("tickwork.toml", "")

    timing = read_timing(document, ("run",), run, SYMBOLS, NO_CALENDARS)

    assert (timing is None) == (document.problem_count > 0)
    if timing is not None:
        with suppress(TickworkError):  # the whole may contradict itself
            timing.rule(key="job", anchor=START)


@pytest.mark.parametrize("name", sorted(WITHOUT_ARGUMENTS))
def test_a_message_names_the_frequency_as_it_was_called(name):
    chain = getattr(CHAIN, name)()

    with pytest.raises(InvalidSchedule, match=rf"^{name}\(\) and cron\(\) both set"):
        chain.cron("0 9 * * *")
