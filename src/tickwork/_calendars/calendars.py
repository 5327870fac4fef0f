"""The calendars of an application: days on which schedules do not fire, by name.

A calendar is read once, when it is registered. Rules that arrive as text name it, so no request
and no row makes a process open a file. A rule is stored with the dates, not with the name.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from os import PathLike
from typing import Final, TypeAlias

from tickwork._calendars.holiday_dates import read_holidays
from tickwork._domain.names import check_name
from tickwork._domain.schedules.bounds import DATES_MAX
from tickwork._domain.schedules.frequencies import read_dates
from tickwork._kernel.clock import SystemClock
from tickwork.errors import InvalidOption, InvalidSchedule, suggest

CalendarSource: TypeAlias = str | PathLike[str] | Iterable[date | str]
"""The path of an .ics file, or dates."""


class Calendars(Mapping[str, frozenset[date]]):
    """The dates of each calendar."""

    def __init__(self, known: Mapping[str, frozenset[date]] | None = None) -> None:
        self._dates: dict[str, frozenset[date]] = dict(known or {})

    def add(self, name: str, source: CalendarSource = (), *, country: str | None = None) -> None:
        """Read a calendar: the dates of this year and the next two, and those that are listed.

        Raises:
            InvalidSchedule: It cannot be read, or has no dates, or too many.
            InvalidOption: Another calendar has this name.
        """
        check_name("name", name)
        file, listed = None, frozenset[date]()
        if isinstance(source, str | PathLike):
            file = source
        else:
            listed = frozenset(read_dates(source))
        dates = listed | read_holidays(file, country, now=SystemClock().now())
        if not 1 <= len(dates) <= DATES_MAX:
            raise InvalidSchedule(
                f"A calendar must have between 1 and {DATES_MAX:,} dates in three years: "
                f"{name!r} has {len(dates):,}."
            )
        if self._dates.get(name, dates) != dates:
            raise InvalidOption("name", name, "must not be the name of another calendar")
        self._dates[name] = dates

    def update(self, other: "Calendars") -> None:
        """Add the calendars of a configuration file."""
        self._dates.update(other)

    def named(self, name: str) -> frozenset[date]:
        """The dates of a calendar.

        Raises:
            InvalidSchedule: No calendar has this name.
        """
        dates = self._dates.get(name)
        if dates is None:
            known = ", ".join(sorted(self._dates)[:_SHOWN])
            raise InvalidSchedule(
                f"There is no calendar {name[:_NAME_SHOWN]!r}.",
                why=f"The calendars are: {known}." if known else "No calendar is registered.",
                fix=suggest(name[:_NAME_SHOWN], self._dates)
                or "Register it in code, app.calendar(name, ...), or in [calendars] of "
                "tickwork.toml.",
            )
        return dates

    def __getitem__(self, name: str) -> frozenset[date]:
        return self._dates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dates)

    def __len__(self) -> int:
        return len(self._dates)


NO_CALENDARS: Final = Calendars()
"""For a rule that is read without an application."""

_SHOWN: Final = 20
_NAME_SHOWN: Final = 64
