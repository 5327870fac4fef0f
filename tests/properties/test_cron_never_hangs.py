"""Whatever the text, Cron answers soon: it parses or raises CronError, and every search ends.

Time is asserted with a bound some fifty times above what is needed: a machine that is busy
with something else must not fail these tests, and a search without an end always will.
"""

import os
import random
import string
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import brute_force
from tickwork._domain.schedules.cron import Cron
from tickwork.errors import CronError

EFFORT = int(os.environ.get("TICKWORK_TEST_EFFORT", "1"))
LONG_ENOUGH = 0.25  # seconds, for what takes less than five thousandths of one

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)


def in_time(do: Callable[[], Any], what: object) -> Any:
    """Call it and return its result; fail if it took far too long twice in a row."""
    started = time.perf_counter()
    result = do()
    if time.perf_counter() - started > LONG_ENOUGH:
        # The machine may have looked away. It will not do so twice for the same thing.
        started = time.perf_counter()
        result = do()
        taken = time.perf_counter() - started
        assert taken < LONG_ENOUGH, f"{what!r} took {taken:.3f} s"
    return result


def parse_or_none(expr: str) -> Cron | None:
    """Parse as a user would. Any exception but CronError is a bug, and escapes."""
    with suppress(CronError):
        return Cron.parse(expr, tz=BERLIN, key="report")
    return None


def exercise(expr: str) -> bool:
    """Do all that can be done with a text; say whether it was an expression."""
    cron = in_time(lambda: parse_or_none(expr), expr)
    if cron is None:
        return False
    in_time(cron.describe, expr)
    later = in_time(lambda: cron.next(NOON), expr)
    earlier = in_time(lambda: cron.prev(NOON), expr)
    assert later is None or cron.matches(later), expr
    assert earlier is None or cron.matches(earlier), expr
    # What has fired once will fire again: the calendar repeats itself.
    assert (later is None) == (earlier is None), expr
    return True


# ---------------------------------------------------------------- any text


class TestAnyText:
    """Random text either parses or raises CronError, soon."""

    @settings(max_examples=300 * EFFORT, derandomize=True, database=None, deadline=None)
    @given(st.text(max_size=60))
    def test_text_of_all_kinds(self, text):
        exercise(text)

    @settings(max_examples=300 * EFFORT, derandomize=True, database=None, deadline=None)
    @given(st.text(alphabet="0123456789*/,-?#@()LWHlwh \t", max_size=60))
    def test_text_of_crons_own_characters(self, text):
        exercise(text)

    @settings(max_examples=300 * EFFORT, derandomize=True, database=None, deadline=None)
    @given(st.lists(st.text(alphabet="0123456789*/,-?#LWH()", max_size=8), min_size=5, max_size=6))
    def test_fields_of_crons_own_characters(self, fields):
        exercise(" ".join(fields))

    @settings(max_examples=200 * EFFORT, derandomize=True, database=None, deadline=None)
    @given(st.text(alphabet=st.characters(exclude_categories=()), max_size=40))
    def test_text_with_halves_of_surrogate_pairs(self, text):
        exercise(text)

    @pytest.mark.parametrize("size", [1_000, 1_024, 1_025, 10_000, 1_000_000])
    @pytest.mark.parametrize("piece", ["*", "* ", "1,", "1-", "1/", "(", "H(", "L", "@", "\x00"])
    def test_long_repetitions(self, piece, size):
        text = (piece * size)[:size]

        exercise(text)
        exercise(f"{text} * * * *")
        exercise(f"* * {text} * *")


# ---------------------------------------------------------------- nearly expressions

VALID = [
    "* * * * *",
    "*/5 9-17 * * MON-FRI",
    "0 0 1,15 * 5",
    "0 0 L 2 ?",
    "0 0 LW * ?",
    "30 4 15W */2 ?",
    "0 0 ? * 5L",
    "0 0 ? * FRI#2",
    "*/10 0 0 29 2 *",
    "59 23 31 12 0,7",
    "H H(0-7) * * *",
    "H/15 * H * SUN",
    "@daily",
    "10/7 3/4 5-20/3 JAN-DEC/2 1-7/2",
]
ALPHABET = string.digits * 3 + "*/,-" * 2 + "?#@()LWH .JANFEBMON"


