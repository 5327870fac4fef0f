"""The checks before an attempt, and what outcomes mean."""

from datetime import timedelta
from typing import Any

import pytest

from tickwork import Tickwork
from tickwork._domain.runs.outcome import (
    SUCCEEDED,
    Canceled,
    Interrupted,
    OutcomeKind,
    Postponed,
    Skipped,
    Snoozed,
    Succeeded,
)
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import reap
from tickwork._engines.attempt import AttemptEnd
from tickwork._stores.contract import ClaimRequest
from tickwork._worker.attempts.attempt_runner import AttemptRunner
from tickwork._worker.attempts.attempt_store import HeldAttemptStore
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.writer import Writer
from tickwork.events import Event
from tickwork.events.bus import EventBus
from tickwork.testing import ManualClock
from unit.builders import NOON, a_claim

UNUSED: Any = None


class RunnerHarness:
    def __init__(self, app, held=None):
        self.clock, self.held = ManualClock(), HeldRuns() if held is None else held
        self.bus = EventBus()
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
                store=app._services.store,
                clock=self.clock,
                held=self.held,
                plan_run=UNUSED,
                find_callbacks=UNUSED,
                decode_result=UNUSED,
            ),
            bus=self.bus,
            find=app.registry.definitions().get,
            held=self.held,
            writer=self.writer,
        )

    def begin(self, claim):
        self.held.add([claim], extended_at=0.0)
        return self.runner.begin(claim)

    @property
    def transition(self):
        [transition] = self.writer.outbox
        return transition


@pytest.fixture
def app():
    with Tickwork("memory://") as app:
        yield app


class TestPoison:
    """A process that does not know a job gives none of its runs up: another process decides."""

    @pytest.mark.parametrize(("crashes", "is_tried"), [(0, True), (2, True), (3, False)])
    def test_a_run_that_crashed_too_often_fails_when_it_is_claimed(self, app, crashes, is_tried):
        app.schedule("work", lambda: None).crashes(3)
        harness = RunnerHarness(app)

        attempt = harness.begin(a_claim(job="work", crashes=crashes))

        assert (attempt is not None) is is_tried
        if not is_tried:
            step = harness.transition
            assert step.to_status is RunStatus.FAILED_PERMANENT
            assert step.outcome is OutcomeKind.CRASHED
            assert (step.is_final, step.crash, step.leaves_attempt) == (True, 0, False)
            assert step.reason == "The worker died 3 times during this run."

    def test_the_limit_is_known_before_anything_was_claimed(self, app):
        app.schedule("tough", lambda: None).crashes(1_000)

        known = app._services.worker_context.known

        # A pass reaps before it claims anything.
        assert known.crashes_max("tough") == 1_000
        assert known.crashes_max("of another program") > 1_000_000


class TestStopRequests:
    """`ctx.is_canceled()` is true for several reasons, and only one of them is final."""

    def stop(self, app, request):
        """Return the transition of a run whose handler saw the request, and returned."""
        app.schedule("work", lambda: None)
        harness, claim = RunnerHarness(app), a_claim(job="work")
        attempt = harness.begin(claim)
        request(harness.held, claim)
        assert attempt.ctx.is_canceled()
        harness.runner.end(attempt, Succeeded())
        return harness.transition

    def test_because_the_run_was_canceled(self, app):
        step = self.stop(app, lambda held, claim: held.cancel(claim.run_id))

        assert (step.to_status, step.outcome) == (RunStatus.CANCELED, OutcomeKind.CANCELED)

    def test_because_its_lease_could_not_be_extended(self, app):
        # The database was away for a moment. No other worker has the run: the write lands.
        step = self.stop(app, lambda held, claim: held.revoke(claim.run_id, token=claim.token))

        assert (step.to_status, step.outcome) == (RunStatus.PENDING, OutcomeKind.INTERRUPTED)
        assert (step.uncounted_attempts, step.crash) == (1, 0)

    @pytest.mark.parametrize("is_canceled", [True, False])
    @pytest.mark.parametrize(
        ("outcome", "kind", "status"),
        [
            (Snoozed(timedelta(hours=1)), OutcomeKind.SNOOZED, RunStatus.PENDING),
            (Postponed("not now"), OutcomeKind.POSTPONED, RunStatus.PENDING),
            (Skipped("not today"), OutcomeKind.SKIPPED, RunStatus.SKIPPED),
            (Canceled("stopped"), OutcomeKind.CANCELED, RunStatus.CANCELED),
            (Interrupted("stopped"), OutcomeKind.INTERRUPTED, RunStatus.PENDING),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, tuple) else str(value),
    )
    def test_a_handler_that_saw_it_and_ends_otherwise_has_its_own_outcome(
        self, app, outcome, kind, status, is_canceled
    ):
        app.schedule("work", lambda: None)
        harness, claim = RunnerHarness(app), a_claim(job="work")
        attempt = harness.begin(claim)
        if is_canceled:
            harness.held.cancel(claim.run_id)
        else:
            harness.held.revoke(claim.run_id, token=claim.token)
        assert attempt.ctx.is_canceled()

        harness.runner.end(attempt, outcome)

        assert (harness.transition.outcome, harness.transition.to_status) == (kind, status)


