"""Dates of holidays: from a calendar file, or from the package ``holidays``.

Both are read once for each range of years; a calendar file again after it has changed.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from tickwork.errors import ExtraMissing, InvalidSchedule

SIZE_MAX: Final = 4 * 1024 * 1024
_DAYS_MAX: Final = 366
"""The most days of one event: longer ones are not holidays."""


def read_calendar_dates(path: str | PathLike[str], *, first: int, last: int) -> frozenset[date]:
    """The dates of all events of a calendar file, in these years.

    Raises:
        InvalidSchedule: The file cannot be read, or the package icalendar is missing.
    """
    file = Path(fspath(path))
    try:
        state = file.stat()
    except OSError as error:
        raise InvalidSchedule(
            f"The calendar {fspath(path)!r} cannot be read: {error.strerror}.",
            fix="Give except_on() the path of an .ics file, relative to the current folder.",
        ) from None
    if state.st_size > SIZE_MAX:
        raise InvalidSchedule(
            f"A calendar must have at most {SIZE_MAX:,} bytes, got {state.st_size:,}: {file}."
        )
    return _read_file(str(file.resolve()), (state.st_mtime_ns, state.st_size), first, last)


@lru_cache(maxsize=64)
def _read_file(path: str, _: tuple[int, int], first: int, last: int) -> frozenset[date]:
    icalendar = _load("icalendar", extra="calendar")
    try:
        events = icalendar.Calendar.from_ical(Path(path).read_bytes()).walk("VEVENT")
        found = {day for event in events for day in _days_of(event, first, last)}
        # An event that was moved is listed by itself; its old date is none any more.
        moved = {_day(e["RECURRENCE-ID"].dt) for e in events if "RECURRENCE-ID" in e}
        kept = {day for e in events if "RECURRENCE-ID" in e for day in _days_of(e, first, last)}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InvalidSchedule(
            f"{path!r} is not a calendar: {error}.",
            fix="Use a file in the iCalendar format (.ics).",
        ) from error
    if not events:
        raise InvalidSchedule(f"The calendar {path!r} has no events.")
    return frozenset((found - moved) | kept)


@lru_cache(maxsize=64)
def read_country_dates(country: str, *, first: int, last: int) -> frozenset[date]:
    """The public holidays of a country, or of a part of it: ``DE``, ``DE-BY``.

    Raises:
        InvalidSchedule: There is no such country.
        ExtraMissing: The package holidays is missing.
    """
    holidays = _load("holidays", extra="holidays")
    name, _, part = country.partition("-")
    try:
        found = holidays.country_holidays(name, subdiv=part or None, years=range(first, last + 1))
    except NotImplementedError:  # how the package holidays reports a country that it does not know
        raise InvalidSchedule(
            f"The package holidays does not know {country!r}.",
            fix="Use an ISO 3166 code: 'DE' for Germany, 'DE-BY' for Bavaria.",
        ) from None
    return frozenset(found)


def _load(name: str, *, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ExtraMissing(name, extra=extra) from None


def _days_of(event: Any, first: int, last: int) -> Iterator[date]:
    """The days on which an event takes place, in these years."""
    if str(event.get("STATUS", "")).upper() == "CANCELLED":
        return
    start = event["DTSTART"].dt
    length = min(_length(event, start), _DAYS_MAX)
    low, high = datetime(first, 1, 1) - timedelta(days=length), datetime(last, 12, 31)  # noqa: DTZ001
    for day in _starts(event, _day(start), low, high):
        for more in range(length):
            found = day + timedelta(days=more)
            if first <= found.year <= last:
                yield found


def _starts(event: Any, start: date, low: datetime, high: datetime) -> set[date]:
    """The first day of each occurrence."""
    found = {start}
    if "RRULE" in event:
        rule = event["RRULE"].copy()
        until = [_day(each) for each in rule.pop("UNTIL", [])]
        rules = _load("dateutil.rrule", extra="calendar")
        naive = datetime(start.year, start.month, start.day)  # noqa: DTZ001  # days have no zone
        text = type(event["RRULE"])(rule).to_ical().decode()
        found |= {
            day.date() for day in rules.rrulestr(text, dtstart=naive).between(low, high, inc=True)
        }
        found = {day for day in found if not until or day <= until[0]}
    found |= set(_listed_days(event, "RDATE"))
    return found - set(_listed_days(event, "EXDATE"))


def _listed_days(event: Any, name: str) -> Iterator[date]:
    given = event.get(name, [])
    for each in given if isinstance(given, list) else [given]:
        yield from (_day(listed.dt) for listed in each.dts)


def _length(event: Any, start: Any) -> int:
    """How many days an event takes: the end is not a part of it."""
    end = start
    if "DTEND" in event:
        end = event["DTEND"].dt
    elif "DURATION" in event:
        end = start + event["DURATION"].dt
    if isinstance(end, datetime):
        with suppress(OverflowError):
            end -= timedelta(microseconds=1) if end > start else timedelta(0)
        return (_day(end) - _day(start)).days + 1
    return max(int((end - start).days), 1)


def _day(moment: Any) -> date:
    return moment.date() if isinstance(moment, datetime) else moment
