"""Links that add one schedule to Google Calendar or Outlook."""

from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from tickwork.contracts import CalendarEntry
from tickwork.export.ical import describe_entry, title_of
from tickwork.export.rrule import find_rrules

_GOOGLE: Final = "https://calendar.google.com/calendar/render"
_OUTLOOK: Final = "https://outlook.office.com/calendar/0/action/compose"
_SECOND: Final = timedelta(seconds=1)


def google_link(entry: CalendarEntry, *, begin: datetime, length: timedelta) -> str | None:
    """A link to Google Calendar with the next firing; None if there is none.

    The event repeats if one recurrence rule describes the whole schedule.
    """
    first = _next(entry, begin)
    if first is None:
        return None
    rules = find_rrules(entry.rule, begin=begin) or []
    parameters = {
        "action": "TEMPLATE",
        "text": title_of(entry),
        "details": describe_entry(entry),
        "dates": "/".join(f"{at:%Y%m%dT%H%M%S}" for at in (first, first + length)),
        "ctz": entry.rule.tz,
    }
    if len(rules) == 1 and rules[0].text and not rules[0].excluded:
        zone = rules[0].zone
        local = rules[0].first
        parameters |= {
            "dates": "/".join(f"{at:%Y%m%dT%H%M%S}" for at in (local, local + length)),
            "ctz": zone,
            "recur": f"RRULE:{rules[0].text}",
        }
    return f"{_GOOGLE}?{urlencode(parameters)}"


def outlook_link(entry: CalendarEntry, *, begin: datetime, length: timedelta) -> str | None:
    """A link to Outlook with the next firing; None if there is none. Such links cannot repeat."""
    first = _next(entry, begin)
    if first is None:
        return None
    start = first.astimezone(UTC)
    parameters = {
        "path": "/calendar/action/compose",
        "rru": "addevent",
        "subject": title_of(entry),
        "body": describe_entry(entry),
        "startdt": f"{start:%Y-%m-%dT%H:%M:%SZ}",
        "enddt": f"{start + length:%Y-%m-%dT%H:%M:%SZ}",
    }
    return f"{_OUTLOOK}?{urlencode(parameters)}"


def _next(entry: CalendarEntry, begin: datetime) -> datetime | None:
    return entry.rule.next_after(begin.astimezone(UTC) - _SECOND)
