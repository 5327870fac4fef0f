"""Names of jobs and schedules, and refinements of rules."""

from datetime import UTC, datetime

import pytest

from tickwork import RunStatus, Tickwork, schedules
from tickwork.errors import (
    ArgumentError,
    DefinitionError,
    DuplicateDefinition,
    InvalidSchedule,
    JobNotFound,
)


def nothing() -> None:
    pass


def something(kind: str = "") -> str:
    return kind


class TestNames:
    """A name belongs to one job or schedule; with a job, it is a further schedule of it."""

    def test_a_callable_gives_a_job_and_a_schedule_of_that_name(self, app, clock, passes):
        app.schedule("report", nothing).hourly()
        app.run()
        clock.advance(hours=1)
        passes(app)

        [run] = app.runs.recent()
        assert (run.job, run.schedule) == ("report", "report")

    def test_a_job_gives_a_further_schedule_of_it(self, app, clock, passes):
        job = app.job(name="report", queue="slow")(something)
        app.schedule("daily report", job).hourly().args(kind="daily").queue("fast").priority(7)
        app.schedule("weekly report", job).hourly().args(kind="weekly")
        app.run()
        clock.advance(hours=1)
        passes(app)

        found = {run.schedule: run for run in app.runs.recent()}
        assert {run.job for run in found.values()} == {"report"}
        assert found["daily report"].result == '"daily"'
        assert (found["daily report"].queue, found["daily report"].priority) == ("fast", 7)
        assert (found["weekly report"].queue, found["weekly report"].priority) == ("slow", 100)

    def test_a_further_schedule_has_no_options_of_the_job(self, app):
        builder = app.schedule("another", app.job(nothing))

        for word in ("retries", "timeout", "concurrency", "on_before", "when", "lease", "unique"):
            assert not hasattr(builder, word), word

    def test_without_a_rule_it_is_a_job_only(self, app, clock, passes):
        builder = app.schedule("report", something)
        app.run()
        clock.advance(days=400)

        assert passes(app) == 0
        run = builder.dispatch(kind="now")
        passes(app)
        assert run.result() == "now"

    def test_two_different_definitions_under_one_name_show_both_places(self, app):
        app.schedule("report", nothing)

        with pytest.raises(DuplicateDefinition) as caught:
            app.schedule("report", something)

        assert caught.value.first.startswith(__file__)
        assert caught.value.second.startswith(__file__)
        assert caught.value.first != caught.value.second

    def test_the_same_function_with_other_options_is_an_error_too(self, app):
        app.schedule("report", nothing).hourly()
        app.schedule("report", nothing).daily()

        with pytest.raises(DuplicateDefinition, match="report"):
            app.run()

    def test_an_equal_definition_is_no_error(self, app):
        app.schedule("report", nothing).hourly()
        app.schedule("report", nothing).hourly()

        assert app.run() == 0

    def test_aliases_keep_runs_of_a_renamed_job_alive(self, make_app, passes):
        before, after = make_app(), make_app()
        old = before.schedule("send", something).dispatch(kind="old")
        after.schedule("send_email", something).aliases("send")

        assert passes(after) == 1
        assert old.result() == "old"

    def test_an_alias_that_is_another_jobs_name_is_an_error(self, app):
        app.schedule("send", nothing)
        app.schedule("mail", something).aliases("send")

        with pytest.raises(DuplicateDefinition, match="send"):
            app.run()

    def test_a_schedule_without_a_required_argument_is_refused(self, app):
        app.schedule("report", lambda kind: kind).hourly()

        with pytest.raises(ArgumentError, match="'kind' is missing"):
            app.run()

    def test_ad_hoc_jobs_are_known_to_their_process_only(self, make_app, passes):
        mine, other = make_app(), make_app()
        run = mine.adhoc("process-42", lambda: "done").queue("uploads").dispatch()

        assert passes(other) == 0
        with pytest.raises(JobNotFound):
            other.dispatch("process-42")
        assert passes(mine) == 1
        assert run.read().queue == "uploads"

    def test_a_remote_job_is_run_by_the_program_that_defines_it(self, make_app, passes):
        web, worker = make_app(), make_app()
        worker.job(name="report", retries={"max": 2, "delay": 0})(something)
        run = web.remote("report").queue("slow").dispatch(kind="daily")

        assert passes(web) == 0
        assert run.status is RunStatus.PENDING
        assert passes(worker) == 1
        assert run.result() == "daily"


