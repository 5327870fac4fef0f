"""Instants and lengths for people: how far away, and in whose zone."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from tickwork._kernel.durations import human_duration

_NOW_WITHIN = timedelta(milliseconds=500)


def relative(moment: datetime | None, now: datetime, *, nothing: str = "-") -> str:
    """How far away: ``in 4m 12s``, ``2h 3m ago``, ``now``.

    >>> noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    >>> relative(noon + timedelta(minutes=4), noon), relative(noon - timedelta(days=2), noon)
    ('in 4m', '2d ago')
    """
    if moment is None:
        return nothing
    ahead = moment - now
    if abs(ahead) < _NOW_WITHIN:
        return "now"
    if ahead > timedelta(0):
        return f"in {_rough(ahead)}"
    return f"{_rough(-ahead)} ago"


def _rough(length: timedelta) -> str:
    # Fractions of seconds are noise from three seconds on.
    if length >= timedelta(seconds=3):
        length = timedelta(seconds=round(length.total_seconds()))
    return human_duration(length)


def local(moment: datetime) -> datetime:
    """The same instant in the reader's own zone."""
    return moment.astimezone()


def local_zone(now: datetime) -> str:
    """What the reader's zone is called at this moment."""
    return local(now).tzname() or "local"


def shown(moment: datetime | None, *, nothing: str = "-", zone: str | None = None) -> str:
    """An instant with its zone: the reader's, or this one.

    >>> shown(datetime(2026, 3, 1, 12, tzinfo=UTC), zone="Europe/Berlin")
    '2026-03-01 13:00:00 CET'
    """
    if moment is None:
        return nothing
    there = local(moment) if zone is None else moment.astimezone(_zone(zone))
    return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"


def clock_time(moment: datetime, now: datetime) -> str:
    """The time of day in the reader's zone; with its date when that is another day."""
    there, today = local(moment), local(now)
    if there.date() == today.date():
        return f"{there:%H:%M:%S}"
    return f"{there:%Y-%m-%d %H:%M:%S}" if there.year != today.year else f"{there:%b %d %H:%M:%S}"


def weekday_time(moment: datetime, *, zone: str | None = None) -> str:
    """An instant with its day of the week and its zone."""
    there = local(moment) if zone is None else moment.astimezone(_zone(zone))
    return f"{there:%a %Y-%m-%d %H:%M:%S} {there.tzname()}"


def took(begun: datetime | None, ended: datetime | None) -> str:
    """How long something took."""
    if begun is None or ended is None:
        return "-"
    return human_duration(max(ended - begun, timedelta(0)))


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)
