"""The conformance suite for engines.

A test module imports everything from here, and has a fixture ``tested_engine``:

    from tickwork.testing.conformance.engines import *

    @pytest.fixture
    def tested_engine():
        return TestedEngine(MyEngine)
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import Interrupted, OutcomeKind
from tickwork._domain.run import Claim
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import SystemClock
from tickwork._worker.attempt_runner import AttemptRunner
from tickwork._worker.attempt_store import HeldAttemptStore
from tickwork._worker.held_runs import HeldRuns
from tickwork._worker.writer import Writer
from tickwork.engines.contract import Engine, EngineSetup
from tickwork.engines.wire import AppLocation
from tickwork.events.bus import EventBus
from tickwork.testing.conformance import engine_jobs
from tickwork.testing.conformance.builders import MINUTE, NOON

__all__ = [
    "EngineBench",
    "TestEngineOrder",
    "TestEngineOutcomes",
    "TestEngineStops",
    "TestedEngine",
    "bench",
    "make_bench",
]

UNUSED: Any = None


@dataclass(frozen=True)
class TestedEngine:
    """The engine under test, and what it can do.

    ``can_end_attempts`` is False if a running handler cannot be ended from outside, as in a
    thread. ``calls_coroutines`` is True if the handlers must be coroutines.
    """

    __test__: ClassVar = False  # pytest collects no tests here

    factory: Callable[[EngineSetup], Engine]
    can_end_attempts: bool = True
    calls_coroutines: bool = False


class EngineBench:
    """One engine, and the transitions that its attempts lead to."""

    def __init__(self, tested: TestedEngine, slots: int, module: ModuleType = engine_jobs) -> None:
        self.tested, app = tested, module.app
        self.held = HeldRuns()
        self.clock = SystemClock()
        self.notifications = 0
        self.log: list[tuple[RunId, str]] = []
        self.writer = Writer(
            store=UNUSED,
            clock=self.clock,
            held=self.held,
            reporter=UNUSED,
            log_capture=UNUSED,
            batch=500,
        )
        self.runner = AttemptRunner(
            clock=self.clock,
            store=HeldAttemptStore(
                store=UNUSED, clock=self.clock, held=self.held, plan_run=app.attempt_store.plan_run
            ),
            bus=EventBus(),
            find=app.registry.find,
            held=self.held,
            writer=self.writer,
            notify=self._notify,
        )
        self._names = 0
        location = AppLocation(module.__name__, "app", "", tuple(sys.path))
        self.engine = tested.factory(
            EngineSetup(
                host=self.runner,
                clock=self.clock,
                slots=slots,
                construct=lambda: app.construct,
                app_location=lambda: location,
                add_log_line=lambda run_id, line: self.log.append((run_id, line.message)),
            )
        )
        self.engine.start()

    def _notify(self) -> None:
        self.notifications += 1

    def claim(self, job: str, **args: Any) -> Claim:
        """Make a claim of one of the jobs."""
        self._names += 1
        name = f"{job}_too" if self.tested.calls_coroutines else job
        claim = Claim(
            run_id=RunId(f"run-{self._names}"),
            job=name,
            tenant="",
            queue="default",
            args=json.dumps(args),
            attempt=1,
            attempts_max=1,
            crashes=0,
            token=1,
            due_at=NOON - MINUTE,
            lease_until=NOON + MINUTE,
        )
        self.held.add(
            [claim], extended_at=self.clock.monotonic(), cancel_attempt=self.engine.cancel
        )
        return claim

    def submit(self, *claims: Claim) -> None:
        """Submit claims to the engine."""
        self.engine.submit(claims)
        while self.engine.assist():  # as the threads of a worker that claim runs do
            pass

    def steps(self, count: int, *, seconds: float = 30) -> list[Transition]:
        """Return the transitions, once there are this many."""
        self.until(lambda: len(self.writer.done) >= count, seconds=seconds)
        return list(self.writer.done)

    def until(self, check: Callable[[], object], *, seconds: float = 30) -> None:
        """Wait until something happens."""
        # Threads, event loops and processes are real here: no test clock can speed them up.
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, "It did not happen in time."
            time.sleep(0.002)

    def interrupt(self) -> None:
        """Interrupt the engine as a worker does."""
        self.runner.leave()
        for claim in self.engine.interrupt():
            self.runner.give_back(claim, Interrupted("stopped"))
        for claim in self.engine.take_back():
            self.runner.give_back(claim, Interrupted("not started"))


@pytest.fixture
def make_bench(tested_engine: TestedEngine) -> Iterator[Callable[[int], EngineBench]]:
    """Make benches with this many slots."""
    made: list[EngineBench] = []

    def make(slots: int) -> EngineBench:
        made.append(EngineBench(tested_engine, slots))
        return made[-1]

    yield make
    for each in made:
        each.interrupt()
        each.engine.stop()


@pytest.fixture
def bench(make_bench: Callable[[int], EngineBench]) -> EngineBench:
    """A bench with two slots."""
    return make_bench(2)


def ids(claims):
    return [claim.run_id for claim in claims]


class TestEngineOutcomes:
    """Each attempt gets the outcome of its handler."""

    def test_a_success_has_its_result(self, bench):
        bench.submit(bench.claim("note", n=4))

        [step] = bench.steps(1)

        assert (step.to_status, step.result) == (RunStatus.COMPLETED, "8")
        assert step.started_at is not None

    def test_a_failure_has_its_error(self, bench):
        bench.submit(bench.claim("boom"))

        [step] = bench.steps(1)

        assert step.outcome is OutcomeKind.FAILED
        assert step.reason == "ValueError: no"
        assert "raise ValueError" in step.traceback

    def test_a_timeout_is_a_failure(self, bench):
        bench.submit(bench.claim("late"))

        [step] = bench.steps(1)

        assert step.outcome is OutcomeKind.FAILED
        assert "AttemptTimeout" in step.reason

    @pytest.mark.parametrize(
        ("name", "status"),
        [
            ("FileNotFoundError", RunStatus.FAILED),
            ("ValueError", RunStatus.FAILED_PERMANENT),
            ("ConnectionResetError", RunStatus.FAILED_PERMANENT),
        ],
    )
    def test_the_type_of_an_exception_decides_about_a_retry(self, bench, name, status):
        bench.submit(bench.claim("raises", name=name))

        [step] = bench.steps(1)

        assert (step.outcome, step.to_status) == (OutcomeKind.FAILED, status)

    def test_a_timeout_has_a_type_too(self, bench):
        bench.submit(bench.claim("too_late"))

        [step] = bench.steps(1)

        assert "AttemptTimeout" in step.reason
        assert step.to_status is RunStatus.FAILED_PERMANENT

    def test_a_running_attempt_can_be_canceled(self, bench):
        can_cancel = bench.tested.can_end_attempts
        claim = bench.claim("long", seconds=20.0 if can_cancel else 1.0)
        bench.submit(claim)
        bench.until(lambda: bench.held.of(claim).started_at is not None)

        bench.held.cancel(claim.run_id)

        [step] = bench.steps(1)
        # A thread cannot be ended from outside, and this handler does not poll.
        assert step.to_status is (RunStatus.CANCELED if can_cancel else RunStatus.COMPLETED)

    def test_a_claim_that_is_canceled_before_it_starts_does_not_start(self, make_bench):
        bench = make_bench(1)
        first, second = bench.claim("long", seconds=0.3), bench.claim("note", n=1)
        bench.submit(first, second)

        bench.held.cancel(second.run_id)

        steps = bench.steps(2)
        assert steps[1].to_status is RunStatus.CANCELED
        assert steps[1].started_at is None

    def test_a_claim_that_is_lost_before_it_starts_is_dropped(self, make_bench):
        bench = make_bench(1)
        first, second = bench.claim("long", seconds=0.3), bench.claim("note", n=1)
        bench.submit(first, second)

        bench.held.revoke(second.run_id, token=second.token)

        bench.until(lambda: bench.held.of(second) is None)
        assert ids(step.claim for step in bench.steps(1)) == ids([first])


class TestEngineOrder:
    """Claims start in order, and no more than there are slots."""

    def test_they_start_in_order(self, make_bench):
        bench = make_bench(1)
        claims = [bench.claim("note", n=n) for n in range(20)]

        bench.submit(*claims[:15])
        bench.submit(*claims[15:])

        assert ids(step.claim for step in bench.steps(20)) == ids(claims)

    def test_no_more_attempts_run_than_there_are_slots(self, bench):
        slots = bench.engine.slots
        bench.submit(*(bench.claim("long", seconds=0.5) for _ in range(3)))

        bench.until(lambda: (bench.engine.running, bench.engine.waiting) == (slots, 3 - slots))
        assert len(bench.engine.unfinished()) == slots

        assert len(bench.steps(3)) == 3
        bench.until(lambda: (bench.engine.running, bench.engine.waiting) == (0, 0))
        assert bench.engine.unfinished() == []

    def test_the_worker_is_notified_when_no_claim_is_left(self, bench):
        bench.submit(bench.claim("note", n=1))

        bench.steps(1)

        bench.until(lambda: bench.notifications > 0)

    def test_each_claim_has_one_outcome(self, make_bench):
        bench = make_bench(4)
        claims = [bench.claim("note", n=n) for n in range(50)]
        for claim in claims:
            bench.submit(claim)

        steps = bench.steps(50)

        assert sorted(ids(step.claim for step in steps)) == sorted(ids(claims))


class TestEngineStops:
    """Each claim is given back once."""

    def test_claims_that_have_not_started_can_be_taken_back(self, make_bench):
        bench = make_bench(1)
        claims = [bench.claim("long", seconds=0.3), *(bench.claim("note", n=1) for _ in range(3))]
        bench.submit(*claims)
        bench.until(lambda: bench.held.of(claims[0]).started_at is not None)

        assert ids(bench.engine.take_back()) == ids(claims[1:])

        assert ids(step.claim for step in bench.steps(1)) == ids(claims[:1])
        assert bench.engine.waiting == 0

    def test_an_interruption_gives_back_each_claim_once(self, bench):
        slots = bench.engine.slots
        claims = [bench.claim("long", seconds=1.0) for _ in range(4)]
        bench.submit(*claims)
        bench.until(lambda: len(bench.engine.unfinished()) == slots)
        bench.until(lambda: all(bench.held.of(claim).started_at for claim in claims[:slots]))

        bench.interrupt()

        steps = bench.steps(4)
        assert {step.outcome for step in steps} == {OutcomeKind.INTERRUPTED}
        assert {step.to_status for step in steps} == {RunStatus.PENDING}
        bench.until(lambda: not bench.engine.unfinished())
        assert sorted(ids(step.claim for step in bench.steps(4))) == sorted(ids(claims))

    def test_nothing_starts_after_an_interruption(self, bench):
        bench.submit(bench.claim("note", n=1))
        bench.steps(1)
        bench.interrupt()
        late = bench.claim("note", n=2)

        bench.submit(late)

        assert ids(bench.engine.take_back()) == ids([late])

    def test_an_engine_that_did_nothing_can_be_stopped(self, bench):
        bench.engine.stop()

        assert bench.engine.running == 0
