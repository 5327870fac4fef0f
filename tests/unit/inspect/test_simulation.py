from datetime import UTC, datetime, timedelta

import pytest

from tickwork._calendars.calendars import NO_CALENDARS
from tickwork._config.rule_text import parse_rule_text
from tickwork._domain.job import ScheduleSpec
from tickwork._domain.schedules.pattern import SYMBOLS
from tickwork._inspect.simulation import INSTANTS_MAX, Simulation, simulate
from tickwork._inspect.upcoming_firings import ActiveSchedule

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def a_schedule(name: str, text: str, *, until: datetime | None = None) -> ActiveSchedule:
    timing = parse_rule_text(text, symbols=SYMBOLS, calendars=NO_CALENDARS)
    rule = timing.rule(tz="UTC", anchor=MIDNIGHT, key=name)
    spec = ScheduleSpec(name=name, job="report", rule=rule.to_text(), until=until)
    first = rule.next_after(MIDNIGHT - timedelta(seconds=1))
    return ActiveSchedule(spec, rule, first, is_written=True)


def simulated(*schedules: ActiveSchedule, days: float = 1) -> Simulation:
    return simulate(
        schedules,
        begin=MIDNIGHT,
        days=days,
        zone="UTC",
        collisions_max=3,
        progress=lambda _done, _total: None,
    )


@pytest.mark.parametrize(
    ("rule", "hourly"), [("* * * * * *", 3600), ("*/10 * * * * *", 360), ("0 * * * *", 1)]
)
def test_firings_are_counted_by_hour_whether_they_are_listed_or_not(rule, hourly):
    found = simulated(a_schedule("one", rule))

    # The end of the day is included, and falls into the first hour.
    assert found.by_hour == [hourly + 1] + [hourly] * 23
    assert found.firings == sum(found.by_hour)


def test_a_schedule_with_too_many_firings_to_list_collides_with_others():
    frequent = a_schedule("every second", "* * * * * *")
    rare = a_schedule("in the evening", "0 20 * * *")
    assert INSTANTS_MAX < 20 * 3600

    found = simulated(rare, frequent)

    [collision] = found.collisions
    assert collision.at == MIDNIGHT + timedelta(hours=20)
    assert collision.schedules == ["in the evening", "every second"]


def test_a_schedule_stops_at_its_end():
    ends = a_schedule("ends", "0 * * * *", until=MIDNIGHT + timedelta(hours=3))

    found = simulated(ends)

    assert found.firings == 4
    assert found.schedules[0].last_at == MIDNIGHT + timedelta(hours=3)


def test_the_most_frequent_schedule_comes_first():
    found = simulated(a_schedule("hourly", "0 * * * *"), a_schedule("minutely", "* * * * *"))

    assert [each.name for each in found.schedules] == ["minutely", "hourly"]
    assert found.busiest_minute == MIDNIGHT
    assert found.busiest_minute_firings == 2


BERLIN = "Europe/Berlin"
GAP = "fires once, at 03:00:00 CEST."
FOLD = "fires once, at the first time."


@pytest.mark.parametrize(
    ("rule", "days", "notes"),
    [
        ("30 2 * * *", 27, []),  # until the 28th
        ("30 2 * * *", 29, [("2026-03-29", GAP)]),
        ("30 2 * * *", 365, [("2026-03-29", GAP), ("2026-10-25", FOLD)]),
        ("30 12 * * *", 365, []),
    ],
)
def test_the_notes_are_the_clock_changes_in_these_days(rule, days, notes):
    timing = parse_rule_text(rule, symbols=SYMBOLS, calendars=NO_CALENDARS)
    built = timing.rule(tz=BERLIN, anchor=MIDNIGHT, key="one")
    spec = ScheduleSpec(name="one", job="report", rule=built.to_text())
    schedule = ActiveSchedule(spec, built, built.next_after(MIDNIGHT), is_written=True)

    found = simulated(schedule, days=days).schedules[0].notes

    assert len(found) == len(notes)
    for note, (day, effect) in zip(found, notes, strict=True):
        assert day in note
        assert note.endswith(effect)
