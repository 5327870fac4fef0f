from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._kernel.durations import (
    as_duration,
    format_duration,
    human_duration,
    later,
    parse_duration,
)
from tickwork.errors import InvalidDuration

LENGTHS = st.timedeltas(min_value=timedelta(0))


class TestReading:
    """Durations are parsed exactly, or the error gives the reason."""

    @pytest.mark.parametrize(
        ("text", "length"),
        [
            ("90s", timedelta(seconds=90)),
            ("5m", timedelta(minutes=5)),
            ("1h30m", timedelta(minutes=90)),
            ("1h 30 min", timedelta(minutes=90)),
            ("2 days", timedelta(days=2)),
            ("1 week", timedelta(days=7)),
            ("1w2d3h4m5s6ms7us", timedelta(9, 3 * 3600 + 4 * 60 + 5, 6007)),
            ("1.5h", timedelta(minutes=90)),
            ("0.1s", timedelta(milliseconds=100)),
            ("0s", timedelta(0)),
            (" 5 minutes ", timedelta(minutes=5)),
        ],
    )
    def test_it_is_read(self, text, length):
        assert parse_duration(text) == length

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "it is empty"),
            ("   ", "does not start with a number"),
            ("5", "5 has no unit"),
            ("1h30", "30 has no unit"),
            ("5 parsecs", "'parsecs' is not a unit"),
            ("1 month", "'month' is not a unit"),
            ("5M", "'M' is not a unit"),
            ("-5m", "'-5m' does not start with a number"),
            ("5m1h", "from large to small"),
            ("5m5m", "from large to small"),
            ("0.0000001s", "smallest unit is a microsecond"),
            ("99999999999d", "too long"),
            ("\N{ARABIC-INDIC DIGIT FIVE}m", "does not start with a number"),
            ("1" * 101 + "s", "longer than 100 characters"),
        ],
    )
    def test_it_is_an_error(self, text, reason):
        with pytest.raises(InvalidDuration, match=reason) as caught:
            parse_duration(text)
        assert caught.value.text == text


class TestTaking:
    """An option takes a length however the caller has it."""

    @pytest.mark.parametrize("options", [timedelta(seconds=90), 90, 90.0, "1m30s"])
    def test_it_is_taken(self, options):
        assert as_duration(options) == timedelta(seconds=90)

    @pytest.mark.parametrize("options", [True, float("nan"), float("inf"), 1e300, None, [5]])
    def test_it_is_an_error(self, options):
        with pytest.raises(InvalidDuration):
            as_duration(options)


class TestWriting:
    """What is written for machines is exact; what is written for people is short."""

    @given(LENGTHS)
    def test_the_exact_form_reads_back(self, length):
        assert parse_duration(format_duration(length)) == length

    @pytest.mark.parametrize(
        ("length", "text"),
        [
            (timedelta(0), "0s"),
            (timedelta(minutes=90), "1h30m"),
            (timedelta(days=8), "8d"),
            (timedelta(milliseconds=1500), "1s500ms"),
        ],
    )
    def test_the_exact_form(self, length, text):
        assert format_duration(length) == text

    @pytest.mark.parametrize(
        ("length", "text"),
        [
            (timedelta(0), "0s"),
            (timedelta(microseconds=7), "7us"),
            (timedelta(microseconds=12_345), "12.3ms"),
            (timedelta(milliseconds=999.6), "1s"),
            (timedelta(seconds=1.234), "1.23s"),
            (timedelta(seconds=59.96), "1m"),
            (timedelta(seconds=90), "1m 30s"),
            (timedelta(seconds=3599.7), "1h"),
            (timedelta(hours=3, minutes=20, seconds=29), "3h 20m"),
            (timedelta(hours=3, minutes=20, seconds=30), "3h 21m"),
            (timedelta(days=1, hours=1, minutes=40), "1d 2h"),
            (timedelta(days=3, hours=4, minutes=5), "3d 4h"),
            (timedelta(days=-1), "-1d"),
            (timedelta(milliseconds=-5), "-5ms"),
        ],
    )
    def test_the_human_form(self, length, text):
        assert human_duration(length) == text

    @given(st.timedeltas())
    def test_the_human_form_is_always_short(self, length):
        assert 2 <= len(human_duration(length)) <= 15


class TestLater:
    """A moment far enough away is the end of the calendar, not an error."""

    def test_it_is_that_much_later(self):
        assert later(datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1)).day == 2

    def test_the_calendar_has_an_end(self):
        assert later(datetime(2026, 1, 1, tzinfo=UTC), timedelta.max).year == 9999
