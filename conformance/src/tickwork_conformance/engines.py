"""The conformance suite for engines.

A test module imports everything from here, and has a fixture ``tested_engine``:

    from tickwork_conformance.engines import *

    @pytest.fixture
    def tested_engine():
        return TestedEngine(MyEngine)

An engine that makes attempts itself and one that hands runs over to other processes pass the same
tests. What an engine cannot do, its :class:`TestedEngine` declares. For a remote engine, the runs
are rows of a real database, and the outcomes are those that its processes wrote.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import pytest

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.handover import handover_of
from tickwork._domain.runs.outcome import Interrupted, OutcomeKind
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._engines.contract import Engine, EngineHealth, EngineSetup, health_of
from tickwork._engines.wire import AppLocation
from tickwork._kernel.clock import Clock, SystemClock
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import ClaimRequest
from tickwork._worker.attempt_core import build_core
from tickwork._worker.attempts.attempt_runner import AttemptRunner
from tickwork._worker.attempts.attempt_store import HeldAttemptStore
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.writer import Writer
from tickwork.app.tickwork import Tickwork
from tickwork.events.bus import EventBus
from tickwork_conformance import engine_jobs
from tickwork_conformance.builders import HOUR, MINUTE, NOON

__all__ = [
    "EngineHarness",
    "TestEngineHealth",
    "TestEngineOrder",
    "TestEngineOutcomes",
    "TestEngineStops",
    "TestEngineSuspensions",
    "TestSubmittedTwice",
    "TestedEngine",
    "harness",
    "make_harness",
]

UNUSED: Any = None


@dataclass(frozen=True)
class TestedEngine:
    """The engine under test, and what it can do.

    ``can_end_attempts`` is False if a running handler cannot be ended from outside, as in a
    thread. ``calls_coroutines`` is True if the handlers must be coroutines. ``keeps_order`` is
    False if another system decides which run starts first. ``has_flows`` is False if the handlers
    run where there is no database, so that a run cannot have steps.

    A remote engine is tested with other processes that make one attempt at a time.
    ``database_url`` is the database that it shares with them. They import the application
    ``tickwork_conformance.engine_jobs:app``, and find that address in their environment
    variable ``TICKWORK_CONFORMANCE_URL``.
    """

    __test__: ClassVar = False  # pytest collects no tests here

    factory: Callable[[EngineSetup], Engine]
    can_end_attempts: bool = True
    calls_coroutines: bool = False
    keeps_order: bool = True
    has_flows: bool = True
    database_url: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether other processes make the attempts and write their outcomes."""
        return bool(self.database_url)