class TestRefining:
    """``seconds`` … ``months`` replace their own field; all fields must match."""

    def firings(self, refined, count=3, after=datetime(2026, 1, 1, tzinfo=UTC)):
        builder = refined(Tickwork("memory://").schedule("it", nothing))
        return [f"{moment:%a %d %b %H:%M:%S}" for moment in builder.preview(count, after=after)]

    @pytest.mark.parametrize(
        ("refined", "firings"),
        [
            (
                lambda it: it.daily().hours([9, 12]),
                ["Thu 01 Jan 09:00:00", "Thu 01 Jan 12:00:00", "Fri 02 Jan 09:00:00"],
            ),
            (
                lambda it: it.every_five_minutes().hours(range(9, 18)).weekdays(),
                ["Thu 01 Jan 09:00:00", "Thu 01 Jan 09:05:00", "Thu 01 Jan 09:10:00"],
            ),
            (
                lambda it: it.days([1, 15]).weekdays(),
                ["Thu 15 Jan 00:00:00", "Wed 01 Apr 00:00:00", "Wed 15 Apr 00:00:00"],
            ),
            (
                lambda it: it.mondays().fridays(),
                ["Fri 02 Jan 00:00:00", "Mon 05 Jan 00:00:00", "Fri 09 Jan 00:00:00"],
            ),
            (
                lambda it: it.weekly(),
                ["Sun 04 Jan 00:00:00", "Sun 11 Jan 00:00:00", "Sun 18 Jan 00:00:00"],
            ),
            (
                lambda it: it.weekly().mondays(),
                ["Mon 05 Jan 00:00:00", "Mon 12 Jan 00:00:00", "Mon 19 Jan 00:00:00"],
            ),
            (
                lambda it: it.pattern(mon="*/3", mday=1, hours=0, minutes=0),
                ["Sun 01 Mar 00:00:00", "Mon 01 Jun 00:00:00", "Tue 01 Sep 00:00:00"],
            ),
            (
                lambda it: it.symbol("EVERY_DAY"),
                ["Thu 01 Jan 02:10:00", "Fri 02 Jan 02:10:00", "Sat 03 Jan 02:10:00"],
            ),
            (
                lambda it: it.every(minutes=15, starting="2026-01-01T00:07:00+00:00"),
                ["Thu 01 Jan 00:07:00", "Thu 01 Jan 00:22:00", "Thu 01 Jan 00:37:00"],
            ),
        ],
    )
    def test_it_refines_and_does_not_overwrite(self, refined, firings):
        assert self.firings(refined) == firings

    def test_two_frequency_helpers_in_one_chain_are_an_error(self):
        with pytest.raises(InvalidSchedule, match=r"hourly\(\) and daily\(\) both set"):
            Tickwork("memory://").schedule("it", nothing).hourly().daily()

    @pytest.mark.parametrize(
        "meaning",
        [
            "0 4 * * *",
            {"hours": 4, "minutes": 0},
            schedules.daily_at("04:00"),
            schedules.Cron.parse("0 4 * * *"),
        ],
    )
    def test_a_symbol_can_be_cron_text_a_pattern_or_a_rule(self, meaning):
        app = Tickwork("memory://")
        app.symbols["EARLY"] = meaning

        [first] = app.schedule("report", lambda: None).symbol("EARLY").preview(1)

        assert (first.hour, first.minute) == (4, 0)

    def test_a_symbol_that_is_no_rule_is_refused_by_its_name(self):
        app = Tickwork("memory://")
        app.symbols["ODD"] = 4  # type: ignore[assignment]
        app.symbols["TYPO"] = "0 4 * *"

        with pytest.raises(InvalidSchedule, match="The symbol 'ODD' stands for 4"):
            app.schedule("report", lambda: None).symbol("ODD")
        with pytest.raises(InvalidSchedule, match="The symbol 'TYPO' is invalid"):
            app.schedule("other", lambda: None).symbol("TYPO")

    def test_symbols_of_the_application_are_added_to_the_built_in_ones(self):
        app = Tickwork("memory://")
        app.symbols["NIGHTLY"] = {"hours": 3, "minutes": 30}

        builder = app.schedule("it", nothing).symbol("NIGHTLY")

        assert builder.preview(1, after=datetime(2026, 1, 1, tzinfo=UTC))[0].hour == 3

    def test_the_zone_of_the_application_is_the_default(self):
        app = Tickwork("memory://", timezone="Europe/Berlin")

        [first] = (
            app.schedule("it", nothing).daily().preview(1, after=datetime(2026, 7, 1, tzinfo=UTC))
        )

        assert first.astimezone(UTC).hour == 22

    def test_an_impossible_schedule_is_refused_when_it_is_registered(self, app):
        app.schedule("never", nothing).cron("0 0 30 2 *")

        with pytest.raises(InvalidSchedule, match="never fires"):
            app.run()

        assert app.status()["schedules"] == []

    def test_an_invalid_name_is_refused(self):
        app = Tickwork("memory://")

        for name in ("", " padded", "a=b", "x" * 300):
            with pytest.raises((DefinitionError, ValueError)):
                app.schedule(name, nothing)
