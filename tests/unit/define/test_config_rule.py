"""``run``: when a job is due, as a file says it."""

import tomllib
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._define.config_rule import (
    ALONE,
    BOUNDS,
    FREQUENCIES,
    REFINEMENTS,
    RULE_METHODS,
    read_timing,
)
from tickwork._define.toml_document import Document
from tickwork._domain.schedules.frequencies import Frequencies, Timetable
from tickwork._domain.schedules.pattern import PATTERN_FIELDS, SYMBOLS
from tickwork._domain.schedules.timing import Timing
from tickwork.errors import ConfigError, TickworkError

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
SAID = Timetable()


def timing_of(run: str, symbols: Any = SYMBOLS) -> Timing | None:
    document = Document("tickwork.toml", f"run = {run}\n")
    timing = read_timing(document, ("run",), document.content["run"], symbols)
    document.raise_problems()
    return timing


def faults_of(run: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        timing_of(run)
    return [fault.removeprefix("line 1: ") for fault in caught.value.faults]


class TestTexts:
    """A text is a symbol, a cron expression, or a frequency that needs nothing more."""

    @pytest.mark.parametrize(
        ("run", "chain"),
        [
            ('"EVERY_DAY"', SAID.symbol("EVERY_DAY")),
            ('"*/5 9-17 * * MON-FRI"', SAID.cron("*/5 9-17 * * MON-FRI")),
            ('"0 */5 9 * * 1"', SAID.cron("0 */5 9 * * 1")),
            ('"@daily"', SAID.cron("@daily")),
            ('"H H * * *"', SAID.cron("H H * * *")),
            ('" hourly "', SAID.hourly()),
            ('"every_five_minutes"', SAID.every_five_minutes()),
            ('"weekly"', SAID.weekly()),
            ('"twice_daily"', SAID.twice_daily()),
        ],
    )
    def test_it_says_what_the_builder_says(self, run, chain):
        assert timing_of(run) == chain.said

    def test_a_symbol_of_the_users_own(self):
        timing = timing_of('"NIGHTLY"', {"NIGHTLY": {"minutes": 30, "hours": 3}})

        assert timing is not None
        assert timing.base == SAID.pattern(minutes=30, hours=3).said.base

    @pytest.mark.parametrize(
        ("run", "fault"),
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
    def test_anything_else_is_a_fault(self, run, fault):
        [found] = faults_of(run)

        assert fault in found


class TestPatterns:
    """A table without a frequency is a pattern: all fields must match, left out means any."""

    @pytest.mark.parametrize(
        ("run", "chain"),
        [
            (
                '{ minutes = "*/15", hours = "9-17", wday = "1-5" }',
                SAID.pattern(minutes="*/15", hours="9-17", wday="1-5"),
            ),
            (
                "{ minutes = 0, hours = [9, 12], mday = 1 }",
                SAID.pattern(minutes=0, hours=[9, 12], mday=1),
            ),
            ('{ mon = "*/3", year = 2026, day = 1 }', SAID.pattern(mon="*/3", year=2026, day=1)),
            (
                '{ minutes = 10, timezone = "Europe/Berlin", between = ["9", "17"] }',
                SAID.pattern(minutes=10).timezone("Europe/Berlin").between("9", "17"),
            ),
        ],
    )
    def test_it_says_what_the_builder_says(self, run, chain):
        assert timing_of(run) == chain.said

    def test_hours_alone_are_every_minute_of_them_as_in_any_pattern(self):
        timing = timing_of("{ hours = 9 }")

        assert timing is not None
        assert timing.rule().describe() == "every minute during hour 9 (UTC)"

    def test_every_field_that_is_wrong_is_told(self):
        found = sorted(faults_of('{ minutes = 60, hour = 9, wday = "x", timezone = "X" }'))

        assert [fault.partition(".")[0] for fault in found] == [
            "There is no time zone 'X'",
            "Unknown key 'hour'",
            "minute '60' is not in 0-59",
            "weekday 'x' is not a pattern",
        ]

    @pytest.mark.parametrize(
        ("run", "fault"),
        [
            ("{ day = 1, mday = 2 }", "says the day of the month twice"),
            ("{ minutes = true }", "minute True is not a whole number."),
            ("{ minutes = 2.5 }", "minute 2.5 is not a whole number."),
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
    def test_what_cannot_be_a_pattern(self, run, fault):
        assert any(fault in found for found in faults_of(run))


# Every word of the builder, said in a file and in a chain.
WORD_CASES = [
    ('{ cron = "0 9 * * *" }', SAID.cron("0 9 * * *")),
    ("{ pattern = { minutes = 5 } }", SAID.pattern(minutes=5)),
    ('{ symbol = "EVERY_DAY" }', SAID.symbol("EVERY_DAY")),
    ("{ every = { minutes = 15 } }", SAID.every(minutes=15)),
    ('{ every = "1h30m" }', SAID.every(minutes=90)),
    (
        "{ every = { hours = 5, starting = 2026-01-01T09:00:00Z } }",
        SAID.every(hours=5, starting=START),
    ),
    ('{ every = "5h", starting = 2026-01-01T09:00:00Z }', SAID.every(hours=5).starting(START)),
    ("{ once = 2026-01-01T09:00:00Z }", SAID.once(START)),
    ('{ once = "2026-01-01T10:00+01:00" }', SAID.once(START)),
    ("{ hourly_at = 17 }", SAID.hourly_at(17)),
    ("{ hourly_at = [15, 45] }", SAID.hourly_at(15, 45)),
    ("{ daily = { interval = 2 } }", SAID.daily(interval=2)),
    (
        "{ daily = { interval = 2, starting = 2026-01-01T09:00:00Z, max_firings = 3 } }",
        SAID.daily(interval=2, starting=START, max_firings=3),
    ),
    ('{ daily_at = "13:00" }', SAID.daily_at("13:00")),
    ("{ daily_at = 13:00:00 }", SAID.daily_at(time(13))),
    ("{ twice_daily = [1, 13] }", SAID.twice_daily(1, 13)),
    ("{ weekly = { interval = 2, weekdays = [1, 3] } }", SAID.weekly(interval=2, weekdays=[1, 3])),
    ("{ weekly_on = 1 }", SAID.weekly_on(1)),
    ('{ weekly_on = [1, "8:00"] }', SAID.weekly_on(1, "8:00")),
    ('{ weekly_on = { weekday = "1-5", at = "8:00" } }', SAID.weekly_on("1-5", "8:00")),
    ('{ monthly = { interval = 3, missing = "skip" } }', SAID.monthly(interval=3, missing="skip")),
    ('{ monthly_on = [4, "15:00"] }', SAID.monthly_on(4, "15:00")),
    ('{ monthly_on = [[1, 15], "15:00"] }', SAID.monthly_on([1, 15], "15:00")),
    ('{ twice_monthly = [1, 16, "8:00"] }', SAID.twice_monthly(1, 16, "8:00")),
    ('{ last_day_of_month = "17:00" }', SAID.last_day_of_month("17:00")),
    ("{ yearly = { interval = 2 } }", SAID.yearly(interval=2)),
    ('{ yearly_on = [6, 1, "17:00"] }', SAID.yearly_on(6, 1, "17:00")),
    ("{ every_minute = true, seconds = [0, 30] }", SAID.every_minute().seconds([0, 30])),
    (
        '{ every_five_minutes = true, hours = "9-17", weekdays = true }',
        SAID.every_five_minutes().hours("9-17").weekdays(),
    ),
    ("{ hourly = true, minutes = 30, days = [1, 15] }", SAID.hourly().minutes(30).days([1, 15])),
    ("{ daily = true, hours = [9, 12], months = 6 }", SAID.daily().hours([9, 12]).months(6)),
    ("{ daily = true, mondays = true, fridays = true }", SAID.daily().mondays().fridays()),
    ("{ daily = true, mondays = true, fridays = false }", SAID.daily().mondays()),
    ("{ daily = true, weekends = true }", SAID.daily().weekends()),
    *(
        (f"{{ daily = true, {day} = true }}", getattr(SAID.daily(), day)())
        for day in ("sundays", "tuesdays", "wednesdays", "thursdays", "saturdays")
    ),
    ('{ daily = true, timezone = "Europe/Berlin" }', SAID.daily().timezone("Europe/Berlin")),
    ('{ hourly = true, between = ["09:00", "17:00"] }', SAID.hourly().between("09:00", "17:00")),
    (
        '{ hourly = true, between = [["9", "12"], ["13", "17"]] }',
        SAID.hourly().between("9", "12").between("13", "17"),
    ),
    (
        '{ hourly = true, unless_between = { first = "23:00", last = "01:00" } }',
        SAID.hourly().unless_between("23:00", "01:00"),
    ),
    ("{ daily = true, except_on = 2026-12-25 }", SAID.daily().except_on(date(2026, 12, 25))),
    (
        '{ daily = true, except_on = [2026-12-25, "2026-12-26"] }',
        SAID.daily().except_on("2026-12-25", "2026-12-26"),
    ),
    (
        "{ daily = true, starting = 2026-01-01T09:00:00Z, max_firings = 3 }",
        SAID.daily().starting(START).max_firings(3),
    ),
    ("{ daily = true, until = 2026-01-01T09:00:00Z }", SAID.daily().until(START)),
]


class TestWords:
    """A table with a frequency is made of the builder's words, with what they take."""

    @pytest.mark.parametrize(("run", "chain"), WORD_CASES)
    def test_they_say_what_the_builder_says(self, run, chain):
        assert timing_of(run) == chain.said

    @pytest.mark.parametrize("word", sorted(ALONE))
    def test_a_frequency_that_needs_nothing_is_true(self, word):
        said = getattr(SAID, word)().said

        assert timing_of(f"{{ {word} = true }}") == timing_of(f'"{word}"') == said

    def test_every_word_can_be_said(self):
        said = {word for run, _ in WORD_CASES for word in tomllib.loads(f"run = {run}")["run"]}

        assert said | ALONE == RULE_METHODS
        assert {word for word in vars(Frequencies) if word[0] != "_"} == RULE_METHODS | {"on"}
        assert not FREQUENCIES & REFINEMENTS
        assert not FREQUENCIES & BOUNDS

    @pytest.mark.parametrize(
        ("run", "fault"),
        [
            ('{ daily_at = "25:00" }', "'25:00' is not a time of day. Write it as '13:00'."),
            ("{ daily_at = true }", "'daily_at' takes at."),
            ("{ daily_at = 13 }", "13 is not a time of day."),
            ("{ hourly = 5 }", "'hourly' takes no arguments. Write hourly = true."),
            ('{ hourly = true, between = "09:00" }', "'between' takes first, last."),
            ("{ hourly = true, between = [] }", "'between' takes first, last."),
            (
                "{ daily = { intervall = 2 } }",
                "'daily' takes no argument 'intervall'. Did you mean 'interval'?",
            ),
            ("{ every = 15 }", "'every' takes days, hours, minutes, seconds, starting."),
            ('{ every = "soon" }', "'soon' is not a length of time"),
            ("{ every = { minutes = 0 } }", ""),
            ("{ once = 2026-01-01T09:00:00 }", "has no time zone. Write it with one"),
            ("{ once = 2026-01-01 }", "is not an instant"),
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
    def test_what_they_do_not_take(self, run, fault):
        [found] = faults_of(run)

        assert fault in found

    def test_each_fault_is_told_once(self):
        assert (
            len(faults_of('{ daily_at = "x", hours = "y", timezone = "Nowhere", week = 1 }')) == 4
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
def test_whatever_is_written_is_a_rule_or_a_fault(run):
    document = Document("tickwork.toml", "")

    timing = read_timing(document, ("run",), run, SYMBOLS)

    assert (timing is None) == (document.problem_count > 0)
    if timing is not None:
        with suppress(TickworkError):  # the whole may contradict itself
            timing.rule(key="job", anchor=START)
