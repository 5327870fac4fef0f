"""How times and durations are written for people."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from tickwork._kernel.durations import human_duration, relative_time

PROGRESS_WIDTH: Final = 10


def progress_text(stored: Any) -> str:
    """What a handler reported as its progress, as a bar with its note.

    >>> progress_text({"share": 0.25, "note": "page 3"})
    '██░░░░░░░░ 25 % page 3'
    """
    match stored:
        case {"share": int() | float() as share, "note": str(note)} if 0 <= share <= 1:
            # Rounded down: only a finished task shows a full bar.
            filled = int(share * PROGRESS_WIDTH)
            bar = "█" * filled + "░" * (PROGRESS_WIDTH - filled)
            return f"{bar} {int(share * 100)} % {note}".rstrip()
        case _:
            return str(stored)


def relative(moment: datetime | None, now: datetime, *, nothing: str = "-") -> str:
    """The rough distance from now, or ``nothing``."""
    if moment is None:
        return nothing
    return relative_time(moment, now)


def local(moment: datetime) -> datetime:
    return moment.astimezone()


def local_zone(now: datetime) -> str:
    return local(now).tzname() or "local"


def shown(moment: datetime | None, *, nothing: str = "-", zone: str | None = None) -> str:
    """A time with its zone: ``zone``, or the local one.

    >>> shown(datetime(2026, 3, 1, 12, tzinfo=UTC), zone="Europe/Berlin")
    '2026-03-01 13:00:00 CET'
    """
    if moment is None:
        return nothing
    there = local(moment) if zone is None else moment.astimezone(_zone(zone))
    return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"


def clock_time(moment: datetime, now: datetime) -> str:
    """The local time of day; with the date on another day than today."""
    there, today = local(moment), local(now)
    if there.date() == today.date():
        return f"{there:%H:%M:%S}"
    return f"{there:%Y-%m-%d %H:%M:%S}" if there.year != today.year else f"{there:%b %d %H:%M:%S}"


def weekday_time(moment: datetime, *, zone: str | None = None) -> str:
    """A time with its day of the week and its zone: ``zone``, or the local one."""
    there = local(moment) if zone is None else moment.astimezone(_zone(zone))
    return f"{there:%a %Y-%m-%d %H:%M:%S} {there.tzname()}"


def elapsed(started: datetime | None, ended: datetime | None, *, nothing: str = "-") -> str:
    if started is None or ended is None:
        return nothing
    return human_duration(max(ended - started, timedelta(0)))


def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # a row may have any name
        return UTC
