"""Dates of holidays, from calendar files and from the package ``holidays``."""

import os
import sys
from datetime import date, datetime

import pytest

from tickwork import schedules
from tickwork._domain.schedules.contract import PreviewClock
from tickwork._kernel import holiday_dates
from tickwork._kernel.holiday_dates import read_calendar_dates, read_country_dates
from tickwork.errors import ExtraMissing, InvalidSchedule


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


def test_a_file_is_read_again_after_it_changed(read, tmp_path, monkeypatch):
    assert read("DTSTART;VALUE=DATE:20261224") == [date(2026, 12, 24)]
    before = holiday_dates._read_file.cache_info().misses
    assert len(read_calendar_dates(tmp_path / "holidays.ics", first=2026, last=2027)) == 1
    assert holiday_dates._read_file.cache_info().misses == before

    (tmp_path / "holidays.ics").write_text(calendar_of("DTSTART;VALUE=DATE:20261225"))
    os.utime(tmp_path / "holidays.ics", ns=(1, 1))

    found = read_calendar_dates(tmp_path / "holidays.ics", first=2026, last=2027)
    assert found == {date(2026, 12, 25)}


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
    with pytest.raises(InvalidSchedule, match="does not know 'XX'"):
        read_country_dates("XX", first=2026, last=2027)


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
    monkeypatch.setattr(PreviewClock, "now", lambda: now)
    path = tmp_path / "closed.ics"
    path.write_text(calendar_of("DTSTART;VALUE=DATE:20261224|RRULE:FREQ=YEARLY"))

    rule = schedules.daily().except_on("2026-12-27", calendar=path, country="DE").rule()

    found = [at.date().isoformat() for at in rule.preview(3, after=now)]
    assert found == ["2026-12-28", "2026-12-29", "2026-12-30"]
    assert schedules.from_text(rule.to_text()) == rule
    assert isinstance(rule, schedules.Windowed)
    assert date(2028, 12, 24) in rule.dates
    assert date(2029, 12, 24) not in rule.dates
