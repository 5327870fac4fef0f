"""What an outcome means for a run: decided here, written by stores."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple, assert_never

from tickwork._domain.outcome import (
    Canceled,
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    OutcomeKind,
    Postponed,
    Skipped,
    Snoozed,
    Succeeded,
)
from tickwork._domain.retry import ON_REQUEST, NoRetry, RetryPolicy
from tickwork._domain.run import CRASHES_MAX, Claim
from tickwork._domain.status import Phase, RunStatus
from tickwork._kernel.durations import later

POSTPONE_FIRST: Final = timedelta(seconds=30)
POSTPONE_MAX: Final = timedelta(minutes=10)
EXPIRED: Final = "expired: it could not start in time"

_NOTHING: Final = timedelta(0)


class Transition(NamedTuple):
    """The step that an outcome means for a run: decided, not yet written.

    A store writes it only if the claim's token is still the run's. A step to a final
    status has no ``due_at``; every other one has. Counters are given as what to add, so
    that a step fits the row whatever else has been written to it.

    With ``undone``, the handler has completed the run in a transaction of its own, and this
    step is written already; unless that was rolled back: then ``undone`` is the step.
    """

    claim: Claim
    to_status: RunStatus
    outcome: OutcomeKind
    ended_at: datetime
    started_at: datetime | None = None
    due_at: datetime | None = None
    refund: int = 0  # attempts given back
    crash: int = 0  # crashes charged
    put_off: int = 0  # times held back
    attempts_max: int | None = None  # None: as it was
    result: str | None = None
    reason: str = ""
    traceback: str = ""
    undone: "Transition | None" = None

    @property
    def is_final(self) -> bool:
        """Whether the run moves to history."""
        return self.due_at is None

    @property
    def phase(self) -> Phase | None:
        """Where the run waits next; None when it is finished."""
        if self.due_at is None:
            return None
        return Phase.READY if self.due_at <= self.ended_at else Phase.WAITING

    @property
    def leaves_attempt(self) -> bool:
        """Whether the attempt gets a row of its own.

        The success of a first attempt needs none: history says it all. Where none was
        made, none is recorded.
        """
        match self.outcome:
            case OutcomeKind.SUCCEEDED:
                return self.claim.attempt > 1 or self.claim.crashes > 0
            case OutcomeKind.SKIPPED | OutcomeKind.POSTPONED:
                return False
            case OutcomeKind.CRASHED:
                return self.crash > 0
            case OutcomeKind.INTERRUPTED | OutcomeKind.CANCELED:
                return self.started_at is not None
            case OutcomeKind.FAILED | OutcomeKind.SNOOZED:
                return True


def succeeded(claim: Claim, *, now: datetime, started_at: datetime | None) -> Transition:
    """What :func:`settle` says of a success that has nothing to tell: most runs."""
    return Transition(claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, now, started_at)


def settle(
    claim: Claim,
    outcome: Outcome,
    *,
    now: datetime,
    retry: RetryPolicy,
    random: float,
    started_at: datetime | None = None,
    crashes_max: int = CRASHES_MAX,
    is_cancel_requested: bool = False,
) -> Transition:
    """Decide what an outcome means for a run.

    ``random`` is in [0, 1) and decides the jitter of a retry. A run whose cancelling was
    asked for does not get another attempt.
    """
    match outcome:
        case Succeeded():
            # Most of them: a plain tuple, and nothing else to weigh.
            return Transition(
                claim,
                RunStatus.COMPLETED,
                OutcomeKind.SUCCEEDED,
                now,
                started_at,
                result=outcome.result,
                reason=outcome.note,
            )
        case Failed():
            step = _settle_failure(claim, outcome, now=now, retry=retry, random=random)
        case Snoozed():
            due_at = _after(now, outcome.delay)
            step = _given_back(claim, OutcomeKind.SNOOZED, now, due_at, outcome.reason)
        case Postponed():
            due_at = _after(now, postpone_delay(claim.put_offs))
            step = _given_back(claim, OutcomeKind.POSTPONED, now, due_at, outcome.reason)
            step = step._replace(put_off=1)
        case Interrupted():
            # A deploy must not eat a retry: the attempt is given back, and the run is
            # due at once for whichever worker is still up.
            step = _given_back(claim, OutcomeKind.INTERRUPTED, now, now, outcome.reason)
        case Crashed():
            step = _settle_crash(claim, outcome, now=now, crashes_max=crashes_max)
        case Skipped():
            step = _given_back(claim, OutcomeKind.SKIPPED, now, None, outcome.reason)
            step = step._replace(to_status=RunStatus.SKIPPED)
        case Canceled():
            step = Transition(
                claim, RunStatus.CANCELED, OutcomeKind.CANCELED, now, reason=outcome.reason
            )
        case _:
            assert_never(outcome)

    if is_cancel_requested and not step.is_final:
        step = step._replace(to_status=RunStatus.CANCELED, due_at=None, attempts_max=None)
    elif step.due_at is not None and _is_past(claim.expires_at, step.due_at):
        step = _expired(step)
    return step._replace(started_at=started_at)


def reap(
    claim: Claim,
    *,
    has_started: bool,
    now: datetime,
    crashes_max: int = CRASHES_MAX,
    is_cancel_requested: bool = False,
) -> Transition:
    """Decide what becomes of a run whose lease ended without an outcome.

    Nobody knows how far it came. It costs a crash and not an attempt, and only a run
    whose start was written down is charged: a worker may die with hundreds of claims in
    its hands, and at most a few of them killed it.
    """
    assert now >= claim.lease_until, claim
    return settle(
        claim,
        Crashed("The lease ended without an outcome.", has_started=has_started),
        now=now,
        retry=NoRetry(),
        random=0.0,
        crashes_max=crashes_max,
        is_cancel_requested=is_cancel_requested,
    )


def settle_poisoned(claim: Claim, *, now: datetime) -> Transition:
    """The step of a claim of a run that has crashed too often to be tried again."""
    step = _given_back(claim, OutcomeKind.CRASHED, now, None, _died(claim.crashes))
    return step._replace(to_status=RunStatus.FAILED_PERMANENT)


def expiry(claim: Claim, *, now: datetime) -> Skipped | None:
    """The outcome of a claim that came too late to start; None when it may start."""
    return Skipped(EXPIRED) if _is_past(claim.expires_at, now) else None


def postpone_delay(put_offs: int) -> timedelta:
    """How long ``when`` holds a run back that it has held back ``put_offs`` times already.

    >>> [postpone_delay(times).seconds for times in range(6)]
    [30, 60, 120, 240, 480, 600]
    """
    # Past ten doublings the maximum is long reached, and the number would only grow.
    return min(POSTPONE_FIRST * (1 << min(put_offs, 10)), POSTPONE_MAX)


def _settle_failure(
    claim: Claim, failed: Failed, *, now: datetime, retry: RetryPolicy, random: float
) -> Transition:
    step = Transition(
        claim,
        RunStatus.FAILED_PERMANENT,
        OutcomeKind.FAILED,
        now,
        reason=failed.error,
        traceback=failed.traceback,
    )
    attempts_max = None
    if isinstance(retry, NoRetry):
        # Without a policy an exception is final, but a handler that asks for another
        # attempt knows best. The row then shows the number of attempts it really has.
        if not failed.retry or claim.attempt >= ON_REQUEST.attempts_max:
            return step
        retry = ON_REQUEST
        attempts_max = max(claim.attempts_max, ON_REQUEST.attempts_max)
    elif failed.retry is False or claim.is_last_attempt:
        return step
    delay = retry.delay_after(claim.attempt, random) if failed.delay is None else failed.delay
    return step._replace(
        to_status=RunStatus.FAILED, due_at=_after(now, delay), attempts_max=attempts_max
    )


def _settle_crash(claim: Claim, crashed: Crashed, *, now: datetime, crashes_max: int) -> Transition:
    step = _given_back(claim, OutcomeKind.CRASHED, now, now, crashed.reason)
    step = step._replace(crash=int(crashed.has_started))
    crashes = claim.crashes + step.crash
    if not crashed.has_started or crashes < crashes_max:
        return step
    return step._replace(
        to_status=RunStatus.FAILED_PERMANENT,
        due_at=None,
        reason=f"{_died(crashes)} {crashed.reason}",
    )


def _died(crashes: int) -> str:
    return f"Its worker died {crashes} times while it ran."


def _given_back(
    claim: Claim, outcome: OutcomeKind, now: datetime, due_at: datetime | None, reason: str
) -> Transition:
    return Transition(
        claim, RunStatus.PENDING, outcome, now, due_at=due_at, refund=1, reason=reason
    )


def _expired(step: Transition) -> Transition:
    # The next attempt would come too late. An attempt that failed stays a failure; a run
    # that was only held back is skipped, as any other that could not start in time.
    has_failed = step.to_status is RunStatus.FAILED
    return step._replace(
        to_status=RunStatus.FAILED_PERMANENT if has_failed else RunStatus.SKIPPED,
        due_at=None,
        attempts_max=None,
        reason=f"{step.reason}\n{EXPIRED}".lstrip(),
    )


def _is_past(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and now > moment


def _after(now: datetime, delay: timedelta) -> datetime:
    return later(now, max(delay, _NOTHING))  # a time in the past is due at once
