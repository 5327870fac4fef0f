"""The calendars of an application: read once, named by rules."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from opened_files import opened_files
from tickwork import ScheduleDefinition, Tickwork, schedules
from tickwork._kernel.clock import SystemClock
from tickwork.errors import ConfigError, InvalidOption, InvalidSchedule

EVENT = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:1
DTSTART;VALUE=DATE:20200101
RRULE:FREQ=YEARLY
END:VEVENT
END:VCALENDAR
"""
NEW_YEARS = ["2026-01-01", "2027-01-01", "2028-01-01"]


@pytest.fixture(autouse=True)
def in_2026(monkeypatch, tmp_path):
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime(2026, 3, 1, tzinfo=UTC))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "closed.ics").write_text(EVENT)


@pytest.fixture
def app():
    app = Tickwork("memory://")
    app.schedule("send", lambda: None)
    return app


def dates_of(rule) -> list[str]:
    assert isinstance(rule, schedules.Windowed)
    return sorted(map(str, rule.dates))


class TestRegistering:
    """``app.calendar`` reads a file, dates or a country, once."""

    def test_a_file_is_read_when_it_is_registered(self, app, tmp_path):
        app.calendar("closed", tmp_path / "closed.ics")
        (tmp_path / "closed.ics").unlink()

        with opened_files() as opened:
            rule = app.schedule("nightly", lambda: None).daily().except_on(calendar="closed").rule()

        assert dates_of(rule) == NEW_YEARS
        assert opened == []

    def test_dates_can_be_listed(self, app):
        app.calendar("closed", ["2040-01-02", date(2026, 5, 1)])

        assert app.calendars.named("closed") == {date(2026, 5, 1), date(2040, 1, 2)}

    def test_a_country_can_be_added(self, app):
        app.calendar("bavaria", ["2026-03-03"], country="DE-BY")

        assert {date(2026, 3, 3), date(2028, 12, 25)} <= app.calendars.named("bavaria")

    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ("missing.ics", "cannot be read"),
            ((), "must have between 1 and 10,000 dates"),
            (["2026-02-30"], "is not a date"),
        ],
    )
    def test_what_is_no_calendar_is_refused(self, app, source, text):
        with pytest.raises(InvalidSchedule, match=text):
            app.calendar("closed", source)

        assert "closed" not in app.calendars

    def test_too_many_dates_are_refused(self, app):
        with pytest.raises(InvalidSchedule, match="has 10,001"):
            app.calendar("closed", map(date.fromordinal, range(1, 10_002)))

    def test_a_name_stands_for_one_calendar(self, app):
        app.calendar("closed", ["2026-05-01"])
        app.calendar("closed", ["2026-05-01"])

        with pytest.raises(InvalidOption, match="must not be the name of another calendar"):
            app.calendar("closed", ["2026-05-02"])


class TestNaming:
    """A rule in text names a calendar, and never a file."""

    def test_a_rule_is_stored_with_the_dates(self, app):
        app.calendar("closed", "closed.ics")

        app.schedules.create(
            ScheduleDefinition(name="x", job="send", rule="daily().except_on(calendar='closed')")
        )

        [row] = app._services.store.list_schedules()
        assert dates_of(schedules.from_text(row.spec.rule)) == NEW_YEARS
        assert "closed" not in row.spec.rule

    @pytest.mark.parametrize("path", ["closed.ics", "./closed.ics", "/etc/passwd"])
    def test_a_path_is_no_name(self, app, path):
        text = f"daily().except_on(calendar={path!r})"

        with opened_files() as opened, pytest.raises(InvalidSchedule, match="no calendar"):
            app.schedules.create(ScheduleDefinition(job="send", rule=text))

        assert opened == []

    def test_a_country_is_registered_first(self, app):
        with pytest.raises(InvalidSchedule, match="cannot name a country"):
            app.schedules.create(
                ScheduleDefinition(job="send", rule="daily().except_on(country='DE')")
            )

    def test_code_may_name_a_path(self, app, tmp_path):
        for path in ("closed.ics", tmp_path / "closed.ics"):
            chain = app.schedule(f"at {path}", lambda: None).daily().except_on(calendar=path)
            assert dates_of(chain.rule()) == NEW_YEARS
            assert dates_of(schedules.daily().except_on(calendar=path).rule()) == NEW_YEARS

    def test_code_that_names_neither_a_calendar_nor_a_file_gets_both_cures(self, app):
        with pytest.raises(InvalidSchedule, match="cannot be read") as caught:
            app.schedule("x", lambda: None).daily().except_on(calendar="closd")

        assert "app.calendar(...)" in caught.value.fix


class TestFile:
    """``[calendars]`` in a configuration file."""

    def load(self, text: str) -> Tickwork:
        Path("tickwork.toml").write_text(text)
        return Tickwork.from_config("tickwork.toml", url="memory://")

    def test_rules_name_calendars_of_the_file(self):
        app = self.load("""
            [calendars]
            closed = "closed.ics"
            listed = ["2026-05-01", 2026-05-02]
            bavaria = { country = "DE-BY" }
            both = { file = "closed.ics", country = "DE" }

            [[jobs]]
            name = "nightly"
            handler = "unit.define.code:report"
            run = { daily = true, except_on = { calendar = "listed" } }
        """)

        assert set(app.calendars) == {"closed", "listed", "bavaria", "both"}
        assert sorted(map(str, app.calendars.named("listed"))) == ["2026-05-01", "2026-05-02"]
        assert app.calendars.named("closed") < app.calendars.named("both")
        app.run()
        [row] = app._services.store.list_schedules()
        assert dates_of(schedules.from_text(row.spec.rule)) == ["2026-05-01", "2026-05-02"]

    def test_every_problem_has_its_line(self):
        with pytest.raises(ConfigError) as caught:
            self.load("""
            [calendars]
            missing = "missing.ics"
            number = 5
            both = { file = "closed.ics", dates = ["2026-05-01"] }
            other = { path = "closed.ics" }
            country = { country = "XX" }

            [[jobs]]
            name = "nightly"
            handler = "unit.define.code:report"
            run = { daily = true, except_on = { calendar = "closed.ics" } }
            """)

        text = str(caught.value)
        for line, part in (
            (3, "cannot be read"),
            (4, "must be a path"),
            (5, "must be a path"),
            (6, "'path'"),
            (7, "does not know 'XX'"),
            (12, "There is no calendar 'closed.ics'"),
        ):
            assert any(f"line {line}:" in each and part in each for each in text.splitlines()), part
