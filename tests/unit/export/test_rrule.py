"""A recurrence rule, expanded by another library, fires exactly when the schedule does."""

import random
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr

from tickwork import schedules
from tickwork._domain.schedules.contract import walk
from tickwork.export.rrule import find_rrules
from tickwork.schedules import Cron

BEGIN = datetime(2026, 1, 7, 13, 30, tzinfo=UTC)
END = BEGIN + timedelta(days=731)
NEW_YORK = "America/New_York"


def own_firings(rule, *, end=END):
    found = []
    for at in walk(rule, BEGIN - timedelta(seconds=1)):
        if at > end:
            break
        found.append(at.astimezone(UTC))
    return found


def expanded(rules, *, end=END):
    """The firings by dateutil: wall times, which become instants by the rule of RFC 5545."""
    found = []
    for rule in rules:
        zone = ZoneInfo(rule.zone)
        first = rule.first.astimezone(zone).replace(tzinfo=None)
        if not rule.text:
            walls = [first]
        else:
            text, _, until = rule.text.partition(";UNTIL=")
            last = end.astimezone(zone).replace(tzinfo=None)
            walls = rrulestr(text, dtstart=first).between(first, last, inc=True)
            if until:
                stop = datetime.strptime(until, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
                walls = [wall for wall in walls if wall.replace(tzinfo=zone) <= stop]
        excluded = {at.astimezone(zone).replace(tzinfo=None) for at in rule.excluded}
        assert excluded <= set(walls)
        found += [
            wall.replace(tzinfo=zone).astimezone(UTC) for wall in walls if wall not in excluded
        ]
    return sorted(found)


def cron(expr, tz=NEW_YORK):
    return Cron.parse(expr, tz=tz)


ANCHOR = datetime(2026, 1, 31, 9, 0, tzinfo=ZoneInfo(NEW_YORK))
EXACT = {
    "daily": (cron("0 9 * * *"), ["FREQ=DAILY"]),
    "weekly": (cron("30 8 * * 1"), ["FREQ=WEEKLY;BYDAY=MO"]),
    "weekday list": (cron("0 9 * * MON-FRI"), ["FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"]),
    "the 31st": (cron("0 9 31 * *"), ["FREQ=MONTHLY;BYMONTHDAY=31"]),
    "L": (cron("0 9 L * *"), ["FREQ=MONTHLY;BYMONTHDAY=-1"]),
    "LW": (cron("0 9 LW * *"), ["FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"]),
    "LW twice": (
        cron("0 9,17 LW * *"),
        ["FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2,-1;BYHOUR=9,17"],
    ),
    "5#2": (cron("0 9 * * 5#2"), ["FREQ=MONTHLY;BYDAY=2FR"]),
    "5L": (cron("0 9 * * 5L"), ["FREQ=MONTHLY;BYDAY=-1FR"]),
    "months": (cron("0 9 25 12 *"), ["FREQ=MONTHLY;BYMONTH=12;BYMONTHDAY=25"]),
    "days and weekdays": (cron("0 9 */2 * MON"), None),
    "days or weekdays": (cron("0 9 1,15 * MON"), None),
    "1W": (cron("0 9 1W * *"), None),
    "15W": (cron("0 9 15W * *"), None),
    "office hours": (
        cron("*/15 9-17 * * *"),
        ["FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16,17;BYMINUTE=0,15,30,45"],
    ),
    "fixed in the fold": (cron("30 1 * * *"), ["FREQ=DAILY"]),
    "hourly in New York": (cron("5 * * * *"), ["FREQ=HOURLY"]),
    "quarters in Kathmandu": (
        cron("0,15 * * * *", "Asia/Kathmandu"),
        ["FREQ=DAILY;BYHOUR=" + ",".join(map(str, range(24))) + ";BYMINUTE=0,15"],
    ),
    "every 90 minutes": (
        schedules.every(minutes=90, starting=BEGIN).timezone(NEW_YORK).rule(),
        ["FREQ=MINUTELY;INTERVAL=90"],
    ),
    "every 7 seconds": (schedules.every(seconds=100_003, starting=BEGIN).rule(), None),
    "every 2 days": (schedules.daily(starting=ANCHOR, interval=2).timezone(NEW_YORK).rule(), None),
    "every 2 weeks": (
        schedules.weekly(starting=ANCHOR, interval=2, weekdays=[1, 3]).timezone(NEW_YORK).rule(),
        ["FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;WKST=MO"],
    ),
    "monthly on the 31st": (
        schedules.monthly(starting=ANCHOR).timezone(NEW_YORK).rule(),
        ["FREQ=MONTHLY;BYMONTHDAY=-1"],
    ),
    "monthly on the 30th": (
        schedules.monthly(starting=ANCHOR - timedelta(days=1)).timezone(NEW_YORK).rule(),
        ["FREQ=MONTHLY;BYMONTHDAY=28,29,30;BYSETPOS=-1"],
    ),
    "monthly on the 31st or not": (
        schedules.monthly(starting=ANCHOR, missing="skip").timezone(NEW_YORK).rule(),
        ["FREQ=MONTHLY;BYMONTHDAY=31"],
    ),
    "yearly": (schedules.yearly(starting=ANCHOR).timezone(NEW_YORK).rule(), None),
    "once": (schedules.once(BEGIN + timedelta(days=3)).rule(), [""]),
    "window": (
        schedules.every_fifteen_minutes().timezone(NEW_YORK).between("09:00", "17:00").rule(),
        None,
    ),
    "not at lunch": (
        schedules.every_ten_minutes()
        .hours(range(9, 18))
        .unless_between("12:00", "12:29")
        .timezone(NEW_YORK)
        .rule(),
        None,
    ),
    "excluded dates": (
        schedules.daily_at("09:00").except_on("2026-12-25", "2026-01-08", "2027-03-14").rule(),
        ["FREQ=DAILY"],
    ),
    "excluded dates of a recurrence": (
        schedules.weekly(starting=BEGIN).except_on("2026-01-14", "2026-01-15").rule(),
        None,
    ),
    "bounds": (
        schedules.daily_at("09:00").starting("2026-02-01T00:00Z").until("2026-03-01T09:00Z").rule(),
        ["FREQ=DAILY;UNTIL=20260301T090000Z"],
    ),
    "ten times": (
        schedules.hourly().starting(BEGIN).max_firings(10).rule(),
        ["FREQ=HOURLY;UNTIL=20260107T230000Z"],
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_a_rule_has_the_firings_of_its_schedule_for_two_years(name):
    rule, texts = EXACT[name]

    found = find_rrules(rule, begin=BEGIN)

    assert found is not None
    assert texts is None or [each.text for each in found] == texts
    assert expanded(found) == own_firings(rule)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(cron("30 2 * * *"), id="a time that one day does not have"),
        pytest.param(cron("*/20 1-2 * * *"), id="wall times that come twice"),
        pytest.param(cron("0 * * * *", "Australia/Lord_Howe"), id="changes of half an hour"),
        pytest.param(cron("0 9 15W,20 * *"), id="the nearest workday or another day"),
        pytest.param(cron("0 9 1 * 5L"), id="a day or a counted weekday"),
        pytest.param(schedules.pattern(minutes=0, hours=9, year=2027).rule(), id="years"),
        pytest.param(
            schedules.every(minutes=90, starting=BEGIN).between("09:00", "17:00").rule(),
            id="an interval in a window",
        ),
        pytest.param(
            schedules.daily(
                starting=datetime(2026, 1, 1, 2, 30, tzinfo=ZoneInfo(NEW_YORK))
            ).timezone(NEW_YORK).rule(),
            id="a recurrence at a time that one day does not have",
        ),
    ],
)  # fmt: skip
def test_there_is_no_rule_where_none_is_exact(rule):
    assert find_rrules(rule, begin=BEGIN) is None


def test_a_schedule_without_further_firings_has_no_rules():
    assert find_rrules(schedules.once("2020-01-01T00:00Z").rule(), begin=BEGIN) == []


FIELDS = (
    ("0", "30", "*/20", "5,35", "H"),
    ("9", "1", "*/6", "9-17", "0,12", "*"),
    ("*", "1", "15", "31", "*/2", "1-7", "L", "LW", "1W", "16W", "3,L"),
    ("*", "2", "1-6", "*/3"),
    ("*", "MON", "1-5", "0,6", "5#2", "5L", "1#1,3", "*/2"),
)
ZONES = (NEW_YORK, "UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe")


def test_any_cron_expression_that_has_rules_has_exact_ones():
    chance, end, exact = random.Random(19), BEGIN + timedelta(days=400), 0
    for _ in range(150):
        expr, tz = " ".join(map(chance.choice, FIELDS)), chance.choice(ZONES)
        rule = Cron.parse(expr, tz=tz, key="a")

        found = find_rrules(rule, begin=BEGIN)

        if found is not None:
            exact += 1
            assert expanded(found, end=end) == own_firings(rule, end=end), (expr, tz)
    assert exact > 40


def test_a_date_without_a_firing_is_not_excluded():
    rule = schedules.daily_at("09:00").mondays().except_on("2026-02-02", "2026-02-03").rule()

    [found] = find_rrules(rule, begin=BEGIN) or []

    assert [at.date() for at in found.excluded] == [date(2026, 2, 2)]
