"""The time zone in which all pages show times: of the browser, UTC, or of each schedule."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request

from tickwork._domain.schedules.zones import Zone
from tickwork.dashboard import fields
from tickwork.errors import InvalidSchedule, TickworkError

CHOICE_COOKIE: Final = "tickwork_zone"
BROWSER_COOKIE: Final = "tickwork_browser_zone"
"""Set by the script of the pages: the name of the browser's zone."""

CHOICE_SECONDS: Final = 365 * 24 * 3600


class ZoneChoice(StrEnum):
    BROWSER = "browser"
    UTC = "utc"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class DisplayZone:
    """A zone, and whether times of a schedule are shown in the schedule's own."""

    choice: ZoneChoice = ZoneChoice.UTC
    name: str = "UTC"
    browser: str = ""  # empty: the browser has not reported its zone

    @property
    def info(self) -> tzinfo:
        return UTC if self.name == "UTC" else Zone.named(self.name).info

    def info_of(self, schedule_zone: str) -> tzinfo:
        """The zone for times of a schedule with this zone."""
        if self.choice is ZoneChoice.SCHEDULE and schedule_zone:
            return _find(schedule_zone) or self.info
        return self.info

    def text(self, at: datetime | None, schedule_zone: str = "") -> str:
        if at is None:
            return "none"
        return str(at.astimezone(self.info_of(schedule_zone)).strftime("%Y-%m-%d %H:%M:%S %Z"))


def read_display_zone(request: Request, *, default: str) -> DisplayZone:
    """The zone of a browser: its choice, else its own zone if it has reported one, else UTC.

    ``default`` is the zone of the application, for times that belong to no schedule.
    """
    browser = unquote(request.cookies.get(BROWSER_COOKIE, ""))[: fields.KEY_MAX]
    if _find(browser) is None:
        browser = ""
    choice = ZoneChoice.BROWSER
    with suppress(ValueError):
        choice = ZoneChoice(request.cookies.get(CHOICE_COOKIE, ""))
    match choice:
        case ZoneChoice.BROWSER:
            return DisplayZone(choice, browser or "UTC", browser)
        case ZoneChoice.UTC:
            return DisplayZone(choice, "UTC", browser)
        case ZoneChoice.SCHEDULE:
            return DisplayZone(choice, default if _find(default) else "UTC", browser)


def read_past_time(text: str, *, now: datetime, zone: DisplayZone) -> str:
    """A time of a form as the API takes it: ``2h`` (ago), or a time without an offset."""
    with suppress(ValueError, TickworkError, OverflowError):
        length: timedelta = fields.DURATION.parse(text, True)
        return (now - length).isoformat()
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            return at.replace(tzinfo=zone.info).astimezone(UTC).isoformat()
    return text


def _find(name: str) -> tzinfo | None:
    try:
        return Zone.named(name).info if name else None
    except InvalidSchedule:
        return None
