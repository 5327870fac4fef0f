"""Each kind of day mark is described, replaced and exported: a new one must be known everywhere."""

from datetime import UTC, datetime

import pytest

from tickwork import schedules
from tickwork._domain.schedules.fields import DayMarks
from tickwork.export.rrule import find_rrules

BEGIN = datetime(2026, 1, 7, tzinfo=UTC)
CRON_BY_MARK = {
    "last_day": "0 9 L * *",
    "last_workday": "0 9 LW * *",
    "nearest_workday": "0 9 15W * *",
    "last_weekday": "0 9 * * 5L",
    "nth_weekday": "0 9 * * 5#2",
}
EACH_MARK = pytest.mark.parametrize("text", CRON_BY_MARK.values(), ids=CRON_BY_MARK)


def test_there_is_an_example_of_each():
    assert tuple(CRON_BY_MARK) == DayMarks._fields


@EACH_MARK
def test_the_description_names_it(text):
    assert schedules.Cron(text).describe() != schedules.Cron("0 9 * * *").describe()


@EACH_MARK
def test_other_days_replace_it(text):
    day, weekday = ("15", "*") if text.endswith("*") else ("*", "1")
    replaced = schedules.cron(text).days(15) if weekday == "*" else schedules.cron(text).mondays()

    expected = schedules.Cron(f"0 9 {day} * {weekday}")
    for month in range(1, 13):
        after = datetime(2026, month, 1, tzinfo=UTC)
        assert replaced.next_after(after) == expected.next_after(after)


@EACH_MARK
def test_its_recurrence_rule_has_days_or_does_not_exist(text):
    rules = find_rrules(schedules.Cron(text), begin=BEGIN) or []

    assert not [rule for rule in rules if rule.text.endswith("=") or "BY" not in rule.text]
