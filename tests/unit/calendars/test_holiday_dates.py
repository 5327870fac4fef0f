"""Dates of holidays, from calendar files and from the package ``holidays``."""

import os
import sys
import traceback
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path

import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, given
from hypothesis import strategies as st
from icalendar.prop import vRecur

from tickwork import schedules
from tickwork._calendars.holiday_dates import (
    SIZE_MAX,
    days_of_events,
    read_country_dates,
    read_events,
)
from tickwork._calendars.recurring_days import read_recurrence
from tickwork._kernel.clock import SystemClock
from tickwork.errors import ExtraMissing, InvalidSchedule, RuleTooCostly


def read_calendar_dates(path, *, first, last):
    return days_of_events(read_events(path), first=first, last=last)


def calendar_of(*events: str) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN"]
    for number, event in enumerate(events):
        lines += ["BEGIN:VEVENT", f"UID:{number}", *event.split("|"), "END:VEVENT"]
    return "\r\n".join([*lines, "END:VCALENDAR", ""])


@pytest.fixture
def read(tmp_path):
    def read(*events):
        path = tmp_path / "holidays.ics"
        path.write_text(calendar_of(*events), encoding="utf-8")
        return sorted(read_calendar_dates(path, first=2026, last=2027))

    return read


CASES = {
    "one day": ("DTSTART;VALUE=DATE:20261224", ["2026-12-24"]),
    "its end is not included": (
        "DTSTART;VALUE=DATE:20261224|DTEND;VALUE=DATE:20261226",
        ["2026-12-24", "2026-12-25"],
    ),
    "a time of day": ("DTSTART:20261224T120000Z|DTEND:20261224T130000Z", ["2026-12-24"]),
    "a night": (
        "DTSTART:20261224T220000Z|DTEND:20261225T060000Z",
        ["2026-12-24", "2026-12-25"],
    ),
    "until midnight": ("DTSTART:20261224T120000Z|DTEND:20261225T000000Z", ["2026-12-24"]),
    "a duration": ("DTSTART;VALUE=DATE:20261224|DURATION:P2D", ["2026-12-24", "2026-12-25"]),
    "every year since long ago": (
        "DTSTART;VALUE=DATE:19901003|RRULE:FREQ=YEARLY",
        ["2026-10-03", "2027-10-03"],
    ),
    "until": (
        "DTSTART;VALUE=DATE:19901003|RRULE:FREQ=YEARLY;UNTIL=20261231",
        ["2026-10-03"],
    ),
    "a rule with exceptions": (
        "DTSTART;VALUE=DATE:20260101|RRULE:FREQ=MONTHLY;COUNT=3|EXDATE;VALUE=DATE:20260201",
        ["2026-01-01", "2026-03-01"],
    ),
    "further dates": (
        "DTSTART;VALUE=DATE:20260101|RDATE;VALUE=DATE:20260615",
        ["2026-01-01", "2026-06-15"],
    ),
    "other years": ("DTSTART;VALUE=DATE:20241224", []),
    "canceled": ("DTSTART;VALUE=DATE:20261224|STATUS:CANCELLED", []),
    "across the year": (
        "DTSTART;VALUE=DATE:20251230|DTEND;VALUE=DATE:20260103",
        ["2026-01-01", "2026-01-02"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_calendar_has_the_days_of_its_events(read, name):
    event, days = CASES[name]

    assert read(event) == [date.fromisoformat(day) for day in days]


def test_an_event_that_was_moved_has_its_new_date_only(read):
    found = read(
        "DTSTART;VALUE=DATE:20260101|RRULE:FREQ=MONTHLY;COUNT=2",
        "DTSTART;VALUE=DATE:20260203|RECURRENCE-ID;VALUE=DATE:20260201",
    )

    assert found == [date(2026, 1, 1), date(2026, 2, 3)]


def test_a_country_has_its_public_holidays():
    germany = read_country_dates("DE", first=2026, last=2026)
    bavaria = read_country_dates("DE-BY", first=2026, last=2026)

    assert date(2026, 10, 3) in germany
    assert date(2026, 1, 6) in bavaria - germany


def test_bad_calendars_are_refused_with_the_reason(tmp_path):
    (tmp_path / "empty.ics").write_text(calendar_of())
    (tmp_path / "text.ics").write_text("hello")

    for path, text in (
        (tmp_path / "missing.ics", "cannot be read: No such file"),
        (tmp_path / "empty.ics", "has no events"),
        (tmp_path / "text.ics", "is not a calendar"),
    ):
        with pytest.raises(InvalidSchedule, match=text):
            read_calendar_dates(path, first=2026, last=2027)
    for country in ("XX", "DE-XX", "os", "HolidayBase", "country_holidays", ""):
        with pytest.raises(InvalidSchedule, match="does not know"):
            read_country_dates(country, first=2026, last=2027)


@pytest.mark.parametrize(
    ("package", "extra"), [("icalendar", "calendar"), ("holidays", "holidays")]
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "a.ics").write_text(calendar_of("DTSTART;VALUE=DATE:20261224"))
    read_country_dates.cache_clear()

    read = {
        "icalendar": lambda: read_calendar_dates(tmp_path / "a.ics", first=2026, last=2027),
        "holidays": lambda: read_country_dates("FR", first=2026, last=2027),
    }[package]
    with pytest.raises(ExtraMissing, match=rf"pip install '.\[{extra}\]'"):
        read()


def test_a_schedule_skips_the_days_of_calendar_and_country(tmp_path, monkeypatch):
    now = datetime.fromisoformat("2026-12-23T12:00+00:00")
    monkeypatch.setattr(SystemClock, "now", lambda _: now)
    path = tmp_path / "closed.ics"
    path.write_text(calendar_of("DTSTART;VALUE=DATE:20261224|RRULE:FREQ=YEARLY"))

    rule = schedules.daily().except_on("2026-12-27", calendar=path, country="DE").rule()

    found = [at.date().isoformat() for at in rule.preview(3, after=now)]
    assert found == ["2026-12-28", "2026-12-29", "2026-12-30"]
    assert schedules.from_text(rule.to_text()) == rule
    assert isinstance(rule, schedules.Windowed)
    assert date(2028, 12, 24) in rule.dates
    assert date(2029, 12, 24) not in rule.dates


class TestFiles:
    """Only a regular file of at most 1 MiB is read, and no error repeats what is in it."""

    @pytest.mark.parametrize(
        "path", ["/dev/zero", "/dev/null", "/proc/self/environ", "/proc/self/mem", "/proc", "/sys"]
    )
    def test_a_device_a_folder_or_a_file_of_proc_is_refused(self, path):
        with pytest.raises(InvalidSchedule, match="is not a regular file"):
            read_events(path)

    def test_a_pipe_is_refused_at_once(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.ics")

        with pytest.raises(InvalidSchedule, match="is not a regular file"):
            read_events(tmp_path / "pipe.ics")

    def test_a_pipe_that_replaces_the_file_is_refused_at_once(self, tmp_path, monkeypatch):
        (tmp_path / "a.ics").write_text("BEGIN")
        state = (tmp_path / "a.ics").stat()
        os.mkfifo(tmp_path / "pipe.ics")
        monkeypatch.setattr(Path, "stat", lambda _: state)

        with pytest.raises(InvalidSchedule, match="is not a regular file"):
            read_events(tmp_path / "pipe.ics")

    def test_a_folder_is_refused(self, tmp_path):
        (tmp_path / "calendars").mkdir()

        with pytest.raises(InvalidSchedule, match="is not a regular file"):
            read_events(tmp_path)

    @pytest.mark.parametrize("size", [SIZE_MAX + 1, 2**40])
    def test_a_large_file_is_never_read_as_a_whole(self, tmp_path, size):
        with (tmp_path / "large.ics").open("wb") as file:
            file.truncate(size)

        with pytest.raises(InvalidSchedule, match="at most 1,048,576 bytes"):
            read_events(tmp_path / "large.ics")

    def test_a_path_that_is_none_is_refused(self):
        with pytest.raises(InvalidSchedule, match="it is not a path"):
            read_events("a\0b")

    @pytest.mark.parametrize(
        "text",
        [
            "s3cret",
            "TOKEN:s3cret",
            "BEGIN:s3cret",
            calendar_of("DTSTART:s3cret"),
            calendar_of("DTSTART;TZID=s3cret:20260101T000000"),
            calendar_of("DTSTART;VALUE=DATE:20260101|RRULE:FREQ=s3cret"),
            calendar_of("DTSTART;VALUE=DATE:20260101|RRULE:FREQ=DAILY;S3CRET=1"),
            calendar_of("DTSTART;VALUE=DATE:20260101|RRULE:FREQ=WEEKLY;BYDAY=s3cret"),
        ],
    )
    def test_no_error_repeats_the_content(self, tmp_path, text):
        (tmp_path / "token").write_text(text)

        with suppress(InvalidSchedule):
            read_events(tmp_path / "token")
            return
        with pytest.raises(InvalidSchedule) as caught:
            read_events(tmp_path / "token")
        shown = "".join(traceback.format_exception(caught.value))
        assert "s3cret" not in shown.lower()


class TestWork:
    """A calendar takes a bounded number of steps, whatever its events are."""

    @pytest.mark.parametrize(
        "rule",
        [
            "FREQ=SECONDLY",
            "FREQ=MINUTELY;BYSECOND=1,2",
            "FREQ=HOURLY;COUNT=10",
            "FREQ=DAILY;COUNT=3;BYHOUR=1,2;BYMINUTE=1,2",
        ],
    )
    def test_an_event_that_repeats_within_a_day_is_refused(self, read, rule):
        with pytest.raises(InvalidSchedule, match="repeats within a day"):
            read(f"DTSTART:19000101T000000Z|RRULE:{rule}")

    @pytest.mark.parametrize(
        ("rule", "days"),
        [
            ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", 0),
            ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31", 0),
            ("FREQ=YEARLY;INTERVAL=1000000000", 0),
            ("FREQ=DAILY;INTERVAL=999999999", 0),
            ("FREQ=MONTHLY;COUNT=999999999;BYDAY=5FR;BYMONTHDAY=31", 2),
            ("FREQ=DAILY", 730),
        ],
    )
    def test_a_rule_since_1900_is_computed_for_the_wanted_years(self, read, rule, days):
        assert len(read(f"DTSTART;VALUE=DATE:19000101|RRULE:{rule}")) == days

    def test_many_events_that_repeat_daily_are_too_costly(self, read):
        event = "DTSTART;VALUE=DATE:19000101|RRULE:FREQ=DAILY;COUNT=999999"

        with pytest.raises(RuleTooCostly):
            read(*[event] * 20)

    def test_the_year_9999_is_no_special_case(self, read):
        assert read("DTSTART;VALUE=DATE:99991231|DTEND;VALUE=DATE:99991231|RRULE:FREQ=DAILY") == []
        with pytest.raises(InvalidSchedule, match="is not a calendar"):
            read("DTSTART;VALUE=DATE:99991231|DURATION:P9999999D")


UNITS = st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"])
CYCLES = 19 * 400
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def part(name, values, most=3):
    found = st.lists(values, min_size=1, max_size=most, unique=True)
    return st.none() | found.map(lambda each: f"{name}={','.join(map(str, each))}")


def signed(most):
    return st.integers(1, most) | st.integers(-most, -1)


@st.composite
def rules(draw):
    unit = draw(UNITS)
    nth = st.sampled_from(DAYS)
    if unit in {"MONTHLY", "YEARLY"} and draw(st.booleans()):  # dateutil joins a mix by "and"
        nth = st.builds("{}{}".format, signed(5), nth)
    parts = [
        part("INTERVAL", st.integers(1, 5), 1),
        part("COUNT", st.integers(1, 40), 1),
        part("WKST", st.sampled_from(DAYS), 1),
        part("BYMONTH", st.integers(1, 12)),
        part("BYMONTHDAY", signed(31)),
        part("BYDAY", nth),
        part("BYYEARDAY", signed(366)) if unit == "YEARLY" else st.none(),
        part("BYSETPOS", signed(4), 2),
    ]
    return ";".join([f"FREQ={unit}", *filter(None, map(draw, parts))])


@given(rules(), st.dates(date(1995, 1, 1), date(2027, 12, 31)))
def test_recurring_days_are_those_of_dateutil(rule, start):
    # dateutil searches up to the year 9999, and the calendar repeats every 400 years.
    begin = datetime(start.year + CYCLES, start.month, start.day)
    try:
        expected = rrulestr(f"RRULE:{rule}", dtstart=begin)
    except ValueError:  # BYSETPOS alone
        assume(False)
    wanted = expected.between(
        datetime(2026 + CYCLES, 1, 1), datetime(2027 + CYCLES, 12, 31), inc=True
    )

    found = read_recurrence(vRecur.from_ical(rule), start).between(
        date(2026, 1, 1), date(2027, 12, 31)
    )
    assert list(found) == [day.date().replace(year=day.year - CYCLES) for day in wanted]
