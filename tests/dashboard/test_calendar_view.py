"""The calendar: past runs and coming firings in the cells of a month, a week and a day."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tickwork import RunStatus, ScheduleDefinition, Tickwork
from tickwork.dashboard.calendar_view import build_calendar, read_date, span_of
from tickwork.dashboard.problems import ProblemError
from tickwork.testing import ManualClock

NOW = datetime(2026, 3, 11, 12, 30, tzinfo=UTC)  # a Wednesday
RULES = {
    "often": ("*/5 * * * *", "UTC"),
    "noon": ("0 12,18 * * *", "UTC"),
    "late": ("30 23 * * *", "America/New_York"),
    "yearly": ("0 3 29 3 *", "Europe/Berlin"),
}


@pytest.fixture
def app():
    clock = ManualClock(datetime(2026, 3, 11, 7, tzinfo=UTC))
    with Tickwork("memory://", clock=clock) as app:

        @app.job
        def work(fails: bool = False) -> None:
            if fails:
                raise ValueError("no")

        for name, (rule, zone) in RULES.items():
            app.schedules.create(
                ScheduleDefinition(
                    name=name, job="work", rule=rule, timezone=zone, args={"fails": name == "noon"}
                )
            )
        clock.set(datetime(2026, 3, 11, 12, 0, 1, tzinfo=UTC))
        app.run()
        clock.set(NOW)
        yield app


@pytest.fixture
def calendar(app):
    def build(view, date=NOW, *, zone=UTC, of_schedules=False):
        zones = {("", name): zone_name for name, (_, zone_name) in RULES.items()}
        local = read_date(f"{date:%Y-%m-%d}", NOW)
        since, before = span_of(view, local, zone)
        return build_calendar(
            view,
            local,
            schedules=app.inspect.active_schedules(),
            runs=app.inspect.past_firings(list(zones), since=since, before=min(before, NOW)).runs,
            zones=zones,
            zone_of=lambda own: ZoneInfo(own) if of_schedules and own else zone,
            now=NOW,
        )

    return build


def found(cell):
    return {each.name: each.times for each in cell.items}


def test_a_month_has_six_weeks(calendar):
    month = calendar("month")

    assert [len(row) for row in month.rows] == [7] * 6
    assert month.rows[0][0].begin == datetime(2026, 2, 23)  # of a wall clock
    assert (month.label, month.before, month.after) == ("March 2026", "2026-02-01", "2026-04-01")
    today, tomorrow = month.rows[2][2], month.rows[2][3]
    assert today.is_now
    assert found(today)["noon"] == 2  # one has run, one will
    assert found(tomorrow) == {"late": 1, "noon": 2, "often": 288}


def test_a_week_has_the_hours_of_seven_days(calendar):
    week = calendar("week")

    assert [len(row) for row in week.rows] == [7] * 24
    assert week.days[0] == datetime(2026, 3, 9)
    assert found(week.rows[12][2])["noon"] == 1  # it has run
    assert found(week.rows[18][2]) == {"noon": 1, "often": 12}
    assert found(week.rows[18][1]) == {}  # the past has runs only
    assert (week.before, week.after) == ("2026-03-04", "2026-03-18")


def test_a_day_lists_the_instants(calendar):
    day = calendar("day", datetime(2026, 3, 12, tzinfo=UTC))

    [cell] = day.rows[18]
    assert {each.name: each.text for each in cell.items} == {"noon": "18:00", "often": ""}
    assert sum(found(row[0]).get("often", 0) for row in day.rows) == 288


def test_rare_schedules_come_first(calendar):
    month = calendar("month")

    assert next(each.name for each in month.rows[4][6].items) == "yearly"
    assert [each.name for each in month.rows[2][3].items] == ["late", "noon", "often"]


def test_past_firings_have_the_worst_outcome(calendar):
    [cell] = calendar("day").rows[12]
    [noon] = [each for each in cell.items if each.name == "noon"]

    assert noon.status is RunStatus.FAILED_PERMANENT
    assert noon.summary == "1 failed permanent"
    [coming] = calendar("day").rows[18]
    assert [each.status for each in coming.items] == [None, None]
    assert coming.items[0].summary == "1 to come"


class TestZones:
    """A calendar is that of a wall clock: of one zone, or of the zone of each schedule."""

    def test_of_one_zone(self, calendar):
        day = calendar("day", datetime(2026, 3, 12, tzinfo=UTC), zone=ZoneInfo("Europe/Berlin"))

        assert {each.name: each.text for each in day.rows[19][0].items}["noon"] == "19:00"
        assert {each.name: each.text for each in day.rows[4][0].items}["late"] == "04:30"

    def test_of_each_schedule(self, calendar):
        day = calendar("day", datetime(2026, 3, 12, tzinfo=UTC), of_schedules=True)

        assert {each.name: each.text for each in day.rows[18][0].items}["noon"] == "18:00"
        assert {each.name: each.text for each in day.rows[23][0].items}["late"] == "23:30"

    @pytest.mark.parametrize(("day", "total"), [(29, 276), (28, 288)])
    def test_a_day_on_which_clocks_change_has_its_hours(self, calendar, day, total):
        berlin = ZoneInfo("Europe/Berlin")
        shown = calendar("day", datetime(2026, 3, day, tzinfo=UTC), zone=berlin)

        assert sum(found(row[0]).get("often", 0) for row in shown.rows) == total

    def test_now_is_the_hour_of_the_zone(self, calendar):
        day = calendar("day", zone=ZoneInfo("Asia/Tokyo"))

        assert [row[0].begin.hour for row in day.rows if row[0].is_now] == [21]


@pytest.mark.parametrize("text", ["x", "2026-02-31", "9999-01", "2026-13"])
def test_another_text_is_no_date(text):
    with pytest.raises(ProblemError):
        read_date(text, NOW)
