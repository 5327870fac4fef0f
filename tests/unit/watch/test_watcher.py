"""A watcher raises one alert for each incident, and one when it is over."""

from datetime import timedelta
from typing import Any

import pytest

from tickwork import Tickwork
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.contract import RunFilter
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork._watch.incidents import KEPT, LEASE, TRIES_MAX
from tickwork.alerts import AlertMessage
from tickwork.events import ExpectationMet, ExpectationMissed
from tickwork.testing import ManualClock

START = "2026-01-05T12:00:00+00:00"


class Target:
    """Accepts alerts after it has refused some."""

    name = "a target"

    def __init__(self, *, refused: int = 0) -> None:
        self.refused = refused
        self.alerts: list[Any] = []

    def send(self, alert: AlertMessage) -> None:
        if self.refused:
            self.refused -= 1
            raise ConnectionError("no")
        self.alerts.append(alert)


class Program:
    """One process: an application on a shared store, with a watcher."""

    def __init__(self, store, clock, **options) -> None:
        self.app = Tickwork("memory://", store=store, clock=clock)
        self.clock = clock
        self.target = Target(**options)
        self.app.alerts.add(self.target)
        self.events: list[object] = []
        self.hooked: list[object] = []
        self.is_broken = False
        self.app.on(ExpectationMissed)(self.events.append)
        self.app.on(ExpectationMet)(self.events.append)

        def report() -> None:
            if self.is_broken:
                raise ValueError("broken")

        self.report = report
        self.app.schedule("nightly", report).hourly().expect_within(minutes=10).on_missed(
            self.hooked.append
        )

    def look(self, **step) -> list[bool]:
        """Move the clock and look; return the alerts so far: True for those that say it is over."""
        self.clock.advance(**step)
        self.app._services.watcher.step()
        return [alert.is_over for alert in self.target.alerts]


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


@pytest.fixture
def program(store, clock):
    program = Program(store, clock)
    program.app.run()  # stores the schedule; the first firing is at 13:00
    return program


