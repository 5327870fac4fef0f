"""Schedules as a calendar file: another library reads the file, and finds our own firings."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import icalendar
import pytest
from dateutil.rrule import rruleset, rrulestr

from application.conftest import DATABASES
from tickwork import schedules
from tickwork._domain.schedules.contract import walk
from tickwork.contracts import CalendarEntry
from tickwork.errors import InvalidOption, ScheduleNotFound
from tickwork.export import ICalendarExporter, PastRun

NEW_YORK = "America/New_York"
BEGIN = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
END = BEGIN + timedelta(days=731)


@pytest.fixture(params=DATABASES[:1])  # the stores are tested elsewhere
def database(request):
    return str(request.param)


def entry(rule, name="a", **options):
    return CalendarEntry(id=name, name=name, job="job", rule=rule, **options)


def events_of(text):
    calendar = icalendar.Calendar.from_ical(text)
    assert calendar.errors == []
    found = list(calendar.walk("VEVENT"))
    assert all(not event.errors for event in found)
    return found


def occurrences(event, *, zones=None):
    """The instants of an event, by icalendar and dateutil, with the zones of the file."""
    start = event["DTSTART"].dt
    zone = start.tzinfo if zones is None else zones.get(event["DTSTART"].params.get("TZID"), UTC)
    walls = rruleset()
    first = start.replace(tzinfo=None)
    until = None
    if "RRULE" in event:
        rule = event["RRULE"]
        [until] = rule.pop("UNTIL", [None])
        walls.rrule(rrulestr(rule.to_ical().decode(), dtstart=first))
    else:
        walls.rdate(first)
    excluded = event.get("EXDATE", [])
    for each in excluded if isinstance(excluded, list) else [excluded]:
        for day in each.dts:
            walls.exdate(day.dt.replace(tzinfo=None))
    last = END.astimezone(zone).replace(tzinfo=None)
    found = [wall.replace(tzinfo=zone) for wall in walls.between(first, last, inc=True)]
    return [at.astimezone(UTC) for at in found if until is None or at <= until]


def expand(text, *, zones=None):
    return sorted(at for event in events_of(text) for at in occurrences(event, zones=zones))


def own(rule):
    found = []
    for at in walk(rule, BEGIN - timedelta(seconds=1)):
        if at > END:
            break
        found.append(at.astimezone(UTC))
    return found


RULES = {
    "daily": schedules.daily_at("09:00").timezone(NEW_YORK).rule(),
    "weekly in New York": schedules.weekly_on(1, "08:30").timezone(NEW_YORK).rule(),
    "monthly on the 31st": schedules.monthly(
        starting=datetime(2026, 1, 31, 9, tzinfo=ZoneInfo(NEW_YORK))
    )
    .timezone(NEW_YORK)
    .rule(),
    "31st by cron": schedules.cron("0 9 31 * *").timezone(NEW_YORK).rule(),
    "every 90 minutes": schedules.every(minutes=90, starting=BEGIN).timezone(NEW_YORK).rule(),
    "5#2": schedules.cron("0 9 * * 5#2").timezone(NEW_YORK).rule(),
    "holidays": schedules.daily_at("10:00")
    .timezone("Europe/Berlin")
    .except_on("2026-12-25", "2026-12-26")
    .rule(),
    "ends": schedules.daily_at("10:00").until("2026-03-01T00:00Z").rule(),
    # No rule is exact: these are listed.
    "2:30 in New York": schedules.daily_at("02:30").timezone(NEW_YORK).rule(),
    "hourly on Lord Howe": schedules.cron("0 */12 * * *").timezone("Australia/Lord_Howe").rule(),
}


class TestFile:
    """The file, read and expanded by other libraries, has the firings of the schedule."""

    @pytest.mark.parametrize("name", RULES)
    def test_its_events_are_the_firings_of_two_years(self, name):
        rule = RULES[name]

        text = ICalendarExporter().export([entry(rule)], begin=BEGIN, end=END)

        assert expand(text) == own(rule)

    def test_rules_are_used_where_they_are_exact(self):
        counts = {}
        for name, rule in RULES.items():
            text = ICalendarExporter().export([entry(rule)], begin=BEGIN, end=END)
            counts[name] = len(events_of(text))

        assert counts.pop("2:30 in New York") == 731
        assert counts.pop("hourly on Lord Howe") == 1
        assert set(counts.values()) == {1}

    def test_the_time_zone_in_the_file_has_the_changes_of_the_zone(self):
        for name in (
            "America/New_York",
            "Europe/Berlin",
            "Australia/Lord_Howe",
            "Africa/Casablanca",
        ):
            rule = schedules.daily_at("09:00").timezone(name).rule()
            text = ICalendarExporter().export([entry(rule)], begin=BEGIN, end=END)
            [zone] = icalendar.Calendar.from_ical(text).walk("VTIMEZONE")
            assert isinstance(zone, icalendar.Timezone)
            described = zone.to_tz(lookup_tzid=False)

            assert zone["TZID"] == name
            assert expand(text, zones={name: described}) == own(rule)

    def test_a_calendar_in_utc_has_no_time_zones(self):
        text = ICalendarExporter().export([entry(schedules.daily().rule())], begin=BEGIN, end=END)

        assert "VTIMEZONE" not in text

    def test_long_and_special_text_survives(self):
        name = "täglich; um 9,\nund \\ mehr " + "ö" * 100
        text = ICalendarExporter(name=name).export(
            [entry(schedules.daily().rule(), name=name, description=name)], begin=BEGIN, end=END
        )

        assert all(len(line) <= 75 for line in text.encode().split(b"\r\n"))
        [event] = events_of(text)
        assert event["SUMMARY"] == name
        assert event["DESCRIPTION"].startswith(name)

    def test_ids_stay_the_same_and_differ(self):
        def ids(rule, begin=BEGIN, **options):
            text = ICalendarExporter().export([entry(rule, **options)], begin=begin, end=END)
            return [str(event["UID"]) for event in events_of(text)]

        daily, listed = RULES["daily"], RULES["2:30 in New York"]
        assert ids(daily) == ids(daily, begin=BEGIN + timedelta(days=40))
        assert ids(daily) == ids(RULES["5#2"])  # the schedule was changed
        assert ids(daily) != ids(daily, name="b")
        assert ids(daily) != ids(daily, tenant="b")
        assert len(set(ids(listed))) == 731
        assert set(ids(listed, begin=BEGIN + timedelta(days=40))) < set(ids(listed))

    def test_a_frequent_schedule_is_cut_and_says_so(self):
        rule = schedules.cron("*/5 * * * *").timezone("Australia/Lord_Howe").rule()

        found = events_of(ICalendarExporter().export([entry(rule)], begin=BEGIN, end=END))

        assert len(found) == 1000
        assert "the first 1,000 firings, until 2026-01-09" in found[0]["DESCRIPTION"]

    def test_runs_are_events_with_their_outcome(self):
        run = PastRun(
            id="r1",
            name="nightly",
            outcome="failed_permanent",
            started_at=BEGIN - timedelta(hours=2),
            ended_at=BEGIN - timedelta(hours=1),
            text="ValueError: no",
        )

        [event] = events_of(ICalendarExporter(runs=[run]).export([], begin=BEGIN, end=END))

        assert event["SUMMARY"] == "nightly: failed_permanent"
        assert event["DESCRIPTION"] == "ValueError: no"
        assert (event["DTSTART"].dt, event["DTEND"].dt) == (run.started_at, run.ended_at)


class TestApp:
    """``app.export`` has the schedules of an application."""

    @pytest.fixture
    def app(self, make_app):
        app = make_app()

        @app.job
        def report(kind: str = "short") -> None:
            if kind == "bad":
                raise ValueError("no")

        app.schedule("nightly", report).daily_at("02:00")
        app.schedule("often", report).every(minutes=90).args(kind="bad")
        return app

    def names(self, text):
        return {str(event["SUMMARY"]) for event in events_of(text)}

    def test_it_contains_every_schedule_that_fires(self, app):
        assert self.names(app.export.ical()) == {"nightly", "often"}  # not stored yet

        app.run()
        app.schedules.pause("often")

        assert self.names(app.export.ical()) == {"nightly"}

    def test_names_choose_schedules(self, app):
        assert self.names(app.export.ical("nightly")) == {"nightly"}

        with pytest.raises(ScheduleNotFound, match="nihtly"):
            app.export.ical("nihtly")

    def test_a_pause_that_ends_moves_the_first_event(self, app, clock):
        app.run()
        app.schedules.pause("nightly", until=clock.now() + timedelta(days=10))

        [event] = events_of(app.export.ical("nightly"))

        assert event["DTSTART"].dt - clock.now() > timedelta(days=10)

    def test_past_runs_have_their_outcome(self, app, clock):
        app.run()
        clock.advance(minutes=91)
        app.run()

        assert self.names(app.export.ical(past="1d")) == {
            "nightly", "often", "often: failed_permanent",
        }  # fmt: skip
        assert "often: failed_permanent" not in self.names(app.export.ical("nightly", past="1d"))
        assert "often: failed_permanent" not in self.names(app.export.ical())

    def test_an_exporter_of_your_own_gets_the_schedules(self, app, clock):
        class Names:
            def export(self, entries, *, begin, end):
                assert end - begin == timedelta(days=3)
                return " ".join(f"{each.name}:{each.job}" for each in entries)

        assert app.export.write(Names(), days=3) == "nightly:report often:report"

    @pytest.mark.parametrize(
        "options", [{"days": 0}, {"days": 10_000}, {"length": "2d"}, {"length": 0}]
    )
    def test_bad_options_are_refused(self, app, options):
        with pytest.raises(InvalidOption):
            app.export.ical(**options)

    def test_links_carry_the_rule_or_the_next_firing(self, app, clock):
        google = parse_qs(urlsplit(app.export.google_link("nightly")).query)
        outlook = parse_qs(urlsplit(app.export.outlook_link("nightly")).query)

        first = app.inspect.upcoming(limit=1, schedule="nightly").firings[0].at
        assert google["recur"] == ["RRULE:FREQ=DAILY"]
        assert google["dates"][0].startswith(f"{first:%Y%m%dT%H%M%S}/")
        assert google["text"] == ["nightly"]
        assert outlook["startdt"] == [f"{first:%Y-%m-%dT%H:%M:%SZ}"]
        assert outlook["subject"] == ["nightly"]