class TestLostLeases:
    """A success whose lease was lost: whether another worker has the run decides."""

    @pytest.fixture
    def stored(self, app):
        app.schedule("work", lambda: None)
        handle = app.dispatch("work")
        store = app._services.store
        claims = store.claim(
            ClaimRequest(1), worker="w", tag="t", now=app.clock.now(), lease=timedelta(seconds=30)
        )
        assert [claim.run_id for claim in claims] == [handle.id]
        return claims[0]

    @pytest.mark.parametrize(("is_taken", "kind"), [(False, Succeeded), (True, Interrupted)])
    def test_hooks_get_what_will_be_recorded(self, app, stored, is_taken, kind):
        harness = RunnerHarness(app)
        attempt = harness.begin(stored)
        harness.held.revoke(stored.run_id, token=stored.token)
        if is_taken:
            later = app.clock.now() + timedelta(minutes=5)
            app._services.store.reap(
                now=later,
                limit=1,
                decide=lambda it: reap(it.claim, has_started=True, now=later, crashes_max=9),
            )

        end = harness.runner.decide(attempt, AttemptEnd(SUCCEEDED))

        assert isinstance(end.outcome, kind)


class TestDeadlines:
    @pytest.fixture
    def harness(self, app):
        app.schedule("work", lambda: None).timeout(10)
        return RunnerHarness(app)

    def test_a_handler_that_polls_learns_that_its_timeout_has_passed(self, harness):
        attempt = harness.begin(a_claim(job="work"))

        assert not attempt.ctx.is_canceled()
        harness.clock.advance(seconds=10)
        assert attempt.ctx.is_canceled()

    def test_an_attempt_that_ignores_its_timeout_fails_after_the_grace(self, harness):
        attempt = harness.begin(a_claim(job="work"))
        grace = timedelta(seconds=5)

        harness.clock.advance(seconds=14)
        assert not harness.runner.watch_deadlines(grace)
        harness.clock.advance(seconds=1)
        assert harness.runner.watch_deadlines(grace)

        assert "AttemptTimeout" in harness.transition.reason
        harness.runner.end(attempt, SUCCEEDED)
        assert harness.transition.outcome is OutcomeKind.FAILED

    def test_an_engine_that_ends_late_attempts_itself_is_not_watched(self, harness):
        claim = a_claim(job="work")
        harness.held.add([claim], extended_at=0.0)
        harness.runner.begin(claim, is_timed=False)

        harness.clock.advance(minutes=10)

        assert not harness.runner.watch_deadlines(timedelta(0))