class TestIncidents:
    """When alerts are raised, and how often."""

    def test_nothing_happens_while_runs_complete(self, program):
        for _ in range(5):
            program.look(hours=1)
            program.app.run()

        assert program.look(minutes=30) == []

    def test_there_is_one_alert_when_no_worker_fires_and_one_when_it_is_over(self, program, clock):
        assert program.look(minutes=69) == []  # 13:09
        assert program.look(minutes=1, seconds=1) == [False]
        assert program.look(minutes=5) == [False]
        assert program.look(hours=3) == [False]  # the same incident

        program.app.run()
        assert program.look() == [False, True]
        assert program.look(minutes=1) == [False, True]

        first, last = program.target.alerts
        assert "No worker has fired it." in first.text
        assert first.due_at == last.due_at
        assert f"{first.due_at:%H:%M}" == "13:00"
        assert [type(event).__name__ for event in program.events] == [
            "ExpectationMissed",
            "ExpectationMet",
        ]
        assert program.hooked == program.events[:1]

    def test_an_alert_names_its_firing_to_the_second(self, store, clock):
        program = Program(store, clock)
        program.app.schedule("minutely", lambda: None).cron("7,38 0 13 * * *").expect_within("10s")
        program.app.run()

        assert program.look(hours=1, seconds=20) == [False]
        [check] = [each for each in program.app.check_health() if "minutely" in each.text]
        assert "minutely (due 2026-01-05 13:00:07 UTC)" in check.text
        program.app.run()
        assert program.look() == [False, True]
        assert program.look(seconds=40) == [False, True, False]

        first, over, second = program.target.alerts
        assert "The firing of 2026-01-05 13:00:07 UTC is late." in first.text
        assert "The firing of 2026-01-05 13:00:07 UTC was missed first." in over.text
        assert "The firing of 2026-01-05 13:00:38 UTC is late." in second.text
        assert [alert.id.partition(":")[2] for alert in program.target.alerts] == [
            "20260105T130007:missed",
            "20260105T130007:over",
            "20260105T130038:missed",
        ]

    def test_a_failed_run_is_an_incident(self, program):
        program.is_broken = True
        program.clock.advance(hours=1)
        program.app.run()

        assert program.look(minutes=5) == []
        assert program.look(minutes=6) == [False]
        assert "failed_permanent" in program.target.alerts[0].reason

        program.is_broken = False
        program.app.schedules.run_now("nightly")
        program.app.run()
        assert program.look() == [False, True]

    def test_a_missed_run_stays_missed_while_a_stuck_run_makes_all_firings_skip(self, program):
        # The run of 13:00 does not start, so all later ones are skipped.
        program.app.pause(queue="default")
        program.clock.advance(minutes=49)

        for hours in range(1, 6):
            program.clock.advance(minutes=11)
            program.app.run()
            assert program.look(minutes=11) == [False], hours
            checks = {check.name: check.level for check in program.app.check_health()}
            assert checks["expectations"] == "bad", hours
            program.look(minutes=38)

        program.app.resume(queue="default")
        program.app.run()
        assert program.look() == [False, True]
        assert program.target.alerts[-1].reason == "A run has completed."

    def test_a_missed_run_stays_missed_after_its_firings_were_skipped_and_pruned(
        self, program, store
    ):
        program.app.pause(queue="default")
        for _ in range(3):
            program.clock.advance(hours=1)
            program.app.run()
        skipped = RunFilter(statuses=frozenset({RunStatus.SKIPPED}))
        store.delete_runs([run.id for run in store.list_runs(skipped).runs])

        assert program.look(minutes=11) == [False]

    def test_a_missed_run_stays_missed_if_many_newer_runs_are_not_late_yet(self, store, clock):
        program = Program(store, clock)
        program.is_broken = True
        program.app.schedule("often", program.report).every_second().expect_within(minutes=5)
        program.app.run()
        for _ in range(310):
            program.clock.advance(seconds=1)
            program.app.run()

        assert [program.look() for _ in range(3)] == [[False]] * 3

    def test_expect_within_3_does_not_alert_after_2_seconds(self, store, clock):
        program = Program(store, clock)
        program.app.schedule("soon", program.report).every_minute().expect_within(3)
        program.app.run()  # the first firing is at 12:01:00

        assert program.look(seconds=62.5) == []
        assert program.look(seconds=0.4) == []
        assert program.look(seconds=0.2) == [False]

    def test_a_second_incident_has_its_own_alerts(self, program):
        program.look(minutes=71)
        program.app.run()
        program.look()

        program.look(minutes=60)

        assert [alert.is_over for alert in program.target.alerts] == [False, True, False]
        assert len({alert.id for alert in program.target.alerts}) == 3

    def test_a_paused_schedule_is_not_expected(self, program):
        program.app.schedules.pause("nightly")

        assert program.look(hours=5) == []

        program.app.schedules.resume("nightly")  # 17:00; firings of the pause are not caught up
        assert program.look(minutes=30) == []
        assert program.look(minutes=41) == [False]  # that of 18:00 is late

    def test_the_firing_after_a_pause_has_its_full_time(self, program):
        program.app.schedules.pause("nightly")
        program.look(hours=5, minutes=-1)
        program.app.schedules.resume("nightly")
        program.is_broken = True
        program.clock.advance(minutes=1)
        program.app.run()

        assert program.look(minutes=9) == []
        assert program.look(minutes=2) == [False]

    def test_a_pause_ends_an_incident(self, program):
        program.look(minutes=71)
        program.app.schedules.pause("nightly")

        assert program.look() == [False, True]
        assert program.target.alerts[-1].reason == "The schedule is paused."


