"""Claims to transitions: what a worker does with a run, and what it writes about it."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from tickwork._define.context import Desk, RunContext
from tickwork._define.definition import Definition
from tickwork._domain.outcome import (
    SUCCEEDED,
    Canceled,
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Postponed,
    Skipped,
    Succeeded,
)
from tickwork._domain.retry import NO_RETRY, NoRetry
from tickwork._domain.run import CRASHES_MAX, NO_ARGS, Claim
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition, expiry, settle, settle_poisoned, succeeded
from tickwork._kernel.clock import Clock
from tickwork._kernel.codec import decode
from tickwork.engines.invoke import ROLLED_BACK
from tickwork.errors import TickworkError
from tickwork.events import RunStarted
from tickwork.events.bus import EventBus

_ROLLED_BACK: Final = "The transaction in which it was completed was rolled back."
_STOPPED: Final = "Its handler was told to stop, and did."
_UNKNOWN: Final = "The job is not known to this process any more."


class Begun(NamedTuple):
    """An attempt that may be made now."""

    claim: Claim
    definition: Definition
    ctx: RunContext
    started_at: datetime


class Attempts:
    """Begins attempts, and decides what their outcomes mean. Engines make them in between."""

    def __init__(
        self,
        *,
        clock: Clock,
        desk: Desk,
        bus: EventBus,
        find: Callable[[str], Definition | None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._desk = desk
        self._bus = bus
        self._find = find
        self._chance = chance

    def begin(self, claim: Claim) -> Begun | Transition:
        """What is needed to make an attempt; or its step at once, when none can be made."""
        definition = self._find(claim.job)
        if definition is None:
            return self._settled(claim, None, Failed(_UNKNOWN, retry=False))
        now = self._clock.now()
        if claim.crashes >= definition.spec.crashes_max:
            return settle_poisoned(claim, now=now)  # whoever took it back did not know its job
        if claim.expires_at is not None:
            late = expiry(claim, now=now)
            if late is not None:
                return self._settled(claim, definition, late)
        try:
            args = _args(claim)
        except (TickworkError, TypeError) as fault:
            return self._settled(claim, definition, Failed(str(fault), retry=False))
        timeout = definition.spec.timeout
        deadline = None if timeout is None else now + timeout
        if self._bus.has_subscribers:
            self._bus.emit(_started(claim, at=now))
        ctx = RunContext(claim, desk=self._desk, args=args, deadline=deadline)
        return Begun(claim, definition, ctx, now)

    def end(self, begun: Begun, outcome: Outcome) -> Transition:
        """The step that an outcome means."""
        ctx = begun.ctx
        if ctx.is_completed:
            return self._completed(begun, outcome)
        if outcome is SUCCEEDED and not ctx.has_seen_cancel:
            # Most of them, and nothing to weigh.
            return succeeded(begun.claim, now=self._clock.now(), started_at=begun.started_at)
        if ctx.has_seen_cancel and isinstance(outcome, Succeeded):
            # It was told to stop. That may be because its lease could not be extended, or its
            # worker leaves: then it has not done its work, and goes back.
            is_asked = self._desk.is_canceled(begun.claim)
            outcome = Canceled(_STOPPED) if is_asked else Interrupted(_STOPPED)
        return self._step(begun, outcome)

    def _completed(self, begun: Begun, outcome: Outcome) -> Transition:
        # The handler's own transaction has the last word, and whoever writes steps asks for it.
        undone = Failed(ROLLED_BACK) if isinstance(outcome, Succeeded) else outcome
        return self._step(begun, SUCCEEDED)._replace(undone=self._step(begun, undone))

    def _step(self, begun: Begun, outcome: Outcome) -> Transition:
        # Where a filter held it back, no attempt was made.
        started_at = None if isinstance(outcome, Skipped | Postponed) else begun.started_at
        return self._settled(begun.claim, begun.definition, outcome, started_at=started_at)

    def give_back(self, claim: Claim, outcome: Interrupted | Canceled) -> Transition:
        """The step of a claim that goes back without an attempt."""
        return self._settled(claim, None, outcome)

    def timeout_of(self, claim: Claim) -> timedelta:
        """How long an attempt at it may take."""
        definition = self._find(claim.job)
        timeout = None if definition is None else definition.spec.timeout
        return timedelta(0) if timeout is None else timeout

    def give_up(self, claim: Claim, outcome: Failed | Crashed) -> Transition:
        """The step of an attempt whose end nobody will see."""
        return self._settled(claim, self._find(claim.job), outcome)

    def _settled(
        self,
        claim: Claim,
        definition: Definition | None,
        outcome: Outcome,
        *,
        started_at: datetime | None = None,
    ) -> Transition:
        retry = NO_RETRY if definition is None else definition.spec.retry
        crashes_max = CRASHES_MAX if definition is None else definition.spec.crashes_max
        stored_max = claim.attempts_max
        if retry is not NO_RETRY and not isinstance(retry, NoRetry):
            # Whoever dispatched it may not have known the policy; the job itself does.
            claim = claim._replace(attempts_max=retry.attempts_max)
        is_canceled = isinstance(outcome, Failed | Crashed) and self._desk.is_canceled(claim)
        step = settle(
            claim,
            outcome,
            now=self._clock.now(),
            retry=retry,
            random=self._chance(),
            started_at=started_at,
            crashes_max=crashes_max,
            is_cancel_requested=is_canceled,
        )
        if step.to_status is RunStatus.FAILED and claim.attempts_max > stored_max:
            # The row must have room for the attempt that follows.
            step = step._replace(attempts_max=claim.attempts_max)
        return step


def _started(claim: Claim, *, at: datetime) -> RunStarted:
    return RunStarted(
        at=at, run_id=claim.run_id, job=claim.job, tenant=claim.tenant, attempt=claim.attempt
    )


def _args(claim: Claim) -> dict[str, Any]:
    if claim.args == NO_ARGS:
        return {}
    args = decode(claim.args)
    if not isinstance(args, dict):
        raise TypeError(f"The stored arguments are {type(args).__name__}, not an object.")
    return args
