"""Every name of a month, a weekday and a macro, wherever one is read or written."""

from datetime import UTC, date, datetime

import pytest

from tickwork._calendars.recurring_days import read_recurrence
from tickwork._domain.schedules.contract import walk
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.grammar import MACROS, MONTH, WEEKDAY, parse_cron
from tickwork._domain.schedules.recurrence import Recurrence, Unit
from tickwork.export.rrule import find_rrules
from tickwork.schedules import Timetable

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
ORDINALS = ["1st", "2nd", "3rd", "4th", "5th"]
BY_MONTH = list(enumerate(MONTHS, 1))
BY_WEEKDAY = list(enumerate(WEEKDAYS))
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
JUST_BEFORE = datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC)


def values_of(expr):
    return parse_cron(expr, None)[0]


def described(expr):
    return Cron.parse(expr).describe()


class TestMonths:
    def test_these_are_all(self):
        assert list(MONTH.names) == [name[:3].upper() for name in MONTHS]

    @pytest.mark.parametrize(("number", "name"), BY_MONTH)
    def test_a_name_is_its_number(self, number, name):
        for text in (name[:3], name[:3].upper(), name[:3].lower()):
            assert values_of(f"0 0 1 {text} *").months == 1 << number
            assert values_of(f"0 0 1 {text}-DEC *").months == (2 << 12) - (1 << number)

    @pytest.mark.parametrize(("number", "name"), BY_MONTH)
    def test_it_fires_in_this_month(self, number, name):
        [first] = Cron.parse(f"0 0 1 {name[:3]} *").take(1, JUST_BEFORE)

        assert first.strftime("%m %B") == f"{number:02} {name}"

    @pytest.mark.parametrize(("number", "name"), BY_MONTH)
    def test_the_description_has_its_name(self, number, name):
        assert described(f"0 0 1 {number} *") == (f"at 00:00 on day 1 of the month in {name} (UTC)")


class TestWeekdays:
    def test_these_are_all(self):
        assert list(WEEKDAY.names) == [name[:3].upper() for name in WEEKDAYS]

    @pytest.mark.parametrize(("number", "name"), BY_WEEKDAY)
    def test_a_name_is_its_number(self, number, name):
        for text in (name[:3], name[:3].upper(), name[:3].lower()):
            assert values_of(f"0 0 * * {text}").weekdays == 1 << number
            assert values_of(f"0 0 * * {text}L").marks.last_weekday == 1 << number
            assert values_of(f"0 0 * * {text}#2").marks.nth_weekday == ((number, 2),)

    @pytest.mark.parametrize(("number", "name"), BY_WEEKDAY)
    def test_it_fires_on_this_weekday(self, number, name):
        for text in (name[:3], str(number)):
            [first] = Cron.parse(f"0 0 * * {text}").take(1, JUST_BEFORE)
            assert f"{first:%A}" == name

    @pytest.mark.parametrize(("number", "name"), BY_WEEKDAY)
    def test_the_methods_mean_it_too(self, number, name):
        method = getattr(Timetable(), f"{name.lower()}s")
        for chain in (method(), Timetable().weekly_on(number), Timetable().pattern(wday=number)):
            assert f"{chain.preview(1, after=JUST_BEFORE)[0]:%A}" == name

    @pytest.mark.parametrize(("number", "name"), BY_WEEKDAY)
    def test_the_description_has_its_name(self, number, name):
        assert described(f"0 0 * * {number}") == f"at 00:00 on {name} (UTC)"
        assert described(f"0 0 * * {number}L") == f"at 00:00 on the last {name} of the month (UTC)"
        weekly = Recurrence(unit=Unit.WEEK, interval=2, anchor=NEW_YEAR, weekdays=(number,))
        assert name in weekly.describe()
        assert [other for other in WEEKDAYS if other in weekly.describe()] == [name]

    @pytest.mark.parametrize(("nth", "ordinal"), [*enumerate(ORDINALS, 1)])
    def test_the_description_has_the_ordinal(self, nth, ordinal):
        assert (
            described(f"0 0 * * 5#{nth}") == f"at 00:00 on the {ordinal} Friday of the month (UTC)"
        )

    @pytest.mark.parametrize(("number", "name"), BY_WEEKDAY)
    def test_calendars_write_and_read_its_two_letters(self, number, name):
        letters = name[:2].upper()
        [rule] = find_rrules(Cron.parse(f"0 9 * * {number}"), begin=NEW_YEAR) or []
        two_weeks = Recurrence(unit=Unit.WEEK, interval=2, anchor=NEW_YEAR, weekdays=(number,))
        [other] = find_rrules(two_weeks, begin=NEW_YEAR) or []

        assert rule.text == f"FREQ=WEEKLY;BYDAY={letters}"
        assert f"BYDAY={letters};" in f"{other.text};"

        days = read_recurrence({"FREQ": ["WEEKLY"], "BYDAY": [letters]}, date(2026, 1, 1))
        assert {f"{day:%A}" for day in days.between(date(2026, 1, 1), date(2026, 2, 1))} == {name}


# Each macro, and its first instants from 2026-01-01 00:00 on.
MACRO_INSTANTS = {
    "@yearly": ["2026-01-01 00:00", "2027-01-01 00:00", "2028-01-01 00:00"],
    "@annually": ["2026-01-01 00:00", "2027-01-01 00:00", "2028-01-01 00:00"],
    "@monthly": ["2026-01-01 00:00", "2026-02-01 00:00", "2026-03-01 00:00"],
    "@weekly": ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"],
    "@daily": ["2026-01-01 00:00", "2026-01-02 00:00", "2026-01-03 00:00"],
    "@midnight": ["2026-01-01 00:00", "2026-01-02 00:00", "2026-01-03 00:00"],
    "@hourly": ["2026-01-01 00:00", "2026-01-01 01:00", "2026-01-01 02:00"],
}


class TestMacros:
    def test_these_are_all(self):
        assert set(MACROS) == set(MACRO_INSTANTS)

    @pytest.mark.parametrize(("macro", "instants"), [*MACRO_INSTANTS.items()])
    def test_first_instants(self, macro, instants):
        rule = Cron.parse(macro)
        firings = walk(rule, JUST_BEFORE)

        assert [f"{next(firings):%Y-%m-%d %H:%M}" for _ in instants] == instants
