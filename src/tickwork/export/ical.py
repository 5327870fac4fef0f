"""Writes schedules as an iCalendar file (RFC 5545)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice, takewhile
from typing import Final

from tickwork._domain.schedules.contract import walk
from tickwork._domain.schedules.zones import Zone
from tickwork._kernel.plain_text import count_of
from tickwork._kernel.version import VERSION
from tickwork.contracts import CalendarEntry
from tickwork.export.rrule import RecurrenceRule, find_rrules
from tickwork.export.vtimezone import timezone_lines

FIRINGS_MAX: Final = 1_000
"""The most events of a schedule whose firings are listed one by one."""

LENGTH_DEFAULT: Final = timedelta(minutes=15)
ZONE_YEARS: Final = 10
"""How far time zones are described. Later changes follow the rule of the last years."""

_LINE_MAX: Final = 75  # bytes
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A run that has started, with its outcome: an event of its own."""

    id: str
    name: str
    outcome: str  # such as "completed" or "failed_permanent"
    started_at: datetime
    ended_at: datetime | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ICalendarExporter:
    """Writes an iCalendar file.

    A schedule is one event with a recurrence rule, or a few, where rules are exact. The firings of
    other schedules are listed one by one. Ids depend on the tenant and the name of a schedule, so
    that an import updates the events of the last one. Events do not block time.
    """

    name: str = "tickwork"
    length: timedelta = LENGTH_DEFAULT  # of an event; a firing has none
    runs: Sequence[PastRun] = ()

    def export(self, entries: Iterable[CalendarEntry], *, begin: datetime, end: datetime) -> str:
        """Return the file: rules from ``begin`` on, other firings until ``end``, and the runs."""
        events: list[str] = []
        zones: set[str] = set()
        for entry in entries:
            for lines, zone in self._events(entry, begin, end):
                events += lines
                zones.add(zone)
        for run in self.runs:
            events += _run_event(run, stamp=begin)
        until = begin + timedelta(days=366 * ZONE_YEARS)
        lines = [
            "BEGIN:VCALENDAR",
            "VERSION:2.0",
            f"PRODID:-//tickwork//tickwork {VERSION}//EN",
            "CALSCALE:GREGORIAN",
            "METHOD:PUBLISH",
            f"X-WR-CALNAME:{_escape(self.name)}",
            *(
                line
                for zone in sorted(zones - {"UTC"})
                for line in timezone_lines(Zone.named(zone), begin=begin, end=max(until, end))
            ),
            *events,
            "END:VCALENDAR",
        ]
        return "".join(f"{_fold(line)}\r\n" for line in lines)

    def _events(
        self, entry: CalendarEntry, begin: datetime, end: datetime
    ) -> Iterator[tuple[list[str], str]]:
        """The lines of each event of a schedule, and its time zone."""
        rules = find_rrules(entry.rule, begin=begin)
        note = ""
        if rules is None:
            rules, note = _listed(entry, begin, end)
        for number, rule in enumerate(rules):
            # Parts of a rule are numbered; a single firing is known by its time.
            part = str(number) if rule.text else f"{rule.first.astimezone(UTC):%Y%m%dT%H%M%SZ}"
            lines = [
                "BEGIN:VEVENT",
                f"UID:{_uid(entry, part)}",
                f"DTSTAMP:{_utc(begin)}",
                _time("DTSTART", rule.first, rule.zone),
                f"DURATION:{_duration(self.length)}",
                *([f"RRULE:{rule.text}"] if rule.text else []),
                *(_time("EXDATE", at, rule.zone) for at in rule.excluded),
                f"SUMMARY:{_escape(title_of(entry))}",
                f"DESCRIPTION:{_escape(describe_entry(entry) + note)}",
                "TRANSP:TRANSPARENT",
                "END:VEVENT",
            ]
            yield lines, rule.zone


def title_of(entry: CalendarEntry) -> str:
    """The title of the events of a schedule."""
    return f"{entry.tenant}/{entry.name}" if entry.tenant else entry.name


def describe_entry(entry: CalendarEntry) -> str:
    """The description of the events of a schedule: its rule and its job."""
    return f"{entry.description or f'Fires {entry.rule.describe()}.'}\nJob: {entry.job}"


def _listed(
    entry: CalendarEntry, begin: datetime, end: datetime
) -> tuple[list[RecurrenceRule], str]:
    """Each firing by itself, and a note on where the list ends."""
    coming = walk(entry.rule, begin.astimezone(UTC) - _SECOND)
    entries = [
        RecurrenceRule(at, entry.rule.tz, "")
        for at in islice(takewhile(lambda at: at < end, coming), FIRINGS_MAX)
    ]
    last = entries[-1].first if len(entries) == FIRINGS_MAX else end
    what = f"the first {count_of(FIRINGS_MAX, 'firing')}" if last != end else "its firings"
    return entries, f"\nThe calendar lists {what}, until {last:%Y-%m-%d %H:%M %Z}."


def _run_event(run: PastRun, *, stamp: datetime) -> list[str]:
    is_void = run.outcome in {"canceled", "skipped"}
    end = run.ended_at if run.ended_at is not None else stamp
    return [
        "BEGIN:VEVENT",
        f"UID:run-{run.id}@tickwork",
        f"DTSTAMP:{_utc(stamp)}",
        f"DTSTART:{_utc(run.started_at)}",
        # A calendar program may hide an event without a length.
        f"DTEND:{_utc(max(end, run.started_at + timedelta(minutes=1)))}",
        f"SUMMARY:{_escape(f'{run.name}: {run.outcome}')}",
        f"DESCRIPTION:{_escape(run.text or f'Run {run.id}')}",
        f"CATEGORIES:{_escape(run.outcome)}",
        f"STATUS:{'CANCELLED' if is_void else 'CONFIRMED'}",
        "TRANSP:TRANSPARENT",
        "END:VEVENT",
    ]


def _uid(entry: CalendarEntry, part: str) -> str:
    identity = f"{entry.tenant}\0{entry.name}\0{part}"
    return f"{blake2b(identity.encode(), digest_size=16).hexdigest()}@tickwork"


def _time(name: str, at: datetime, zone: str) -> str:
    if zone == "UTC":
        return f"{name}:{_utc(at)}"
    return f"{name};TZID={zone}:{at.astimezone(Zone.named(zone).info):%Y%m%dT%H%M%S}"


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _duration(length: timedelta) -> str:
    return f"PT{length.days * 86_400 + length.seconds}S"


def _escape(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), (";", "\\;"), (",", "\\,"), ("\r", ""), ("\n", "\\n")):
        text = text.replace(plain, escaped)
    return "".join(letter for letter in text if letter == "\t" or letter >= " ")


def _fold(line: str) -> str:
    """Break a line after 75 bytes, and never inside of a character."""
    lines, size = [""], 0
    for letter in line:
        width = len(letter.encode())
        if size + width > _LINE_MAX:
            lines.append(" ")
            size = 1
        lines[-1] += letter
        size += width
    return "\r\n".join(lines)