class EngineHarness:
    """One engine, and the transitions that its attempts lead to."""

    def __init__(self, tested: TestedEngine, slots: int, module: ModuleType = engine_jobs) -> None:
        self.tested, app = tested, module.app
        self.held = HeldRuns()
        self.clock: Clock = SystemClock()
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
                store=UNUSED,
                clock=self.clock,
                held=self.held,
                plan_run=app.attempt_store.plan_run,
                find_callbacks=UNUSED,
                decode_result=UNUSED,
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
        claim = self._claim(f"{job}_async" if self.tested.calls_coroutines else job, args)
        self.hold(claim)
        return claim

    def hold(self, claim: Claim) -> None:
        """Hold a claim as a worker does."""
        self.held.add(
            [claim], extended_at=self.clock.monotonic(), cancel_attempt=self.engine.cancel
        )

    def _claim(self, job: str, args: dict[str, Any]) -> Claim:
        self._names += 1
        return Claim(
            run_id=RunId(f"run-{self._names}"),
            job=job,
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

    def submit(self, *claims: Claim) -> None:
        """Submit claims to the engine."""
        self.engine.submit(claims)
        while self.engine.make_quick_attempts():  # as the pumps of a worker do
            pass

    def steps(self, count: int, *, seconds: float = 30) -> list[Any]:
        """Return the transitions, once there are this many."""
        self.until(lambda: len(self._settled()) >= count, seconds=seconds)
        return self._settled()

    def _settled(self) -> list[Any]:
        return list(self.writer.outbox)

    def due_at(self, step: Any) -> datetime:
        """When the run of a transition is due again."""
        due_at: datetime = step.due_at
        return due_at

    def has_started(self, claim: Claim) -> bool:
        """Whether the attempt has begun."""
        run = self.held.of(claim)
        return run is not None and run.started_at is not None

    def cancel(self, claim: Claim) -> None:
        """Request a cancellation."""
        self.held.cancel(claim.run_id)

    def lose(self, claim: Claim) -> None:
        """Take a claim away, as if its lease had expired."""
        self.held.revoke(claim.run_id, token=claim.token)

    def take_back(self) -> list[Claim]:
        """Take back the claims that have not started."""
        return self.engine.take_back()

    def close(self) -> None:
        """Stop the engine."""
        self.interrupt()
        self.engine.stop()

    def until(self, check: Callable[[], object], *, seconds: float = 30) -> None:
        """Wait until something happens."""
        # Threads, event loops and processes are real here: no test clock can speed them up.
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, "It did not happen in time."
            time.sleep(0.002)

    def interrupt(self) -> None:
        """Interrupt the engine as a worker does."""
        self.runner.begin_shutdown()
        for claim in self.engine.interrupt():
            self.runner.give_back(claim, Interrupted("stopped"))
        for claim in self.engine.take_back():
            self.runner.give_back(claim, Interrupted("not started"))


class SettledRun(NamedTuple):
    """A row of a run whose attempt has ended, with the names of a transition."""

    claim: Claim
    to_status: RunStatus
    outcome: OutcomeKind
    result: str | None
    reason: str
    traceback: str
    started_at: datetime | None
    ended_at: datetime | None
    acceptances: int


class RemoteEngineHarness(EngineHarness):
    """A remote engine, and the parts of a worker that use it. Other processes make the attempts."""

    def __init__(self, tested: TestedEngine, slots: int) -> None:
        self.tested = tested
        self.notifications = 0
        self.app = Tickwork(tested.database_url)
        self._jobs = engine_jobs.define_jobs(self.app)
        context = self.app._services.worker_context
        self._store = context.store
        self.clock = context.clock
        core = build_core(context, batch=500, find=self.app.registry.find, notify=self._notify)
        self.held, self.writer, self.runner = core.held, core.writer, core.runner
        self._worker = WorkerId(new_id(self.clock.now()))
        self._claims: list[Claim] = []
        location = AppLocation(engine_jobs.__name__, "app", "", tuple(sys.path))
        setup = core.build_setup(slots=slots)
        self.engine = tested.factory(setup._replace(app_location=lambda: location))
        self.engine.start()

    def _claim(self, job: str, args: dict[str, Any]) -> Claim:
        queue = new_id(self.clock.now())  # of its own: runs of other tests may be ready
        self._jobs[job].queue(queue).dispatch(**args)
        wanted = ClaimRequest(1, (queue,))
        [claim] = self._store.claim(
            wanted, worker=self._worker, tag=queue, now=self.clock.now(), lease=MINUTE
        )
        self._claims.append(claim)
        return claim

    def _settled(self) -> list[SettledRun]:
        while self.writer.write().size:  # it ends: no other process adds rows here
            pass
        found = [self._read(claim) for claim in self._claims]
        return sorted(filter(None, found), key=lambda run: run.ended_at or self.clock.now())

    def _read(self, claim: Claim) -> SettledRun | None:
        record = self._store.run_record(claim.run_id)
        assert record is not None
        run, attempts = record.run, record.attempts
        if run.status is RunStatus.RUNNING:
            return None
        last = attempts[-1] if attempts else None
        return SettledRun(
            claim,
            run.status,
            OutcomeKind.INTERRUPTED if last is None else OutcomeKind(last.outcome),
            run.result,
            run.reason if last is None else last.error or run.reason,
            "" if last is None else last.traceback,
            run.started_at if last is None else last.started_at,
            None if last is None else last.ended_at,
            run.token - claim.token,
        )

    def due_at(self, step: SettledRun) -> datetime:
        run = self._store.get_run(step.claim.run_id)
        assert run is not None
        return run.due_at

    def has_started(self, claim: Claim) -> bool:
        run = self._store.get_run(claim.run_id)
        return run is not None and run.token != claim.token

    def cancel(self, claim: Claim) -> None:
        # The engine here notices it, or the process that has accepted the run.
        self._store.cancel(claim.run_id, now=self.clock.now())

    def lose(self, claim: Claim) -> None:
        # Another worker has claimed it, so the message about it is refused.
        now = self.clock.now()
        until, worker = now + MINUTE, WorkerId(new_id(now))
        handover = handover_of(claim)
        self._store.accept([handover], worker=worker, tag="", until=until, started_at=None)
        self._claims.remove(claim)
        super().lose(claim)

    def take_back(self) -> list[Claim]:
        taken = super().take_back()
        for claim in taken:
            self.runner.give_back(claim, Interrupted("not started"))
        self._claims = [claim for claim in self._claims if claim not in taken]
        while self.writer.write().size:  # it ends: no other process adds rows here
            pass
        return taken

    def close(self) -> None:
        super().close()
        while self.writer.write().size:  # it ends: no other process adds rows here
            pass
        self.until(lambda: all(map(self._is_over, self._claims)))
        self.app.close()

    def _is_over(self, claim: Claim) -> bool:
        """Whether no process makes an attempt at it, which would disturb the next test."""
        run = self._store.get_run(claim.run_id)
        return run is None or run.status is not RunStatus.RUNNING


@pytest.fixture
def make_harness(tested_engine: TestedEngine) -> Iterator[Callable[[int], EngineHarness]]:
    """Make harnesses with this many slots."""
    made: list[EngineHarness] = []

    def make(slots: int) -> EngineHarness:
        kind = RemoteEngineHarness if tested_engine.is_remote else EngineHarness
        made.append(kind(tested_engine, slots))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def harness(make_harness: Callable[[int], EngineHarness]) -> EngineHarness:
    """A harness with two slots."""
    return make_harness(2)


def ids(claims):
    return [claim.run_id for claim in claims]


class TestEngineOutcomes:
    """Each attempt gets the outcome of its handler."""

    def test_a_success_has_its_result(self, harness):
        harness.submit(harness.claim("note", n=4))

        [step] = harness.steps(1)

        assert (step.to_status, step.result) == (RunStatus.COMPLETED, "8")
        assert step.started_at is not None

    def test_a_failure_has_its_error(self, harness):
        harness.submit(harness.claim("boom"))

        [step] = harness.steps(1)

        assert step.outcome is OutcomeKind.FAILED
        assert step.reason == "ValueError: no"
        assert "raise ValueError" in step.traceback

    def test_a_timeout_is_a_failure(self, harness):
        harness.submit(harness.claim("late"))

        [step] = harness.steps(1)

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
    def test_the_type_of_an_exception_decides_about_a_retry(self, harness, name, status):
        harness.submit(harness.claim("raises", name=name))

        [step] = harness.steps(1)

        assert (step.outcome, step.to_status) == (OutcomeKind.FAILED, status)

    def test_a_timeout_has_a_type_too(self, harness):
        harness.submit(harness.claim("too_late"))

        [step] = harness.steps(1)

        assert "AttemptTimeout" in step.reason
        assert step.to_status is RunStatus.FAILED_PERMANENT

    def test_a_running_attempt_can_be_canceled(self, harness):
        can_cancel = harness.tested.can_end_attempts
        claim = harness.claim("long", seconds=20.0 if can_cancel else 1.0)
        harness.submit(claim)
        harness.until(lambda: harness.has_started(claim))

        harness.cancel(claim)

        [step] = harness.steps(1)
        # A thread cannot be ended from outside, and this handler does not poll.
        assert step.to_status is (RunStatus.CANCELED if can_cancel else RunStatus.COMPLETED)

    def test_a_claim_that_is_canceled_before_it_starts_does_not_start(self, make_harness):
        harness = make_harness(1)
        first, second = harness.claim("long", seconds=0.3), harness.claim("note", n=1)
        harness.submit(first, second)

        harness.cancel(second)

        steps = harness.steps(2)
        assert steps[1].to_status is RunStatus.CANCELED
        assert steps[1].started_at is None

    def test_a_claim_that_is_lost_before_it_starts_is_dropped(self, make_harness):
        harness = make_harness(1)
        first, second = harness.claim("long", seconds=0.3), harness.claim("note", n=1)
        harness.submit(first, second)

        harness.lose(second)

        harness.until(lambda: harness.held.of(second) is None)
        assert ids(step.claim for step in harness.steps(1)) == ids([first])


class TestEngineSuspensions:
    """A handler that sleeps ends its attempt, and frees its slot."""

    @pytest.mark.parametrize("how", ["sleeps", "catches_exceptions", "cleans_up"])
    def test_the_run_is_suspended(self, harness, how):
        before = harness.clock.now()
        harness.submit(harness.claim("suspends", how=how))

        [step] = harness.steps(1)

        if not harness.tested.has_flows:
            assert how != "sleeps" or step.reason.startswith("FlowsUnavailable: ")
            return
        assert (step.outcome, step.to_status) == (OutcomeKind.SUSPENDED, RunStatus.PENDING)
        assert step.reason == "sleeps: sleep:1h"
        due_at = harness.due_at(step)
        assert before + HOUR <= due_at <= harness.clock.now() + HOUR

    def test_a_handler_that_catches_everything_fails(self, harness):
        harness.submit(harness.claim("suspends", how="catches_everything"))

        [step] = harness.steps(1)

        if harness.tested.has_flows:
            assert step.to_status is RunStatus.FAILED_PERMANENT
            assert "caught SuspendRun" in step.reason

    def test_another_error_is_an_error(self, harness):
        harness.submit(harness.claim("suspends", how="fails_after_it"))

        [step] = harness.steps(1)

        assert step.outcome is OutcomeKind.FAILED
        assert step.reason == "ValueError: another error"

    def test_its_slot_is_free(self, make_harness):
        harness = make_harness(1)

        harness.submit(harness.claim("suspends", how="sleeps"), harness.claim("note", n=1))

        steps = harness.steps(2)
        assert {step.result for step in steps} == {None, "2"}


class TestEngineOrder:
    """Claims start in order, and no more than there are slots."""

    def test_they_start_in_order(self, make_harness):
        harness = make_harness(1)
        claims = [harness.claim("note", n=n) for n in range(20)]

        harness.submit(*claims[:15])
        harness.submit(*claims[15:])

        ended = ids(step.claim for step in harness.steps(20))
        assert harness.tested.keeps_order is False or ended == ids(claims)

    def test_no_more_attempts_run_than_there_are_slots(self, harness):
        slots = harness.engine.slots
        harness.submit(*(harness.claim("long", seconds=0.5) for _ in range(3)))

        if not harness.tested.is_remote:  # the other system limits how many run
            harness.until(
                lambda: (harness.engine.running, harness.engine.waiting) == (slots, 3 - slots)
            )
            assert len(harness.engine.unfinished()) == slots

        assert len(harness.steps(3)) == 3
        harness.until(lambda: (harness.engine.running, harness.engine.waiting) == (0, 0))
        assert harness.engine.unfinished() == []

    def test_the_worker_is_notified_when_no_claim_is_left(self, harness):
        harness.submit(harness.claim("note", n=1))

        harness.steps(1)

        harness.until(lambda: harness.notifications > 0)

    def test_each_claim_has_one_outcome(self, make_harness):
        harness = make_harness(4)
        claims = [harness.claim("note", n=n) for n in range(50)]
        for claim in claims:
            harness.submit(claim)

        steps = harness.steps(50)

        assert sorted(ids(step.claim for step in steps)) == sorted(ids(claims))


class TestEngineStops:
    """Each claim is given back once."""

    def test_claims_that_have_not_started_can_be_taken_back(self, make_harness):
        harness = make_harness(1)
        claims = [
            harness.claim("long", seconds=0.3),
            *(harness.claim("note", n=1) for _ in range(3)),
        ]
        harness.submit(*claims)
        harness.until(lambda: harness.has_started(claims[0]))

        assert ids(harness.take_back()) == ids(claims[1:])

        assert ids(step.claim for step in harness.steps(1)) == ids(claims[:1])
        assert harness.engine.waiting == 0

    def test_an_interruption_gives_back_each_claim_once(self, harness):
        slots = harness.engine.slots
        claims = [harness.claim("long", seconds=1.0) for _ in range(4)]
        harness.submit(*claims)
        if harness.tested.is_remote:
            slots = 1
        else:
            harness.until(lambda: len(harness.engine.unfinished()) == slots)
        harness.until(lambda: sum(map(harness.has_started, claims)) == slots)

        harness.interrupt()

        steps = harness.steps(4)
        given_back = [step for step in steps if step.to_status is RunStatus.PENDING]
        assert {step.outcome for step in given_back} == {OutcomeKind.INTERRUPTED}
        # The process that has accepted a run finishes it.
        assert len(given_back) == (4 - slots if harness.tested.is_remote else 4)
        harness.until(lambda: not harness.engine.unfinished())
        assert sorted(ids(step.claim for step in harness.steps(4))) == sorted(ids(claims))

    def test_nothing_starts_after_an_interruption(self, harness):
        harness.submit(harness.claim("note", n=1))
        harness.steps(1)
        harness.interrupt()
        late = harness.claim("note", n=2)

        harness.submit(late)

        assert ids(harness.take_back()) == ids([late])

    def test_an_engine_that_did_nothing_can_be_stopped(self, harness):
        harness.engine.stop()

        assert harness.engine.running == 0


class TestEngineHealth:
    """An engine reports its health at any time. One without the method counts as alive."""

    def test_an_engine_that_works_is_alive(self, harness):
        assert health_of(harness.engine).is_alive
        harness.submit(harness.claim("note", n=1))

        harness.steps(1)

        harness.until(lambda: health_of(harness.engine) == EngineHealth())

    def test_a_health_check_does_not_disturb_attempts(self, harness):
        claims = [harness.claim("long", seconds=0.3), harness.claim("note", n=1)]
        harness.submit(*claims)

        def is_done():
            assert health_of(harness.engine).is_alive
            return len(harness.steps(0)) == 2

        harness.until(is_done)
        assert {step.to_status for step in harness.steps(2)} == {RunStatus.COMPLETED}

    def test_an_engine_that_was_stopped_is_not_broken(self, harness):
        harness.submit(harness.claim("note", n=1))
        harness.steps(1)
        harness.interrupt()
        harness.engine.stop()

        assert health_of(harness.engine).is_alive


class TestSubmittedTwice:
    """A run that is submitted twice is executed once in effect."""

    def test_a_message_that_is_sent_again_changes_nothing(self, harness):
        if not harness.tested.is_remote:
            return  # a worker submits a claim to its own engine once
        claim = harness.claim("note", n=4)
        harness.submit(claim)
        harness.submit(claim)
        harness.until(lambda: harness.steps(1) and harness.held.of(claim) is None)

        harness.hold(claim)
        harness.submit(claim)
        harness.submit(harness.claim("note", n=5))

        assert [(step.result, step.acceptances) for step in harness.steps(2)] == [
            ("8", 1),
            ("10", 1),
        ]
