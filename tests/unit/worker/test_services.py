"""The services of a worker, each on its own: their threads, their problems, their order."""

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.health import WorkerState
from tickwork._engines.contract import EngineHealth
from tickwork._kernel.clock import StoreClock
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.options import WorkerOptions
from tickwork._worker.service import (
    FAILING_SECONDS,
    FAILURES_MIN,
    PATIENCE,
    RepeatedService,
)
from tickwork._worker.services.attempt_watch import AttemptWatch
from tickwork._worker.services.engine_services import LOOP_PATIENCE, EngineResources
from tickwork._worker.services.pump_threads import PumpThread
from tickwork._worker.services.worker_stop import WorkerStop
from tickwork._worker.wakeup import Wakeup
from tickwork._worker.worker import Worker
from tickwork.errors import StoreBusy, StoreUnavailable
from tickwork.testing import ManualClock

LONG = 30.0


class Repeated(RepeatedService):
    """Calls a function in each step, and does not wait between steps."""

    name = "repeated"
    activity = "Repeating"

    def __init__(self, act, clock=None):
        super().__init__(clock or ManualClock())
        self._act = act

    def step(self):
        self._act()
        return 0.0


@pytest.fixture(autouse=True)
def no_retry_delay(monkeypatch):
    for name in ("RETRY_FIRST", "RETRY_LONGEST", "UNAVAILABLE_FIRST", "UNAVAILABLE_LONGEST"):
        monkeypatch.setattr(f"tickwork._worker.service.{name}", 0.0)


def run_steps(faults, *, kind=Repeated, clock=None):
    """Run a service that raises these faults one after the other; return it after the last."""
    left, is_done, may_end = list(faults), threading.Event(), threading.Event()

    def act():
        if not left:
            is_done.set()
            assert may_end.wait(LONG)
            return
        fault = left.pop(0)
        if fault is not None:
            raise fault

    service = kind(act, clock)
    service.start()
    assert is_done.wait(LONG)
    return service, may_end


def watch(service, clock, seconds):
    """Look for problems every second, for so long; return the last one."""
    for _ in range(int(seconds)):
        clock.advance(seconds=1)
        problem = service.find_problem()
    return problem


class TestRepeatedServices:
    """A step that fails is repeated, and a service that cannot work says so."""

    @pytest.mark.parametrize("fault", [MemoryError(), SystemExit(), ValueError("no")])
    def test_a_step_that_fails_is_repeated(self, fault):
        service, may_end = run_steps([fault, fault])

        assert not service.find_problem()
        may_end.set()
        service.stop()

    def test_it_is_a_problem_when_all_steps_fail_for_long(self):
        clock = ManualClock()
        service, may_end = run_steps([ValueError("no")] * FAILURES_MIN, clock=clock)

        clock.advance(seconds=FAILING_SECONDS)

        assert service.find_problem() == "Repeating has failed 4 times in a row: ValueError."
        may_end.set()
        service.stop()

    def test_but_not_after_a_step_that_did_not_fail(self):
        clock = ManualClock()
        service, may_end = run_steps([ValueError("no"), None], clock=clock)

        clock.advance(seconds=FAILING_SECONDS)

        assert not service.find_problem()
        may_end.set()
        service.stop()

    def test_nor_in_a_service_without_which_a_worker_can_work(self):
        class Optional(Repeated):
            is_essential = False

        clock = ManualClock()
        service, may_end = run_steps([ValueError("no")], kind=Optional, clock=clock)

        clock.advance(seconds=FAILING_SECONDS)

        assert not service.find_problem()
        may_end.set()
        service.stop()

    @pytest.mark.parametrize(
        "fault",
        [StoreUnavailable("db://", "gone"), StoreBusy("db://", waited=timedelta(seconds=1))],
    )
    def test_an_unreachable_database_is_no_problem_of_a_service(self, fault, caplog):
        clock = ManualClock()
        service, may_end = run_steps([fault] * 5, clock=clock)

        clock.advance(seconds=FAILING_SECONDS)

        assert not service.find_problem()
        assert caplog.text.count("Repeating waits for the database") == 1
        may_end.set()
        service.stop()

    def test_a_step_that_does_not_end_is_a_problem(self):
        clock = ManualClock()
        service, may_end = run_steps([], clock=clock)

        problem = watch(service, clock, PATIENCE + 1)

        assert problem == "Repeating has made no progress for 3m."
        may_end.set()
        service.stop()

    @pytest.mark.parametrize("faults", [0, 1, FAILURES_MIN - 1])
    def test_a_process_that_was_suspended_has_no_problem(self, faults):
        clock = ManualClock()
        service, may_end = run_steps([ValueError("no")] * faults, clock=clock)
        watch(service, clock, 5)

        clock.advance(seconds=1_000 * PATIENCE)

        assert not service.find_problem()
        may_end.set()
        service.stop()

    def test_a_fault_that_stays_does_not_fill_the_log(self, caplog):
        service, may_end = run_steps([ValueError("no")] * 100)

        records = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert len(records) == 7, "for 1, 2, 4, … 64 failures in a row"
        may_end.set()
        service.stop()

    def test_a_stopped_service_has_no_problem(self):
        clock = ManualClock()
        service, may_end = run_steps([ValueError("no")], clock=clock)
        may_end.set()
        service.stop()

        clock.advance(seconds=10 * PATIENCE)

        assert not service.find_problem()


