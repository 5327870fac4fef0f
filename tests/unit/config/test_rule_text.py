"""A stored rule as one would type it."""

import ast
from datetime import UTC, datetime
from functools import partial

import pytest

from tickwork import schedules
from tickwork._calendars.calendars import NO_CALENDARS
from tickwork._config.rule_text import (
    _literal,
    parse_rule_text,
    store_form,
    write_rule,
    write_rule_text,
)
from tickwork.errors import InvalidSchedule

ANCHOR = datetime(2026, 3, 1, 9, tzinfo=UTC)
read = partial(parse_rule_text, calendars=NO_CALENDARS)


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("30 2 * * MON-FRI", "30 2 * * MON-FRI"),
        ("H 3 * * *", "H 3 * * *"),
        ("@daily", "@daily"),
        ("daily().hours(2)", "minutes=0 hours=2"),
        ("every_five_minutes().weekdays()", "minutes=*/5 wday=1-5"),
        ("once('2026-12-24T18:00:00+00:00')", "once('2026-12-24T18:00:00+00:00')"),
        ("every(minutes=7)", "every(seconds=420, starting='2026-03-01T09:00:00+00:00')"),
    ],
)
def test_it_is_short_where_it_means_the_same(text, typed):
    rule = read(text, symbols={}).rule(tz="Europe/Berlin", anchor=ANCHOR, key="x")

    assert write_rule_text(rule.to_text()) == typed


@pytest.mark.parametrize(
    "text", ["every_second()", "daily().max_firings(3)", "daily().between('9:00', '10:00')"]
)
def test_other_rules_stay_as_they_are_stored(text):
    rule = read(text, symbols={}).rule(tz="UTC", anchor=ANCHOR, key="x")
    stored = rule.to_text()

    assert write_rule_text(stored) == stored
    again = read(stored, symbols={}).rule(tz="UTC", anchor=ANCHOR, key="x")
    assert again.to_text() == stored


def test_a_row_that_cannot_be_read_stays_as_it_is():
    assert write_rule_text("not JSON") == "not JSON"
    with pytest.raises(InvalidSchedule):
        read('{"kind": "lunar"}', symbols=schedules.SYMBOLS)


@pytest.mark.parametrize(
    "stored", ["5", "null", "[1]", "{}", '{"kind":"cron"}', '{"kind":"cron","expr":1}']
)
def test_a_row_that_another_program_has_edited_stays_as_it_is(stored):
    assert write_rule_text(stored) == stored


def test_a_rule_without_a_short_form_is_an_object():
    stored = (
        read("daily().max_firings(3)", symbols={}).rule(tz="UTC", anchor=ANCHOR, key="x").to_text()
    )

    rule = write_rule(stored)
    assert isinstance(rule, dict)
    assert rule["kind"] == "bounded"
    assert store_form(rule) == stored
    assert write_rule("not JSON") == "not JSON"
    assert write_rule("[1]") == "[1]"


class TestRanges:
    """A range is expanded only if it cannot use much memory."""

    @pytest.mark.parametrize(
        "text", ["range(9, 18)", "range(-1, 0)", "range(9999)", "range(9, -9999, -9999)"]
    )
    def test_a_small_one_is_expanded(self, text):
        assert _literal(ast.parse(text, mode="eval").body) == eval(text)

    @pytest.mark.parametrize(
        "text",
        [
            "range(0, 100000000)",
            "range(10000)",
            "range(-10000, 0)",
            "range(0, 1, 10000)",
            "range(0, -100000000, -1)",
        ],
    )
    def test_a_large_one_is_refused_before_it_is_expanded(self, text):
        with pytest.raises(InvalidSchedule, match="must be a number, a string, a list or range"):
            _literal(ast.parse(text, mode="eval").body)
        with pytest.raises(InvalidSchedule, match="must be a number, a string, a list or range"):
            read(f"hourly().minutes({text})", symbols={})
