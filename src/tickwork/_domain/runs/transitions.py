"""Decides what an outcome means for a run. Stores write the decision."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple, assert_never

from tickwork._domain.runs.links import CALLED
from tickwork._domain.runs.outcome import (
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
    Suspended,
)
from tickwork._domain.runs.retry import RETRY_LATER_POLICY, NoRetry, RetryPolicy
from tickwork._domain.runs.run import CRASHES_MAX, Claim, NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, SubRun
from tickwork._domain.runs.stored_events import EventName
from tickwork._kernel.durations import later
from tickwork._kernel.plain_text import count_of

POSTPONE_FIRST: Final = timedelta(seconds=30)
POSTPONE_MAX: Final = timedelta(minutes=10)
SHORT_MAX: Final = 400
"""The longest reason of an outcome that was shortened, in characters."""

RESULT_LEFT_OUT: Final = "The result was not stored."
TEXT_LEFT_OUT: Final = "The complete text was not stored."
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
    uncounted_attempts: int = 0  # attempts that do not count
    crash: int = 0  # crashes to add
    postponements: int = 0  # postponements to add
    attempts_max: int | None = None  # None: unchanged
    result: str | None = None
    reason: str = ""
    traceback: str = ""
    if_rolled_back: "Transition | None" = None
    exception: BaseException | None = None  # of a failure in this process; not stored
    follow_ups: tuple[NewRun, ...] = ()  # added in the transaction that writes this success
    steps: tuple[Step, ...] = ()  # added in the transaction that writes this suspension
    wait: EventName | None = None  # of a suspension: the event that continues the run
    calls: tuple[SubRun, ...] = ()  # of a suspension: runs to add
    waits_for_runs: bool = False  # of a suspension: the ends of other runs continue it

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
    def is_short(self) -> bool:
        """Whether it has no value that a database may reject."""
        is_plain = self.reason.isascii() and "\x00" not in self.reason
        has_values = self.result is not None or self.traceback or self.follow_ups
        return is_plain and len(self.reason) <= SHORT_MAX and not has_values

    @property
    def leaves_attempt(self) -> bool:
        """Whether the attempt gets its own row.

        A first attempt that succeeds needs none: the history has all of it.
        """
        match self.outcome:
            case OutcomeKind.SUCCEEDED:
                return (
                    self.claim.attempt > 1
                    or self.claim.crashes > 0
                    or self.claim.links & ~CALLED > 0
                )
            case OutcomeKind.SKIPPED | OutcomeKind.POSTPONED:
                return False
            case OutcomeKind.CRASHED:
                return self.crash > 0
            case OutcomeKind.INTERRUPTED | OutcomeKind.CANCELED:
                return self.started_at is not None
            case OutcomeKind.FAILED | OutcomeKind.SNOOZED | OutcomeKind.SUSPENDED:
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
    has_progress: bool = False,
) -> Transition:
    """Decide what an outcome means for a run.

    ``random`` is in [0, 1) and sets the jitter of a retry. A run whose cancellation was requested
    gets no further attempt. ``has_progress`` means that the attempt has stored a step: if it
    failed, it counts as the first attempt, because attempts count tries without progress.
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
            tried = claim._replace(attempt=1) if has_progress else claim
            transition = _settle_failure(tried, outcome, now=now, retry=retry, random=random)
            if has_progress:
                transition = transition._replace(claim=claim, uncounted_attempts=claim.attempt - 1)
        case Snoozed():
            due_at = _after(now, outcome.delay)
            transition = _return_run(claim, OutcomeKind.SNOOZED, now, due_at, outcome.reason)
        case Suspended():
            transition = _settle_suspension(claim, outcome, now=now)
        case Postponed():
            due_at = _after(now, postpone_delay(claim.postponements))
            transition = _return_run(claim, OutcomeKind.POSTPONED, now, due_at, outcome.reason)
            transition = transition._replace(postponements=1)
        case Interrupted():
            # A deploy must not cost an attempt. The run is due at once for another worker.
            transition = _return_run(claim, OutcomeKind.INTERRUPTED, now, now, outcome.reason)
        case Crashed():
            transition = _settle_crash(claim, outcome, now=now, crashes_max=crashes_max)
        case Skipped():
            transition = _return_run(claim, OutcomeKind.SKIPPED, now, None, outcome.reason)
            transition = transition._replace(to_status=RunStatus.SKIPPED)
        case Canceled():
            transition = Transition(
                claim, RunStatus.CANCELED, OutcomeKind.CANCELED, now, reason=outcome.reason
            )
        case _:
            assert_never(outcome)

    if is_cancel_requested and not transition.is_final:
        transition = transition._replace(
            to_status=RunStatus.CANCELED, due_at=None, attempts_max=None
        )
    elif (
        transition.due_at is not None
        and transition.outcome is not OutcomeKind.SUSPENDED  # it has started in time
        and _is_past(claim.expires_at, transition.due_at)
    ):
        transition = _expire(transition)
    return transition._replace(started_at=started_at)


