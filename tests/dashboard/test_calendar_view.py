"""The calendar: past runs and coming firings in the cells of a month, a week and a day."""

from datetime import UTC, datetime

import pytest

from tickwork import ScheduleDefinition, Tickwork
from tickwork.dashboard.calendar_view import build_calendar, read_date
from tickwork.dashboard.problems import ProblemError
from tickwork.stores.contract import RunFilter
from tickwork.testing import ManualClock

NOW = datetime(2026, 3, 11, 12, 30, tzinfo=UTC)  # a Wednesday


@pytest.fixture
def calendar():
    clock = ManualClock(datetime(2026, 3, 11, 7, tzinfo=UTC))
    with Tickwork("memory://", clock=clock) as app:

        @app.job
        def work() -> None: ...

        for name, rule in (("noon", "0 12,18 * * *"), ("often", "*/5 * * * *")):
            app.schedules.create(ScheduleDefinition(name=name, job="work", rule=rule))
        clock.set(datetime(2026, 3, 11, 12, 0, 1, tzinfo=UTC))
        app.run()
        clock.set(NOW)
        runs = app.inspect.list_runs(RunFilter(schedule="noon")).runs
        schedules = app.inspect.active_schedules()
        yield lambda view, date=NOW: build_calendar(
            view, read_date(f"{date:%Y-%m-%d}", NOW), schedules=schedules, runs=runs, now=NOW
        )


def found(cell):
    return {each.name: each.times for each in cell.items}


def test_a_month_has_six_weeks(calendar):
    month = calendar("month")

    assert [len(row) for row in month.rows] == [7] * 6
    assert month.rows[0][0].begin == datetime(2026, 2, 23, tzinfo=UTC)
    assert (month.label, month.before, month.after) == ("March 2026", "2026-02-01", "2026-04-01")
    today, tomorrow = month.rows[2][2], month.rows[2][3]
    assert today.is_now
    assert found(today)["noon"] == 2  # one has run, one will
    assert found(tomorrow) == {"noon": 2, "often": 288}


def test_a_week_has_the_hours_of_seven_days(calendar):
    week = calendar("week")

    assert [len(row) for row in week.rows] == [7] * 24
    assert week.days[0] == datetime(2026, 3, 9, tzinfo=UTC)
    assert found(week.rows[12][2])["noon"] == 1  # it has run
    assert found(week.rows[18][2]) == {"often": 12, "noon": 1}
    assert found(week.rows[18][1]) == {}  # the past has runs only
    assert (week.before, week.after) == ("2026-03-04", "2026-03-18")


def test_a_day_lists_the_instants(calendar):
    day = calendar("day", datetime(2026, 3, 12, tzinfo=UTC))

    [cell] = day.rows[18]
    assert {each.name: each.text for each in cell.items} == {"noon": "18:00", "often": ""}
    assert sum(found(row[0]).get("often", 0) for row in day.rows) == 288


@pytest.mark.parametrize("text", ["x", "2026-02-31", "9999-01", "2026-13"])
def test_another_text_is_no_date(text):
    with pytest.raises(ProblemError):
        read_date(text, NOW)