def mutated(source: random.Random) -> str:
    """Take a valid expression and damage it in one to three places."""
    text = source.choice(VALID)
    for _ in range(source.randint(1, 3)):
        at = source.randint(0, len(text))
        to = min(len(text), at + source.randint(0, 3))
        other = source.choice(VALID)
        start = source.randint(0, len(other))
        text = source.choice(
            [
                text[:at] + source.choice(ALPHABET) + text[at:],
                text[:at] + source.choice(ALPHABET) + text[at + 1 :],
                text[:at] + text[to:],
                text[:at] + text[at:to] * 2 + text[to:],
                text[:at] + other[start : start + 4] + text[at:],
                " ".join(source.sample(text.split(), len(text.split()))),
            ]
        )
    return text


class TestDamagedExpressions:
    """Valid expressions with a few characters changed parse or raise CronError, soon."""

    def test_every_damage_is_survived(self):
        source = random.Random("damage")
        texts = [mutated(source) for _ in range(4_000 * EFFORT)]

        expressions = [text for text in texts if exercise(text)]

        # Were nearly all refused, or nearly none, this test would look at one half only.
        assert 0.1 < len(expressions) / len(texts) < 0.9

    def test_the_answers_are_right_too(self):
        source = random.Random("damage, checked")
        checked = 0
        while checked < 150 * EFFORT:
            text = mutated(source)
            if "H" in text.upper().replace("THU", "") or not exercise(text):
                continue
            cron = Cron.parse(text, tz=BERLIN)
            expected = brute_force.next_after(text, BERLIN, NOON)
            found = cron.next(NOON)
            assert (None if found is None else brute_force.instant_of(found)) == expected, text
            checked += 1


# ---------------------------------------------------------------- searches without an end

NEVER = [
    "0 0 30 2 *",
    "0 0 31 2 *",
    "0 0 30,31 2 *",
    "0 0 31 4 *",
    "0 0 31 2,4,6,9,11 *",
    "0 0 31W 2,4,6,9,11 ?",
    "0 0 30W 2 ?",
    "*/5 * 31 2,4,6,9,11 *",
    "* * * 31 6 *",
    "0 0 */30 2 1#2",  # the 1st is never a second Monday
    "0 0 */30 2 5L",  # nor a last Friday
    "0 0 30 2 */2",
]
RARE = [
    ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
    ("0 0 L 2 1#5", ["2027-02-28", "2028-02-29"]),
    ("0 0 29 2 1", ["2027-02-01", "2027-02-08"]),
    ("0 0 29 2 */6", ["2032-02-29", "2048-02-29"]),
    ("0 0 ? 2 1#5", ["2044-02-29", "2072-02-29"]),
    ("0 0 ? 2 0#5", ["2032-02-29", "2060-02-29"]),
    ("0 0 29W 2 ?", ["2028-02-29", "2032-02-27"]),
    ("0 0 31 2 1", ["2027-02-01", "2027-02-08"]),
    ("0 0 30 2 5L", ["2027-02-26", "2028-02-25"]),
    ("0 0 31 12 */6", ["2028-12-31", "2033-12-31"]),
]


class TestImpossibleDates:
    """An expression that never fires parses, and says so at once."""

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Apia"])
    @pytest.mark.parametrize("expr", NEVER)
    def test_the_answer_is_none_at_once(self, expr, zone):
        cron = Cron.parse(expr, tz=zone)

        assert in_time(lambda: cron.next(NOON), expr) is None
        assert in_time(lambda: cron.prev(NOON), expr) is None
        assert in_time(lambda: cron.take(3, NOON), expr) == []
        assert in_time(lambda: cron.matches(NOON), expr) is False
        assert in_time(cron.describe, expr)

    @pytest.mark.parametrize("expr", NEVER)
    def test_the_oracle_says_never_too(self, expr):
        assert brute_force.next_after(expr, ZoneInfo("UTC"), NOON) is None

    @pytest.mark.parametrize("expr", NEVER)
    def test_a_century_without_firings_is_empty(self, expr):
        cron = Cron.parse(expr)
        century_later = NOON + timedelta(days=36_525)

        assert in_time(lambda: list(cron.between(NOON, century_later)), expr) == []

    def test_a_thousand_questions_are_answered_in_the_time_for_a_few(self):
        crons = [Cron.parse(expr, tz=BERLIN) for expr in NEVER]

        answers = in_time(
            lambda: [
                cron.next(NOON + timedelta(days=day)) for cron in crons for day in range(0, 800, 10)
            ],
            "a thousand impossible dates",
        )

        assert set(answers) == {None}


