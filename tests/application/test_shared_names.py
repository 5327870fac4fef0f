"""Two programs on one database: each has a name, and names that both define are found."""

import logging

import pytest

from tickwork import Tickwork
from tickwork._domain.health import Level
from tickwork.errors import ScheduleConflict


def send() -> str:
    return "sent"


def send_otherwise() -> str:
    return "sent otherwise"


@pytest.fixture
def start(make_app):
    """Start a program of this name, with a job and perhaps a schedule of it."""

    def build(name: str, *, hour: int | None = None, handler=send, job: str = "") -> Tickwork:
        app: Tickwork = make_app(name=name)
        found = app.job(name=job or f"{name} report")(handler)
        if hour is not None:
            app.schedule("morning", found).daily().hours(hour)
        app.run()
        return app

    return build


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def check_definitions(app: Tickwork):
    return next(each for each in app.check_health() if each.name == "definitions")


class TestSchedules:
    """A schedule that two programs define differently is an error; the last one does not win."""

    def test_another_program_with_another_rule_does_not_start(self, start):
        first = start("shop", hour=8)

        with pytest.raises(ScheduleConflict, match="'shop' and 'crm' define the schedule"):
            start("crm", hour=9)

        assert first.schedules.get("morning").job == "shop report"

    def test_nothing_of_it_is_stored(self, start, make_app):
        start("shop", hour=8)

        with pytest.raises(ScheduleConflict):
            start("crm", hour=9)

        found = make_app().inspect.status()
        assert "crm report" not in {job.name for job in found.jobs}

    def test_the_first_one_starts_again(self, start):
        start("shop", hour=8)
        with pytest.raises(ScheduleConflict):
            start("crm", hour=9)

        start("shop", hour=7)

    def test_a_new_version_of_the_program_changes_it(self, start):
        start("shop", hour=8)
        app = start("shop", hour=9)

        assert app.schedules.preview("morning", 1)[0].hour == 9

    def test_two_programs_may_define_it_equally(self, start):
        start("shop", hour=8, job="report")
        start("crm", hour=8, job="report")

        with pytest.raises(ScheduleConflict, match="'crm'"):
            start("shop", hour=9, job="report")

    def test_a_program_that_has_not_defined_it_for_two_days_gives_it_up(self, start, clock):
        start("shop", hour=8)
        clock.advance(days=2, seconds=1)

        start("crm", hour=9)

    def test_a_program_that_runs_reports_it_every_hour(self, start, clock):
        first = start("shop", hour=8)
        for _ in range(49):
            clock.advance(hours=1)
            first.run()

        with pytest.raises(ScheduleConflict):
            start("crm", hour=9)


class TestJobs:
    """Each of two programs with equal job names may execute the runs of the other."""

    def test_the_worker_and_the_doctor_warn(self, start, caplog):
        start("shop", job="send")
        app = start("crm", job="send", handler=send_otherwise)

        [warning] = warnings_in(caplog)
        assert "Several programs on this database define the job send" in warning
        check = check_definitions(app)
        assert check.level is Level.WARN
        for text in (warning, check.text):
            assert f"{__name__}:send of shop" in text
            assert f"{__name__}:send_otherwise of crm" in text

    def test_the_doctor_of_a_third_program_warns_too(self, start):
        start("shop", job="send")
        start("crm", job="send", handler=send_otherwise)

        assert check_definitions(start("web")).level is Level.WARN

    def test_the_first_one_is_warned_when_it_reports_again(self, start, clock, caplog):
        first = start("shop", job="send")
        start("crm", job="send", handler=send_otherwise)
        caplog.clear()
        for _ in range(3):
            clock.advance(hours=1)
            first.run()

        assert len(warnings_in(caplog)) == 1

    def test_a_handler_of_a_common_package_is_no_problem(self, start, caplog):
        start("shop", job="send")
        app = start("crm", job="send")

        assert warnings_in(caplog) == []
        assert check_definitions(app).level is Level.OK

    def test_a_new_version_of_the_program_is_no_other_program(self, start, caplog):
        start("shop", job="send")
        app = start("shop", job="send", handler=send_otherwise)

        assert warnings_in(caplog) == []
        assert check_definitions(app).level is Level.OK

    def test_after_two_days_it_is_forgotten(self, start, clock):
        start("shop", job="send")
        clock.advance(days=2, seconds=1)

        assert check_definitions(start("crm", job="send")).level is Level.OK


class TestNames:
    """A program has the same name however it is started."""

    def test_the_default_is_its_module(self, make_app):
        app = make_app()
        app.job(name="send")(send)
        app.run()
        [row] = app._services.store.list_definitions(since=app.clock.now())

        assert row.application == app.created_in
        assert row.handler == f"{__name__}:send"