class QuietPump:
    """A pump that notes which threads drive it, and whether two ever did at once."""

    is_deferred = is_backing_off = False

    def __init__(self):
        self.lock = threading.Lock()
        self.threads: list[int] = []
        self.overlaps = 0

    def step(self, *, may_claim, is_polling):
        if not self.lock.acquire(blocking=False):
            self.overlaps += 1
            return False
        try:
            self.threads.append(threading.get_ident())
        finally:
            self.lock.release()
        return False


class SlowEngine:
    """An engine whose first quick attempt lasts until it is released."""

    waiting = 0

    def __init__(self):
        self.is_in_attempt, self.may_end = threading.Event(), threading.Event()
        self.has_ended = threading.Event()

    def make_quick_attempts(self):
        if not self.is_in_attempt.is_set():
            self.is_in_attempt.set()
            assert self.may_end.wait(LONG)
            self.has_ended.set()
        return False


class NoOutcomes:
    pending = 0


def a_pump_thread(pump, engine, clock=None):
    stats, wakeup = Stats(), Wakeup()
    return PumpThread(
        pump,
        engines=[engine],
        writer=NoOutcomes(),  # type: ignore[arg-type]
        clock=clock or ManualClock(),
        stop=WorkerStop(stats=stats, wakeup=wakeup, timer_wakeup=Wakeup()),
        wakeup=wakeup,
        options=WorkerOptions(poll=timedelta(milliseconds=1), poll_idle=timedelta(milliseconds=1)),
    )


