"""A job that keeps failing raises one alert, and one when it completes again."""

import re

import pytest

from tickwork import Tickwork
from tickwork._stores.contract import RunFilter
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork._watch.incidents import LEASE
from tickwork.errors import InvalidOption
from tickwork.events import JobFailing, JobRecovered
from tickwork.testing import ManualClock
from unit.watch.test_watcher import START, Target


class Program:
    """One process: an application on a shared store, with a watcher."""

    def __init__(self, store, clock, **watch) -> None:
        self.app = Tickwork("memory://", store=store, clock=clock)
        self.clock = clock
        self.target = Target()
        self.app.alerts.add(self.target)
        self.events: list[object] = []
        self.app.on(JobFailing)(self.events.append)
        self.app.on(JobRecovered)(self.events.append)
        self.app.alerts.watch_failures(**watch)

        @self.app.job
        def report(is_broken: bool) -> None:
            if is_broken:
                raise ValueError("no paper")

        @self.app.job
        def other(is_broken: bool) -> None:
            report(is_broken)

        self.report, self.other = report, other

    def run(self, results: str, job=None) -> list[bool]:
        """Run the job once for each letter (x fails), and look after each run."""
        for letter in results:
            self.clock.advance(seconds=1)
            (job or self.report).dispatch(is_broken=letter == "x")
            self.app.run()
            self.look()
        return self.look()

    def look(self) -> list[bool]:
        """Look; return the alerts so far: True for those that say it is over."""
        self.app._services.watcher.step()
        return [alert.is_over for alert in self.target.alerts]


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


class TestFailuresInARow:
    """``in_a_row``: so many runs, the newest ones, failed."""

    def test_three_failures_raise_one_alert_and_a_success_ends_it(self, store, clock):
        program = Program(store, clock, in_a_row=3)

        assert program.run("xxoxx") == []
        assert program.run("x") == [False]
        assert program.run("xxxx") == [False]
        assert program.run("o") == [False, True]
        assert program.run("ooxx") == [False, True]
        assert program.run("x") == [False, True, False]

        first, last, second = program.target.alerts
        assert first.title == "report fails repeatedly"
        assert first.text.startswith("report fails repeatedly. 3 runs failed in a row. The newest")
        assert "no paper" in first.text
        assert last.text == "report is well again. Its newest runs have completed."
        assert first.failing_at == last.failing_at
        assert first.to_json()["kind"] == "failing_job"
        assert len({first.id, last.id, second.id}) == 3
        assert [type(event).__name__ for event in program.events] == [
            "JobFailing",
            "JobRecovered",
            "JobFailing",
        ]

    def test_a_retried_attempt_is_not_a_failed_run(self, store, clock):
        program = Program(store, clock, in_a_row=2)

        @program.app.job(attempts=3)
        def stubborn() -> None:
            raise ValueError("no")

        stubborn.dispatch()
        for _ in range(3):
            program.app.run()
            clock.advance(hours=1)
        assert program.look() == []

        stubborn.dispatch()
        for _ in range(3):
            program.app.run()
            clock.advance(hours=1)
        assert program.look() == [False]

    def test_another_job_does_not_count(self, store, clock):
        program = Program(store, clock, job="report", in_a_row=2)

        assert program.run("xxxx", program.other) == []
        assert program.run("xx") == [False]

    def test_each_job_has_its_own_incident(self, store, clock):
        program = Program(store, clock, in_a_row=2)

        program.run("xx", program.other)
        program.run("xx")
        program.run("o")

        assert [(alert.job, alert.is_over) for alert in program.target.alerts] == [
            ("other", False),
            ("report", False),
            ("report", True),
        ]

    def test_a_job_can_have_a_rule_of_its_own(self, store, clock):
        program = Program(store, clock, in_a_row=2)
        program.app.alerts.watch_failures("report", in_a_row=4)

        assert program.run("xxx") == []
        assert program.run("x") == [False]

    def test_a_hook_gets_the_event(self, store, clock):
        hooked: list[JobFailing] = []
        program = Program(store, clock, in_a_row=1, hook=hooked.append)

        program.run("xo")

        [event] = hooked
        assert (event.job, event.tenant) == ("report", "")
        assert "no paper" in event.reason

    def test_the_id_of_an_alert_fits_into_headers(self, store, clock):
        program = Program(store, clock, in_a_row=1)
        job = program.app.schedule("façade: é\N{SNOWMAN}", lambda: 1 / 0)
        job.dispatch()
        program.app.run()
        program.look()

        [alert] = program.target.alerts
        assert re.fullmatch(r"[\w:]+", alert.id, re.ASCII)
        assert alert.job == job.job.name

    def test_pruned_failures_do_not_end_an_incident(self, store, clock):
        program = Program(store, clock, in_a_row=1)
        program.run("x")
        store.delete_runs([run.id for run in store.list_runs(RunFilter()).runs])

        assert program.look() == [False]


class TestFailureShare:
    """``share``: so many of the last runs failed."""

    def test_one_alert_until_the_share_has_halved(self, store, clock):
        program = Program(store, clock, share=0.5, runs=4)

        assert program.run("oox") == []
        assert program.run("x") == [False]
        assert program.run("oxo") == [False]
        assert program.run("o") == [False, True]

    def test_a_share_near_the_threshold_is_one_incident(self, store, clock):
        program = Program(store, clock, share=0.75, runs=4)

        assert program.run("xxxo") == [False]
        assert program.run("oxxo") == [False]  # never at most half of the share
        assert program.run("oo") == [False, True]


class TestWatchers:
    """Several watchers raise an alert once, and one takes over from another that died."""

    def test_two_watchers_raise_one_alert(self, store, clock):
        one = Program(store, clock, in_a_row=2)
        other = Program(store, clock, in_a_row=2)

        one.run("xx")
        other.look()
        one.run("o")
        other.look()

        assert one.look() == [False, True]
        assert other.look() == []

    def test_another_watcher_delivers_the_alert_of_one_that_died(self, store, clock):
        program = Program(store, clock, in_a_row=1)
        program.target.refused = 100
        program.run("x")
        other = Program(store, clock, in_a_row=1)
        assert other.look() == []

        clock.advance(minutes=1, seconds=LEASE.total_seconds())
        assert other.look() == [False]

    def test_a_worker_of_a_program_that_watches_failures_is_a_watcher(self, store, clock):
        app = Tickwork("memory://", store=store, clock=clock)
        assert not app._services._has_alerts()

        app.alerts.watch_failures(in_a_row=3)

        assert app._services._has_alerts()


def test_a_job_is_given_by_its_name():
    app = Tickwork("memory://")
    job = app.schedule("report", lambda: None).job

    with pytest.raises(InvalidOption, match="must be the name of a job"):
        app.alerts.watch_failures(job, in_a_row=1)  # type: ignore[arg-type]


def test_a_hook_that_cannot_be_called_is_refused():
    with pytest.raises(InvalidOption, match="hook must be a function"):
        Tickwork("memory://").alerts.watch_failures(in_a_row=1, hook="page")  # type: ignore[arg-type]
