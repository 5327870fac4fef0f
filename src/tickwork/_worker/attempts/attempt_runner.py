"""From a claim to its transition: what happens before and after a handler is called.

An engine calls :meth:`AttemptRunner.begin`, calls the handler where it wants to, and reports the
outcome to :meth:`AttemptRunner.end`. Everything else about an attempt is decided here.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork import events
from tickwork._define.attempt_context import open_attempt
from tickwork._define.definition import Definition
from tickwork._domain.runs.outcome import (
    SUCCEEDED,
    Canceled,
    Crashed,
    Failed,
    Interrupted,
    Mask,
    Outcome,
    OutcomeKind,
    Postponed,
    Skipped,
    Succeeded,
    Suspended,
    outcome_of_exception,
)
from tickwork._domain.runs.retry import ANY_ERROR, NO_RETRY, NoRetry
from tickwork._domain.runs.run import CRASHES_MAX, Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import (
    Transition,
    settle,
    settle_poisoned,
    settle_success,
    skip_if_expired,
)
from tickwork._engines.attempt import ROLLED_BACK, AttemptEnd, simple_attempt
from tickwork._engines.contract import RunningAttempt, SimpleAttempt
from tickwork._kernel.clock import Clock
from tickwork._kernel.fork import exit_forked, reset_after_fork
from tickwork._worker.attempts.attempt_store import RowAttemptStore
from tickwork._worker.attempts.held_runs import HeldRun, HeldRuns
from tickwork._worker.attempts.reporter import log_run
from tickwork._worker.attempts.writer import Writer
from tickwork.errors import AttemptTimeout, StoreError, TickworkError
from tickwork.events.bus import EventBus

STOPPED: Final = "The worker stopped during the attempt."
_CANCELED: Final = "Its cancellation was requested."
_CANCELED_BEFORE: Final = "Its cancellation was requested before the attempt started."
_STOPPED_EARLY: Final = "The handler stopped because that was requested."
_TAKEN_OVER: Final = "Another worker has taken over the run."
_UNKNOWN: Final = "This process does not know the job any more."


class AttemptRunner:
    """Begins attempts, and turns their outcomes into transitions. Shared by all engines."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: RowAttemptStore,
        bus: EventBus,
        find: Callable[[str], Definition | None],
        held: HeldRuns,
        writer: Writer,
        notify: Callable[[], None] = lambda: None,
        draw_random: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._store = store
        self._bus = bus
        self._find = find
        self._held = held
        self._draw_random = draw_random
        self._is_shutting_down = False
        self._is_forked = False
        self.outbox = writer.outbox
        self.notify = notify
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Remember that a handler forked this process: it exits when the handler returns or raises.

        Otherwise it would continue as a second worker with one thread, which nothing stops.
        """
        self._is_forked = True

    # ------------------------------------------------------------ for engines

    def begin(self, claim: Claim, *, is_timed: bool = True) -> RunningAttempt | None:
        """Check whether an attempt may start; None when the claim needs no attempt any more."""
        run = self._held.of(claim)
        if run is None or run.is_settled:
            return None  # it was given back before it started
        if run.is_stop_requested:
            if run.is_lost:
                self._held.drop_all([claim])
                return None
            if run.is_canceled:
                self._settle_without_attempt(run, Canceled(_CANCELED_BEFORE))
                return None
        definition = self._find(claim.job)
        if definition is None:
            self._put(run, self._transition(claim, None, Failed(_UNKNOWN, retry=False)))
            return None
        now = self._clock.now()
        spec = definition.spec
        if claim.crashes >= spec.crashes_max:
            # The process that reaped it did not know the job, nor how many crashes the job allows.
            self._put(run, settle_poisoned(claim, now=now))
            return None
        if claim.expires_at is not None:
            expired = skip_if_expired(claim, now=now)
            if expired is not None:
                self._put(run, self._transition(claim, definition, expired))
                return None
        timeout, ends_at = spec.timeout, None
        deadline = None if timeout is None else now + timeout
        try:
            ctx = open_attempt(definition, claim, self._store, deadline)
        except TickworkError as error:
            failed = Failed(str(error), retry=False)
            self._put(run, self._transition(claim, definition, failed))
            return None
        if timeout is not None:
            ends_at = self._clock.monotonic() + timeout.total_seconds()
            run.deadline = ends_at if is_timed else None
        run.started_at, run.ctx = now, ctx
        if self._bus.has_subscribers:
            self._bus.emit(_run_started(claim, at=now))
        return RunningAttempt(claim, definition, ctx, timeout, ends_at, now, run)

    def simple_attempt_of(
        self, job: str, wait: Callable[[Awaitable[Any]], Any]
    ) -> SimpleAttempt | None:
        """Return a function that makes attempts of this job in one step; None if they need more.

        What depends on the job only is looked up here, and not for each attempt. Where a step of
        the slow path has something to do, the attempt takes that path:

        | :meth:`begin`, the engine, :meth:`end` | this function |
        |---|---|
        | the claim is held, and its end was not requested | the same |
        | unknown job, timeout, secrets, filters, hooks, middleware | there is no function |
        | earlier crashes, an expiry, subscribers of events | None: the slow path |
        | the context is opened | the same |
        | another outcome than success, a fork, a context that was used | :meth:`end` |
        | the transition is put into the outbox | the same |
        """
        definition = self._find(job)
        if (
            definition is None
            or not definition.is_simple
            or definition.spec.timeout is not None
            or definition.secrets
        ):
            return None
        known = definition
        find_held, bus, store = self._held.get, self._bus, self._store
        now, put = self._clock.now, self.outbox.append

        def make_simple_attempt(claim: Claim, started_at: datetime) -> datetime | None:
            run = find_held(claim.run_id)
            if (
                run is None
                or run.claim is not claim
                or run.is_stop_requested
                or not run.unsettled
                or claim.crashes
                or claim.expires_at is not None
                or bus.has_subscribers
            ):
                return None
            try:
                ctx = run.ctx = open_attempt(known, claim, store)
            except TickworkError:
                return None
            run.started_at = started_at
            outcome = simple_attempt(known, ctx, wait)
            if outcome is not SUCCEEDED or self._is_forked or run.decisions or ctx.is_changed:
                self.end(RunningAttempt(claim, known, ctx, None, None, started_at, run), outcome)
                return now()
            ended_at = now()
            if run.try_settle():
                put(settle_success(claim, ended_at, started_at))
            return ended_at

        return make_simple_attempt

    def decide(self, attempt: RunningAttempt, end: AttemptEnd) -> AttemptEnd:
        """Return how the attempt is recorded: as it ended, or as the worker decided meanwhile."""
        run: HeldRun = attempt.held
        outcome = self._recorded_outcome(attempt, end.outcome)
        if run.is_lost and isinstance(outcome, Succeeded | Failed) and self._is_taken(run.claim):
            outcome = Interrupted(_TAKEN_OVER)
        if run.deadline is not None and attempt.timeout is not None:
            # Hooks have the same timeout again.
            run.deadline = self._clock.monotonic() + attempt.timeout.total_seconds()
        decided = run.decide(outcome)
        return end if decided is end.outcome else AttemptEnd(decided)

    def end(self, attempt: RunningAttempt, outcome: Outcome) -> None:
        """Report an outcome. If the run was lost, the fencing token rejects the write."""
        if self._is_forked:
            exit_forked(is_failed=isinstance(outcome, Failed))
        ctx, run = attempt.ctx, attempt.held
        if outcome is SUCCEEDED and not (run.decisions or ctx.is_changed):
            # Most attempts.
            transition = settle_success(attempt.claim, self._clock.now(), attempt.started_at)
            if run.try_settle():
                self.outbox.append(transition)
            return
        decided = run.decisions[0] if run.decisions else self._recorded_outcome(attempt, outcome)
        self._put(run, self._attempt_transition(attempt, decided))

    def fail(self, claim: Claim, error: BaseException) -> None:
        """Report that the engine could not make the attempt."""
        if self._is_forked:
            exit_forked(is_failed=True)
        text = "run %s could not be executed."
        log_run(logging.ERROR, claim, text, claim.run_id, error=error)
        run = self._held.of(claim)
        if run is not None:
            self.record_failure(run, _failure(error))

    def outcome_of_stop(self, attempt: RunningAttempt, error: BaseException) -> Outcome:
        run: HeldRun = attempt.held
        if run.is_canceled:
            return Canceled(_CANCELED)
        if self._is_shutting_down or run.is_lost:
            return Interrupted(STOPPED)
        # Only the handler itself can have raised it.
        return _failure(error, attempt.definition, attempt.ctx.mask)

    def is_settled(self, attempt: RunningAttempt) -> bool:
        run: HeldRun = attempt.held
        return run.is_settled

    # ------------------------------------------------------------ for the worker

    def record_failure(self, run: HeldRun, outcome: Failed | Crashed) -> None:
        """Record a failure, even if the attempt is still running.

        If the handler has ended and only hooks are still running, its own outcome is recorded.
        """
        claim = run.claim
        transition = self._transition(
            claim,
            self._find(claim.job),
            run.decide(outcome),
            has_progress=run.ctx is not None and run.ctx.saved_steps > 0,
        )
        self._put(run, transition._replace(started_at=run.started_at))

    def give_back(self, claim: Claim, outcome: Interrupted | Crashed) -> None:
        """Return a claim to the queue. An attempt that is running is requested to stop."""
        run = self._held.of(claim)
        if run is None:
            return
        if run.is_lost:
            self._held.drop_all([claim])
            return
        # Settle it first: the outcome of the attempt that is then stopped must not count.
        if isinstance(outcome, Crashed):
            self.record_failure(run, outcome)
        else:
            self._settle_without_attempt(run, outcome)
        run.request_stop()

    def begin_shutdown(self) -> None:
        """From now on, an attempt that the worker stops is recorded as interrupted."""
        self._is_shutting_down = True

    def watch_deadlines(self, grace: timedelta) -> bool:
        """Request a stop of attempts that exceed their timeout; True if one ignores it.

        An attempt that goes on for longer than ``grace`` is recorded as failed.
        """
        now, is_stuck = self._clock.monotonic(), False
        for run in self._held.snapshot():
            deadline = run.deadline
            if deadline is None or now < deadline or run.is_settled:
                continue
            run.is_stop_requested = True
            if now >= deadline + grace.total_seconds():
                is_stuck = True
                self._record_timeout(run)
        return is_stuck

    # ------------------------------------------------------------ transitions

    def _record_timeout(self, run: HeldRun) -> None:
        claim = run.claim
        text = "run %s ignores its timeout. Its thread runs on until this process ends."
        log_run(logging.ERROR, claim, text, claim.run_id)
        definition = self._find(claim.job)
        timeout = None if definition is None else definition.spec.timeout
        error = AttemptTimeout(claim.run_id, timeout=timeout or timedelta(0))
        self.record_failure(run, _failure(error, definition))

    def _put(self, run: HeldRun, transition: Transition) -> None:
        """Add the transition to the outbox, unless the run is settled already."""
        ctx = run.ctx
        if ctx is not None and ctx.follow_ups and transition.outcome is OutcomeKind.SUCCEEDED:
            transition = transition._replace(follow_ups=ctx.follow_ups)
        if run.try_settle():
            self.outbox.append(transition)

    def _settle_without_attempt(self, run: HeldRun, outcome: Interrupted | Canceled) -> None:
        decided = run.decide(outcome)
        definition = None if decided is outcome else self._find(run.claim.job)
        transition = self._transition(run.claim, definition, decided)
        self._put(run, transition._replace(started_at=run.started_at))

    def _attempt_transition(self, attempt: RunningAttempt, outcome: Outcome) -> Transition:
        ctx = attempt.ctx
        if ctx.is_completed:
            # The handler completed the run in its own transaction. The writer finds out whether
            # that was committed.
            otherwise = Failed(ROLLED_BACK) if isinstance(outcome, Succeeded) else outcome
            transition = self._outcome_transition(attempt, SUCCEEDED)
            return transition._replace(if_rolled_back=self._outcome_transition(attempt, otherwise))
        return self._outcome_transition(attempt, outcome)

    def _recorded_outcome(self, attempt: RunningAttempt, outcome: Outcome) -> Outcome:
        ctx, run = attempt.ctx, attempt.held
        if not ctx.has_seen_cancel or ctx.is_completed:
            return outcome
        if not isinstance(outcome, Succeeded | Failed):
            return outcome
        # The handler was requested to stop, maybe because the lease could not be extended or
        # the worker stops. Then the work is not done, and the run is due again.
        if self._store.is_canceled(attempt.claim):
            return Canceled(_STOPPED_EARLY)
        # A handler may also raise to stop. After a timeout, that is a failure.
        has_failed = isinstance(outcome, Failed) and not run.is_lost and not self._is_shutting_down
        return outcome if has_failed else Interrupted(_STOPPED_EARLY)

    def _is_taken(self, claim: Claim) -> bool:
        """Whether another worker has the run. A run whose lease expired may be unclaimed."""
        try:
            return self._store.is_taken(claim)
        except StoreError:
            return False  # unknown: the write will find out

    def _outcome_transition(self, attempt: RunningAttempt, outcome: Outcome) -> Transition:
        # When a filter rejected the run, there was no attempt.
        started_at = None if isinstance(outcome, Skipped | Postponed) else attempt.started_at
        return self._transition(
            attempt.claim,
            attempt.definition,
            outcome,
            started_at=started_at,
            has_progress=attempt.ctx.saved_steps > 0,
        )

    def _transition(
        self,
        claim: Claim,
        definition: Definition | None,
        outcome: Outcome,
        *,
        started_at: datetime | None = None,
        has_progress: bool = False,
    ) -> Transition:
        retry = NO_RETRY if definition is None else definition.spec.retry
        crashes_max = CRASHES_MAX if definition is None else definition.spec.crashes_max
        stored_max = claim.attempts_max
        if retry is not NO_RETRY and not isinstance(retry, NoRetry):
            # The process that dispatched the run may not know the policy. This one does.
            claim = claim._replace(attempts_max=retry.attempts_max)
        may_continue = isinstance(outcome, Failed | Crashed | Suspended)
        is_canceled = may_continue and self._store.is_canceled(claim)
        transition = settle(
            claim,
            outcome,
            now=self._clock.now(),
            retry=retry,
            random=self._draw_random(),
            started_at=started_at,
            crashes_max=crashes_max,
            is_cancel_requested=is_canceled,
            has_progress=has_progress,
        )
        if transition.to_status is RunStatus.FAILED and claim.attempts_max > stored_max:
            # The row must allow the attempt that follows.
            transition = transition._replace(attempts_max=claim.attempts_max)
        return transition


def _run_started(claim: Claim, *, at: datetime) -> "events.RunStarted":
    return events.RunStarted(
        at=at,
        run_id=claim.run_id,
        job=claim.job,
        tenant=claim.tenant,
        queue=claim.queue,
        schedule=claim.schedule,
        attempt=claim.attempt,
        due_at=claim.due_at,
    )


def _failure(
    error: BaseException, definition: Definition | None = None, mask: Mask = str
) -> Failed:
    retry_errors = ANY_ERROR if definition is None else definition.options.retry_errors
    outcome = outcome_of_exception(error, retry_errors=retry_errors, mask=mask)
    assert isinstance(outcome, Failed), outcome
    return outcome