def cancel_suspension(transition: Transition) -> Transition:
    """The transition of a run that suspends itself after its cancellation was requested."""
    return transition._replace(
        to_status=RunStatus.CANCELED, due_at=None, wait=None, calls=(), waits_for_runs=False
    )


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


def shorten_transition(transition: Transition, cause: str) -> Transition:
    """Leave out what a database may reject: the result, the traceback, the end of the reason.

    It stays the outcome that it is: a run that succeeded is completed, without its result, and one
    that failed keeps its retry. ``cause`` says why, without the rejected value.
    """
    otherwise = transition.if_rolled_back
    note = f"{RESULT_LEFT_OUT if transition.result is not None else TEXT_LEFT_OUT} {cause}"
    reason = transition.reason.encode("ascii", "backslashreplace").decode().replace("\x00", "\\x00")
    room = SHORT_MAX - len(note) - len(" ...\n")
    if len(reason) > room:
        reason = f"{reason[:room]} ..."
    return transition._replace(
        result=None,
        traceback="",
        reason=f"{reason}\n{note}".lstrip(),
        if_rolled_back=None if otherwise is None else shorten_transition(otherwise, cause),
    )


def settle_poisoned(claim: Claim, *, now: datetime) -> Transition:
    """The transition of a run that has crashed too often."""
    transition = _return_run(
        claim, OutcomeKind.CRASHED, now, None, _describe_crashes(claim.crashes)
    )
    return transition._replace(to_status=RunStatus.FAILED_PERMANENT)


def skip_if_expired(claim: Claim, *, now: datetime) -> Skipped | None:
    """Return a skip if the run has expired; None if it may still start."""
    return Skipped(EXPIRED) if _is_past(claim.expires_at, now) else None


def postpone_delay(postponements: int) -> timedelta:
    """How long ``when`` postpones a run that it has postponed ``postponements`` times before.

    >>> [postpone_delay(times).seconds for times in range(6)]
    [30, 60, 120, 240, 480, 600]
    """
    # After ten doublings the maximum is reached.
    return min(POSTPONE_FIRST * (1 << min(postponements, 10)), POSTPONE_MAX)


def _settle_failure(
    claim: Claim, failed: Failed, *, now: datetime, retry: RetryPolicy, random: float
) -> Transition:
    transition = Transition(
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
            return transition
        retry = RETRY_LATER_POLICY
        attempts_max = max(claim.attempts_max, RETRY_LATER_POLICY.attempts_max)
    elif failed.retry is False or claim.is_last_attempt:
        return transition
    delay = retry.delay_after(claim.attempt, random) if failed.delay is None else failed.delay
    return transition._replace(
        to_status=RunStatus.FAILED, due_at=_after(now, delay), attempts_max=attempts_max
    )


def _settle_suspension(claim: Claim, suspended: Suspended, *, now: datetime) -> Transition:
    # Attempts and crashes count those without progress: both start again.
    due_at = max(suspended.until, now)
    transition = _return_run(claim, OutcomeKind.SUSPENDED, now, due_at, "")
    return transition._replace(
        uncounted_attempts=claim.attempt,
        crash=-claim.crashes,
        reason=suspended.reason,
        steps=suspended.steps,
        wait=suspended.wait,
        calls=suspended.calls,
        waits_for_runs=suspended.waits_for_runs,
    )


def _settle_crash(claim: Claim, crashed: Crashed, *, now: datetime, crashes_max: int) -> Transition:
    transition = _return_run(claim, OutcomeKind.CRASHED, now, now, crashed.reason)
    transition = transition._replace(crash=int(crashed.has_started))
    crashes = claim.crashes + transition.crash
    if not crashed.has_started or crashes < crashes_max:
        return transition
    return transition._replace(
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
        claim, RunStatus.PENDING, outcome, now, due_at=due_at, uncounted_attempts=1, reason=reason
    )


def _expire(transition: Transition) -> Transition:
    # The next attempt would come too late. If an attempt failed, the run has failed; if it was
    # only postponed, it is skipped, as any other run that did not start in time.
    has_failed = transition.to_status is RunStatus.FAILED
    return transition._replace(
        to_status=RunStatus.FAILED_PERMANENT if has_failed else RunStatus.SKIPPED,
        due_at=None,
        attempts_max=None,
        reason=f"{transition.reason}\n{EXPIRED}".lstrip(),
    )


def _is_past(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and now > moment


def _after(now: datetime, delay: timedelta) -> datetime:
    return later(now, max(delay, _ZERO))  # a negative delay is due at once