class TestSettling:
    def test_only_the_first_outcome_counts(self, app):
        app.schedule("work", lambda: None)
        harness, claim = RunnerHarness(app), a_claim(job="work")
        attempt = harness.begin(claim)

        harness.runner.give_back(claim, Interrupted("the worker stops"))
        harness.runner.end(attempt, SUCCEEDED)

        assert harness.transition.outcome is OutcomeKind.INTERRUPTED

    def test_an_error_of_the_engine_is_a_failed_attempt(self, app):
        app.schedule("work", lambda: None)
        harness, claim = RunnerHarness(app), a_claim(job="work")
        harness.begin(claim)

        harness.runner.fail(claim, RuntimeError("no slot"))

        assert harness.transition.reason == "RuntimeError: no slot"


class TestSimpleAttempts:
    """Attempts in one step. Whatever is special about a run, the usual steps are for it."""

    @pytest.fixture
    def calls(self):
        return []

    @pytest.fixture
    def harness(self, app, calls):
        app.job(name="work")(lambda: calls.append(1))
        return RunnerHarness(app)

    def attempt(self, harness, claim):
        make_simple_attempt = harness.runner.simple_attempt_of(claim.job, UNUSED)
        return make_simple_attempt(claim, harness.clock.now())

    def test_it_calls_the_handler_and_reports_the_success(self, harness, calls):
        claim, started_at = a_claim(job="work"), harness.clock.now()
        harness.held.add([claim], extended_at=0.0)

        assert self.attempt(harness, claim) == harness.clock.now()

        assert calls == [1]
        assert harness.transition.claim is claim
        assert harness.transition.outcome is OutcomeKind.SUCCEEDED
        assert harness.transition.started_at == started_at

    def test_a_claim_is_attempted_once(self, harness, calls):
        claim = a_claim(job="work")
        harness.held.add([claim], extended_at=0.0)
        self.attempt(harness, claim)

        assert self.attempt(harness, claim) is None
        assert calls == [1]

    @pytest.mark.parametrize(
        "special",
        [
            {"crashes": 1},
            {"expires_at": NOON},
            {"args": "no JSON"},
            {"args": '{"unknown": {"$tag": 1}}'},
        ],
    )
    def test_a_special_claim_is_left_to_the_usual_steps(self, harness, calls, special):
        claim = a_claim(job="work", **special)
        harness.held.add([claim], extended_at=0.0)

        assert self.attempt(harness, claim) is None
        assert calls == []
        assert harness.held.of(claim).started_at is None

    @pytest.mark.parametrize(
        "prepare",
        [
            lambda harness, claim: harness.held.cancel(claim.run_id),
            lambda harness, claim: harness.held.revoke(claim.run_id, token=claim.token),
            lambda harness, claim: harness.held.of(claim).try_settle(),
            lambda harness, claim: harness.held.drop_all([claim]),
            lambda harness, claim: harness.held.add([claim._replace(token=2)], extended_at=0.0),
            lambda harness, _: harness.bus.subscribe(Event, lambda event: None),
        ],
        ids=["canceled", "lost", "settled", "not held", "claimed again", "subscriber"],
    )
    def test_a_run_that_changed_is_left_to_the_usual_steps(self, harness, calls, prepare):
        claim = a_claim(job="work")
        harness.held.add([claim], extended_at=0.0)
        prepare(harness, claim)

        assert self.attempt(harness, claim) is None
        assert calls == []
        assert not harness.writer.outbox

    def test_an_outcome_that_was_decided_meanwhile_is_the_only_one(self, app):
        claim, held = a_claim(job="work"), HeldRuns()
        held.add([claim], extended_at=0.0)
        app.job(name="work")(held.snapshot()[0].try_settle)
        harness = RunnerHarness(app, held)

        assert self.attempt(harness, claim) is not None
        assert not harness.writer.outbox

    def test_a_job_that_needs_more_than_a_call_has_none(self, app):
        app.job(name="timed", timeout="1s")(lambda: None)
        app.job(name="hooked", on_after=lambda: None)(lambda: None)
        runner = RunnerHarness(app).runner

        names = ["timed", "hooked", "unknown"]
        assert [runner.simple_attempt_of(name, UNUSED) for name in names] == [None] * 3