class TestRareDates:
    """An expression that fires once in many years is found at once."""

    @pytest.mark.parametrize(("expr", "dates"), RARE)
    def test_the_next_two_are_found(self, expr, dates):
        cron = Cron.parse(expr)

        found = in_time(lambda: cron.take(2, NOON), expr)

        assert [f"{moment:%Y-%m-%d}" for moment in found] == dates

    @pytest.mark.parametrize(("expr", "dates"), RARE)
    def test_the_oracle_finds_the_same(self, expr, dates):
        first = brute_force.next_after(expr, ZoneInfo("UTC"), NOON)

        assert first is not None
        assert f"{brute_force.moment_of(first, ZoneInfo('UTC')):%Y-%m-%d}" == dates[0]

    @pytest.mark.parametrize(("expr", "dates"), RARE)
    def test_the_way_back_is_as_short(self, expr, dates):
        cron = Cron.parse(expr)
        [first, second] = (datetime.fromisoformat(f"{date}T00:00+00:00") for date in dates)

        assert in_time(lambda: cron.prev(second), expr) == first


# ---------------------------------------------------------------- the ends of time


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Apia", "America/St_Johns"])
@pytest.mark.parametrize(
    "expr", ["* * * * * *", "*/7 * * * *", "0 0 * * *", "0 0 29 2 *", "0 0 30 2 *", "0 0 L 12 ?"]
)
class TestTheEndsOfTime:
    """Where datetimes end, searches end: with None, never with an OverflowError."""

    @pytest.mark.parametrize(
        "moment",
        [
            datetime.max.replace(tzinfo=UTC),
            datetime(9999, 12, 31, tzinfo=UTC),
            datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC),
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(1, 12, 31, 23, 59, 59, tzinfo=UTC),
            datetime(1, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")),
            datetime(9999, 12, 31, 23, 59, tzinfo=ZoneInfo("America/New_York")),
        ],
        ids=str,
    )
    def test_nothing_is_found_beyond_them(self, expr, zone, moment):
        cron = Cron.parse(expr, tz=zone)

        later = in_time(lambda: cron.next(moment), (expr, moment))
        earlier = in_time(lambda: cron.prev(moment), (expr, moment))

        assert later is None or later > moment
        assert earlier is None or earlier < moment
        assert isinstance(cron.matches(moment.replace(microsecond=0)), bool)
        assert len(in_time(lambda: cron.take(3, moment), (expr, moment))) <= 3

    def test_integers_beyond_them_are_answered_too(self, expr, zone):
        cron = Cron.parse(expr, tz=zone)

        assert in_time(lambda: cron.next_ts(10**15), expr) is None
        first_of_all = in_time(lambda: cron.next_ts(-(10**15)), expr)
        assert first_of_all is None or first_of_all < 0


class TestLongWindows:
    """`between` and `take` are lazy."""

    def test_the_first_of_ten_thousand_years_comes_at_once(self):
        cron = Cron.parse("* * * * * *", tz=BERLIN)
        window = cron.between(NOON, datetime(9990, 1, 1, tzinfo=UTC))

        first = in_time(lambda: next(iter(window)), "the first of 250 billion")

        assert first == NOON

    def test_a_hundred_thousand_firings_are_taken_in_seconds(self):
        cron = Cron.parse("* * * * * *", tz=BERLIN)

        found = cron.take(100_000, NOON)

        assert len(found) == 100_000
        assert found[-1] - NOON == timedelta(seconds=100_000)
