"""Decides what an outcome means for a run. Stores write the decision."""

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
from tickwork._domain.retry import RETRY_LATER_POLICY, NoRetry, RetryPolicy
from tickwork._domain.run import CRASHES_MAX, Claim, NewRun
from tickwork._domain.status import Phase, RunStatus
from tickwork._kernel.durations import later
from tickwork._kernel.plurals import count_of

POSTPONE_FIRST: Final = timedelta(seconds=30)
POSTPONE_MAX: Final = timedelta(minutes=10)
EXPIRED: Final = "expired: the run did not start in time"

_ZERO: Final = timedelta(0)


class Transition(NamedTuple):
    """The change of a run that follows from an outcome: decided, not yet written.

    A store writes it only if the token of the claim is still the run's token. A transition to a
    final status has no ``due_at``; every other one has. Counters are increments, so that they
    are right whatever another process has written meanwhile.

    With ``if_rolled_back``, the handler completed the run in its own transaction. If that was
    committed, this transition is stored. If not, the worker writes ``if_rolled_back`` instead.
    """

    claim: Claim
    to_status: RunStatus
    outcome: OutcomeKind
    ended_at: datetime
    started_at: datetime | None = None
    due_at: datetime | None = None
    refund: int = 0  # attempts that do not count
    crash: int = 0  # crashes to add
    put_off: int = 0  # postponements to add
    attempts_max: int | None = None  # None: unchanged
    result: str | None = None
    reason: str = ""
    traceback: str = ""
    if_rolled_back: "Transition | None" = None
    exception: BaseException | None = None  # of a failure in this process; not stored
    follow_ups: tuple[NewRun, ...] = ()  # added in the transaction that writes this success

    @property
    def is_final(self) -> bool:
        return self.due_at is None

    @property
    def phase(self) -> Phase | None:
        """The next phase; None when the run has finished."""
        if self.due_at is None:
            return None
        return Phase.READY if self.due_at <= self.ended_at else Phase.WAITING

    @property
    def leaves_attempt(self) -> bool:
        """Whether the attempt gets its own row.

        A first attempt that succeeds needs none: the history has all of it.
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


def settle_success(claim: Claim, now: datetime, started_at: datetime | None) -> Transition:
    """A fast :func:`settle` for a success without a result or a note: most runs."""
    # As Transition(...), in 60 % of the time: that one has sixteen parameters.
    return _new(Transition, (claim, *_SUCCESS, now, started_at, *_DEFAULTS))


_new: Final = tuple.__new__
_SUCCESS: Final = (RunStatus.COMPLETED, OutcomeKind.SUCCEEDED)
_DEFAULTS: Final = tuple(map(Transition._field_defaults.get, Transition._fields[5:]))


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

    ``random`` is in [0, 1) and sets the jitter of a retry. A run whose cancellation was requested
    gets no further attempt.
    """
    match outcome:
        case Succeeded():
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
            step = _return_run(claim, OutcomeKind.SNOOZED, now, due_at, outcome.reason)
        case Postponed():
            due_at = _after(now, postpone_delay(claim.put_offs))
            step = _return_run(claim, OutcomeKind.POSTPONED, now, due_at, outcome.reason)
            step = step._replace(put_off=1)
        case Interrupted():
            # A deploy must not cost an attempt. The run is due at once for another worker.
            step = _return_run(claim, OutcomeKind.INTERRUPTED, now, now, outcome.reason)
        case Crashed():
            step = _settle_crash(claim, outcome, now=now, crashes_max=crashes_max)
        case Skipped():
            step = _return_run(claim, OutcomeKind.SKIPPED, now, None, outcome.reason)
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
        step = _expire(step)
    return step._replace(started_at=started_at)


def reap(
    claim: Claim,
    *,
    has_started: bool,
    now: datetime,
    crashes_max: int = CRASHES_MAX,
    is_cancel_requested: bool = False,
) -> Transition:
    """Decide what happens to a run whose lease expired.

    It is unknown how far the attempt got. It counts as a crash and not as an attempt, and only
    if its start was recorded: a worker can die with hundreds of claims, and only the few started
    runs can be the cause.
    """
    assert now >= claim.lease_until, claim
    return settle(
        claim,
        Crashed("The lease expired without an outcome.", has_started=has_started),
        now=now,
        retry=NoRetry(),
        random=0.0,
        crashes_max=crashes_max,
        is_cancel_requested=is_cancel_requested,
    )


def settle_poisoned(claim: Claim, *, now: datetime) -> Transition:
    """The transition of a run that has crashed too often."""
    step = _return_run(claim, OutcomeKind.CRASHED, now, None, _describe_crashes(claim.crashes))
    return step._replace(to_status=RunStatus.FAILED_PERMANENT)


def skip_if_expired(claim: Claim, *, now: datetime) -> Skipped | None:
    """Return a skip if the run has expired; None if it may still start."""
    return Skipped(EXPIRED) if _is_past(claim.expires_at, now) else None


def postpone_delay(put_offs: int) -> timedelta:
    """How long ``when`` postpones a run that it has postponed ``put_offs`` times before.

    >>> [postpone_delay(times).seconds for times in range(6)]
    [30, 60, 120, 240, 480, 600]
    """
    # After ten doublings the maximum is reached.
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
        exception=failed.exception,
    )
    attempts_max = None
    if isinstance(retry, NoRetry):
        # Without a policy an exception is final, unless the handler requested a retry. The
        # row then gets the number of attempts that it really has.
        if not failed.retry or claim.attempt >= RETRY_LATER_POLICY.attempts_max:
            return step
        retry = RETRY_LATER_POLICY
        attempts_max = max(claim.attempts_max, RETRY_LATER_POLICY.attempts_max)
    elif failed.retry is False or claim.is_last_attempt:
        return step
    delay = retry.delay_after(claim.attempt, random) if failed.delay is None else failed.delay
    return step._replace(
        to_status=RunStatus.FAILED, due_at=_after(now, delay), attempts_max=attempts_max
    )


def _settle_crash(claim: Claim, crashed: Crashed, *, now: datetime, crashes_max: int) -> Transition:
    step = _return_run(claim, OutcomeKind.CRASHED, now, now, crashed.reason)
    step = step._replace(crash=int(crashed.has_started))
    crashes = claim.crashes + step.crash
    if not crashed.has_started or crashes < crashes_max:
        return step
    return step._replace(
        to_status=RunStatus.FAILED_PERMANENT,
        due_at=None,
        reason=f"{_describe_crashes(crashes)} {crashed.reason}",
    )


def _describe_crashes(crashes: int) -> str:
    return f"The worker died {count_of(crashes, 'time')} during this run."


def _return_run(
    claim: Claim, outcome: OutcomeKind, now: datetime, due_at: datetime | None, reason: str
) -> Transition:
    return Transition(
        claim, RunStatus.PENDING, outcome, now, due_at=due_at, refund=1, reason=reason
    )


def _expire(step: Transition) -> Transition:
    # The next attempt would come too late. If an attempt failed, the run has failed; if it was
    # only postponed, it is skipped, as any other run that did not start in time.
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
    return later(now, max(delay, _ZERO))  # a negative delay is due at once
