"""Dates of holidays: from a calendar file, or from the package ``holidays``.

Only code names a file. It is read once, and its dates become a part of a rule or of a registered
calendar. Errors never repeat what a file contains: it may not be a calendar.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, NamedTuple

from tickwork._calendars.recurring_days import RecurringDays, as_day, read_recurrence
from tickwork._kernel.step_budget import count_steps, step_budget
from tickwork.errors import ExtraMissing, InvalidSchedule

SIZE_MAX: Final = 1024 * 1024
HOLIDAY_YEARS: Final = 3
"""For how many years the dates of a calendar are used, the current one included."""

_DAYS_MAX: Final = 366
"""The most days of one event: longer ones are not holidays."""

_OPEN_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class CalendarEvent(NamedTuple):
    """The days of one event of a calendar file."""

    start: date
    length: int
    rule: RecurringDays | None
    added: frozenset[date]
    excluded: frozenset[date]
    replaces: date | None  # the day that this event had before it was moved

    def days(self, first: int, last: int) -> Iterator[date]:
        """The days on which it takes place, in these years."""
        low, high = date(first, 1, 1), date(last, 12, 31)
        starts = {self.start, *self.added}
        if self.rule is not None:
            starts.update(self.rule.between(low - timedelta(days=self.length), high))
        for start in starts - self.excluded:
            if start > high:
                continue
            for more in range(self.length):
                count_steps()
                day = start + timedelta(days=more)
                if low <= day <= high:
                    yield day


def read_holidays(
    calendar: str | PathLike[str] | None, country: str | None, *, now: datetime
) -> frozenset[date]:
    """The dates of a calendar file, a country or both, in this year and the next two."""
    years = {"first": now.year, "last": now.year + HOLIDAY_YEARS - 1}
    dates: frozenset[date] = frozenset()
    if calendar is not None:
        dates |= days_of_events(read_events(calendar), **years)
    if country is not None:
        dates |= read_country_dates(country, **years)
    return dates


@step_budget()
def days_of_events(events: tuple[CalendarEvent, ...], *, first: int, last: int) -> frozenset[date]:
    """The dates of all events, in these years.

    Raises:
        RuleTooCostly: The events repeat too often.
    """
    days = {day for event in events for day in event.days(first, last)}
    # An event that was moved is listed by itself; its old date is none any more.
    moved = [event for event in events if event.replaces is not None]
    kept = {day for event in moved for day in event.days(first, last)}
    return frozenset((days - {event.replaces for event in moved}) | kept)


def read_events(path: str | PathLike[str]) -> tuple[CalendarEvent, ...]:
    """Read the events of a calendar file.

    Raises:
        InvalidSchedule: The file is not a calendar, or not a regular file of at most 1 MiB.
        ExtraMissing: The package icalendar is missing.
    """
    name = fspath(path)
    content = _read_file(name)
    icalendar = _load("icalendar", extra="calendar")
    try:
        parsed = icalendar.Calendar.from_ical(content).walk("VEVENT")
        events = tuple(_read_event(each) for each in parsed if not _is_canceled(each))
    except InvalidSchedule as error:
        raise InvalidSchedule(
            f"The calendar {name!r} cannot be used: {error.what}", why=error.why, fix=error.fix
        ) from None
    except Exception:  # noqa: BLE001  # the text of an error may repeat the file
        raise InvalidSchedule(
            f"{name!r} is not a calendar.", fix="Use a file in the iCalendar format (.ics)."
        ) from None
    if not parsed:
        raise InvalidSchedule(f"The calendar {name!r} has no events.")
    return events


def _read_file(name: str) -> bytes:
    """The content of a regular file, never more than ``SIZE_MAX`` bytes."""
    try:
        _check_file(name, Path(name).stat())
        # Another file may have this name now. A pipe does not block, and is refused as well.
        with os.fdopen(os.open(name, _OPEN_FLAGS), "rb") as file:
            _check_file(name, os.fstat(file.fileno()))
            content = file.read(SIZE_MAX + 1)
    except InvalidSchedule:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a path"
        raise InvalidSchedule(
            f"The calendar {name!r} cannot be read: {reason}.",
            fix="Write the path of an .ics file, relative to the current folder, or the name of a "
            "calendar that was registered before: app.calendar(...).",
        ) from None
    if len(content) > SIZE_MAX:
        raise InvalidSchedule(
            f"A calendar must have at most {SIZE_MAX:,} bytes: {name!r} has more."
        )
    return content


def _check_file(name: str, state: os.stat_result) -> None:
    # The files of /proc have no size.
    if not stat.S_ISREG(state.st_mode) or state.st_size == 0:
        raise InvalidSchedule(
            f"The calendar {name!r} is not a regular file, or is empty.",
            fix="Use a file in the iCalendar format (.ics).",
        )


@lru_cache(maxsize=64)
def read_country_dates(country: str, *, first: int, last: int) -> frozenset[date]:
    """The public holidays of a country, or of a part of it: ``DE``, ``DE-BY``.

    Raises:
        InvalidSchedule: There is no such country.
        ExtraMissing: The package holidays is missing.
    """
    holidays = _load("holidays", extra="holidays")
    name, _, part = country.partition("-")
    unknown = InvalidSchedule(
        f"The package holidays does not know {country!r}.",
        fix="Use an ISO 3166 code: 'DE' for Germany, 'DE-BY' for Bavaria.",
    )
    # The package takes the name of anything that it contains for a country.
    if not (len(name) == 2 and name.isalpha() and name.isupper()):
        raise unknown
    try:
        country_days = holidays.country_holidays(
            name, subdiv=part or None, years=range(first, last + 1)
        )
    except NotImplementedError:  # how the package holidays reports a country that it does not know
        raise unknown from None
    return frozenset(country_days)


def _load(name: str, *, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ExtraMissing(name, extra=extra) from None


def _is_canceled(event: Any) -> bool:
    return str(event.get("STATUS", "")).upper() == "CANCELLED"


def _read_event(event: Any) -> CalendarEvent:
    start = event["DTSTART"].dt
    day = as_day(start)
    replaced = event.get("RECURRENCE-ID")
    rule = event.get("RRULE")
    if isinstance(rule, list):
        raise InvalidSchedule("An event has more than one recurrence rule.")
    return CalendarEvent(
        start=day,
        length=min(_length(event, start), _DAYS_MAX),
        rule=None if rule is None else read_recurrence(rule, day),
        added=frozenset(_listed_days(event, "RDATE")),
        excluded=frozenset(_listed_days(event, "EXDATE")),
        replaces=None if replaced is None else as_day(replaced.dt),
    )


def _listed_days(event: Any, name: str) -> Iterator[date]:
    values = event.get(name, [])
    for each in values if isinstance(values, list) else [values]:
        for listed in each.dts:
            # A period is a pair: its start, and its end or length.
            yield as_day(listed.dt[0] if isinstance(listed.dt, tuple) else listed.dt)


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
        return (as_day(end) - as_day(start)).days + 1
    return max(int((end - start).days), 1)