def wait_until(condition):
    """Wait for something that another thread does at once."""
    pause = threading.Event()
    for _ in range(3_000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("It did not happen.")


class TestOneDriver:
    """One thread drives a pump. A thread that is stuck in a handler is replaced for good."""

    def test_a_replaced_thread_never_drives_the_pump_again(self):
        pump, engine = QuietPump(), SlowEngine()
        thread = a_pump_thread(pump, engine)
        thread.start()
        assert engine.is_in_attempt.wait(LONG)
        [first] = pump.threads

        thread.replace_if_stuck()  # sees the attempts
        thread.replace_if_stuck()  # sees the same ones
        wait_until(lambda: len(pump.threads) > 3)
        engine.may_end.set()
        assert engine.has_ended.wait(LONG)
        steps = len(pump.threads)
        wait_until(lambda: len(pump.threads) > steps + 20)

        assert pump.overlaps == 0
        assert pump.threads.count(first) == 1
        assert len(set(pump.threads)) == 2
        thread.stop()

    def test_a_thread_between_attempts_is_not_replaced(self):
        pump, engine = QuietPump(), SlowEngine()
        engine.is_in_attempt.set()
        thread = a_pump_thread(pump, engine)
        thread.start()

        for _ in range(20):
            thread.replace_if_stuck()
        wait_until(lambda: len(pump.threads) > 20)

        assert len(set(pump.threads)) == 1
        thread.stop()


class MovedTime:
    """The time of the database, which another server may replace by its own."""

    def __init__(self, base):
        self._base, self.ahead, self.queries = base, timedelta(0), 0

    def __call__(self):
        self.queries += 1
        return self._base.now() + self.ahead


class TestReconnecting:
    """The next server may have another time: it is measured before an attempt reads it."""

    def test_the_clock_is_measured_at_once(self):
        base = ManualClock()
        measure = MovedTime(base)
        clock = StoreClock(measure, base=base)
        clock.now()
        thread = a_pump_thread(QuietPump(), SlowEngine(), clock=clock)
        queries, measure.ahead = measure.queries, timedelta(minutes=5)

        thread.on_available()

        assert measure.queries == queries + 1
        assert not clock.is_stale
        assert clock.now() == base.now() + timedelta(minutes=5)
        assert measure.queries == queries + 1  # no attempt waits for it


class NoAttempts:
    """A runner whose attempts are all in time."""

    def watch_deadlines(self, grace):
        return False


class TestLateFirings:
    """A worker stops after as many late firings in a row as ``missed_max`` allows."""

    @pytest.mark.parametrize("missed_max", [0, 1, 2, 3])
    @pytest.mark.parametrize("missed", [0, 1, 2, 3])
    def test_the_limit_is_the_number_that_stops_it(self, missed_max, missed):
        stats, wakeup = Stats(), Wakeup()
        stop = WorkerStop(stats=stats, wakeup=wakeup, timer_wakeup=Wakeup())
        watch = AttemptWatch(
            services=[],
            runner=NoAttempts(),  # type: ignore[arg-type]
            engines=[],
            pumps=[],
            stop=stop,
            stats=stats,
            clock=ManualClock(),
            options=WorkerOptions(missed_max=missed_max),
        )
        stats.missed = missed

        watch.step()

        assert stats.is_behind is stop.is_requested is (0 < missed_max <= missed)


class Recorded:
    """A service that notes what is done with it."""

    def __init__(self, name, done, *, fault=None):
        self.name, self.done, self.fault = name, done, fault
        self.problem = ""

    def start(self):
        if self.fault is not None:
            raise self.fault
        self.done.append(f"start {self.name}")

    def stop(self):
        self.done.append(f"stop {self.name}")

    def find_problem(self):
        return self.problem


def a_worker(*services):
    stats = Stats()
    stop = WorkerStop(stats=stats, wakeup=Wakeup(), timer_wakeup=Wakeup())
    parts: dict[str, Any] = {"clock": ManualClock(), "stats": stats, "options": WorkerOptions()}
    return Worker(services, stop=stop, find_unwritten=lambda: None, **parts)


class TestWorkers:
    """Services start in their order, and stop in reverse."""

    def test_they_stop_in_reverse(self):
        done: list[str] = []
        worker = a_worker(Recorded("a", done), Recorded("b", done))

        worker.start()
        worker.stop()
        worker.join()
        worker.join()

        assert done == ["start a", "start b", "stop b", "stop a"]

    def test_those_that_started_stop_when_another_one_cannot_start(self):
        done: list[str] = []
        worker = a_worker(
            Recorded("a", done), Recorded("b", done, fault=ValueError("no")), Recorded("c", done)
        )

        with pytest.raises(ValueError, match="no"):
            worker.start()

        assert done == ["start a", "stop b", "stop a"]
        assert worker.is_stopping

    def test_a_worker_with_a_problem_is_stuck_and_stops(self, caplog):
        service = Recorded("a", [])
        worker = a_worker(service)
        worker.start()
        before = worker.state

        service.problem = "Claiming runs has failed 7 times in a row: ValueError."

        assert [before, worker.state] == [WorkerState.RUNNING, WorkerState.STUCK]
        worker.join()
        assert "The worker stops: Claiming runs has failed 7 times in a row" in caplog.text


class SickEngine:
    """An engine with a health that a test sets."""

    def __init__(self):
        self.state = EngineHealth()

    def health(self):
        return self.state


class TestEngines:
    """A worker whose engine cannot make attempts is stuck, unless the engine recovers soon."""

    @pytest.fixture
    def clock(self):
        return ManualClock()

    @pytest.fixture
    def engine(self):
        return SickEngine()

    @pytest.fixture
    def service(self, engine, clock):
        return EngineResources({"process": engine}, clock=clock)

    def test_a_dead_engine_is_a_problem_after_a_while(self, service, engine, clock):
        engine.state = EngineHealth(is_alive=False, reason="no child starts")

        assert not watch(service, clock, FAILING_SECONDS - 1)
        problem = watch(service, clock, 1)

        assert problem == "The engine 'process' cannot make attempts any more: no child starts"

    def test_an_engine_that_recovers_is_none(self, service, engine, clock):
        for _ in range(5):
            engine.state = EngineHealth(is_alive=False, reason="no memory")
            assert not watch(service, clock, FAILING_SECONDS - 1)
            engine.state = EngineHealth()
            assert not service.find_problem()

    def test_an_event_loop_may_be_blocked_for_a_while(self, service, engine, clock):
        engine.state = EngineHealth(silent_seconds=10_000.0)

        assert not watch(service, clock, LOOP_PATIENCE - 1)
        assert "has been blocked for 5m" in watch(service, clock, 1)

    def test_an_engine_that_reports_no_health_counts_as_alive(self, clock):
        assert not EngineResources({"mine": object()}, clock=clock).find_problem()  # type: ignore[dict-item]
