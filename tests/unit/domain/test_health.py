from datetime import UTC, datetime, timedelta

import pytest

from tickwork._domain.health import HealthFacts, Level, examine

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MB = 1024 * 1024


def facts(**more):
    return HealthFacts(
        **{"now": NOON, "round_trip": timedelta(0), "skew": timedelta(0), "up": 1, **more}
    )


def level(name, **more):
    return next(check.level for check in examine(facts(**more)) if check.name == name)


def ago(**length):
    return NOON - timedelta(**length)


CASES = [
    ("connection", {"round_trip": timedelta(milliseconds=3)}, Level.OK),
    ("connection", {"round_trip": timedelta(seconds=1)}, Level.WARN),
    ("clock", {"skew": timedelta(milliseconds=-300)}, Level.OK),
    ("clock", {"skew": timedelta(seconds=-3600)}, Level.WARN),
    ("time zones", {"zones": {"2026a"}, "zones_here": "2026a"}, Level.OK),
    ("time zones", {"zones": {"2026a"}}, Level.OK),
    ("time zones", {"zones": {"2026a"}, "zones_here": "2026b"}, Level.WARN),
    ("workers", {"up": 0}, Level.BAD),
    ("workers", {"silent": ["web-1 4711"]}, Level.WARN),
    ("workers", {"up": 0, "silent": ["web-1 4711"]}, Level.BAD),
    ("workers", {"versions": {"0.1"}, "version": "0.1"}, Level.OK),
    ("workers", {"versions": {"0.1", "0.2"}, "version": "0.1"}, Level.WARN),
    ("leases", {"expired": ["run"]}, Level.BAD),
    ("outcomes", {"unwritten": ["web-1 4711: 3 outcomes"]}, Level.BAD),
    ("backlog", {"oldest_ready_at": ago(seconds=29)}, Level.OK),
    ("backlog", {"oldest_ready_at": ago(seconds=31)}, Level.WARN),
    ("backlog", {"unstaged_at": ago(hours=1)}, Level.BAD),
    ("events", {"outbox_at": ago(seconds=60)}, Level.OK),
    ("events", {"outbox_at": ago(seconds=61)}, Level.WARN),
    ("known jobs", {"unknown_jobs": ["elsewhere"]}, Level.WARN),
    ("known jobs", {"up": 0}, Level.WARN),
    ("clock", {"ahead": ["hourly"], "ahead_until": NOON + timedelta(hours=1)}, Level.WARN),
    ("schedules", {"unfired_at": ago(seconds=10)}, Level.OK),
    ("schedules", {"unfired_at": ago(seconds=20)}, Level.BAD),
    ("schedules", {"unreadable": ["nightly"]}, Level.WARN),
    ("schedules", {"retired": ["nightly"]}, Level.WARN),
    ("jobs", {"failing": [("report", 2)]}, Level.OK),
    ("jobs", {"failing": [("report", 3)]}, Level.WARN),
    ("tables", {"open_since": ago(minutes=5)}, Level.OK),
    ("tables", {"open_since": ago(minutes=11)}, Level.WARN),
    ("tables", {"open_since": ago(hours=2)}, Level.BAD),
    (
        "tables",
        {"open_since": ago(hours=2), "open_holder": "process 7", "open_query": "SELECT 1"},
        Level.BAD,
    ),
    ("tables", {"dead_rows": 1_000_000}, Level.WARN),
    ("tables", {"log": 500 * MB}, Level.WARN),
    ("tables", {"size": 1000 * MB, "free": 400 * MB}, Level.OK),
    ("tables", {"size": 1000 * MB, "free": 600 * MB}, Level.WARN),
]


@pytest.mark.parametrize(("name", "more", "expected"), CASES)
def test_where_a_number_begins_to_be_a_problem(name, more, expected):
    assert level(name, **more) is expected


@pytest.mark.parametrize(("name", "more", "expected"), CASES)
def test_a_failed_check_tells_what_to_do(name, more, expected):
    [check] = [check for check in examine(facts(**more)) if check.name == name]

    assert bool(check.fix) == (expected is not Level.OK)


def test_all_is_well():
    assert {check.level for check in examine(facts())} == {Level.OK}