class TestWatchers:
    """Several watchers raise an alert once, and one takes over from another that died."""

    def test_two_watchers_raise_one_alert(self, program, store, clock):
        other = Program(store, clock)

        program.look(minutes=71)
        other.look()
        program.look(minutes=1)
        other.look()
        program.app.run()
        other.look()
        program.look()
        other.look()

        alerts = program.target.alerts + other.target.alerts
        assert sorted(alert.is_over for alert in alerts) == [False, True]

    def test_another_watcher_delivers_the_alert_of_one_that_died(self, program, store, clock):
        program.target.refused = 1  # it dies before it tries again
        program.look(minutes=71)
        other = Program(store, clock)
        assert other.look() == []

        clock.advance(minutes=1)
        assert other.look(seconds=LEASE.total_seconds()) == [False]
        assert other.target.alerts[0].due_at.hour == 13

    def test_another_watcher_delivers_the_end_of_one_that_died(self, program, store, clock):
        program.look(minutes=71)
        program.app.run()
        program.target.refused = 1
        program.look()
        other = Program(store, clock)
        assert other.look() == []

        clock.advance(minutes=1)
        assert other.look(seconds=LEASE.total_seconds()) == [True]
        assert other.look(minutes=1) == [True]

    def test_a_watcher_that_starts_later_closes_the_incident(self, program, store, clock):
        program.look(minutes=71)
        program.app.run()

        assert Program(store, clock).look() == [True]
        assert program.look() == [False]

    @pytest.mark.parametrize("owner", ["", "x", "2026-01-05T12:00:00", "+010000-01-01"])
    def test_an_incident_whose_owner_was_edited_is_closed(self, program, store, clock, owner):
        program.look(minutes=71)
        name = f"incident:{store.get_schedule('', 'nightly').id}"
        edited = store.get_lock(name)._replace(owner=owner)
        store.release_lock(name)
        store.acquire_lock(edited, now=clock.now())
        program.app.run()

        assert program.look() == [False, True]


class TestDelivery:
    """A target that refuses an alert gets it again, and the others do not."""

    def test_it_is_tried_again_after_a_while(self, program):
        program.target.refused = 2
        patient = Target()
        program.app.alerts.add(patient)

        assert program.look(minutes=71) == []
        assert program.app._services.watcher.pace() <= 1
        assert program.look() == []  # too early
        assert program.look(seconds=1) == []
        assert program.look(seconds=2) == [False]
        assert program.look(hours=1) == [False]
        assert len(patient.alerts) == 1

    def test_it_is_not_sent_for_ever(self, program, caplog):
        program.target.refused = 1000
        program.look(minutes=71)

        for _ in range(TRIES_MAX):
            program.look(minutes=6)

        assert program.target.refused == 1000 - TRIES_MAX
        assert "is not sent again" in caplog.text

    def test_an_error_of_a_hook_stops_nothing(self, program, caplog):
        program.hooked = None  # its append is bound already
        program.app.schedule("nightly2", lambda: None).hourly().expect_within("10m").on_missed(
            lambda event: 1 / 0
        )
        program.app.run()

        program.look(minutes=71)

        assert len(program.target.alerts) == 2
        assert "ZeroDivisionError" in caplog.text

    def test_the_next_look_is_at_the_next_deadline(self, program):
        program.look(minutes=69, seconds=57)

        assert program.app._services.watcher.pace() == pytest.approx(3.1, abs=0.2)
        assert timedelta(days=365) < KEPT


class TestReports:
    """``status`` and ``doctor`` show what is late, also if no process watches."""

    def test_both_show_it(self, program):
        assert program.app.inspect.status().missed == []
        program.clock.advance(minutes=71)

        [missed] = program.app.inspect.status().missed
        checks = {check.name: check for check in program.app.check_health()}

        assert missed.schedule == "nightly"
        assert checks["expectations"].level == "bad"
        assert "nightly (due 2026-01-05 13:00:00 UTC)" in checks["expectations"].text

        program.app.run()
        assert program.app.inspect.status().missed == []
