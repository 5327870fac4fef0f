"""Claims to transitions: what a worker does with a run, and what it writes about it."""

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from tickwork._define.context import Desk, RunContext
from tickwork._define.definition import Definition
from tickwork._domain.outcome import Canceled, Failed, Outcome, Succeeded
from tickwork._domain.retry import NoRetry
from tickwork._domain.run import NO_ARGS, Claim
from tickwork._domain.transitions import Transition, expiry, settle
from tickwork._kernel.clock import Clock
from tickwork._kernel.codec import decode
from tickwork.errors import TickworkError
from tickwork.events import RunStarted
from tickwork.events.bus import EventBus

Engine = Callable[[Definition, RunContext, timedelta | None], Outcome]
"""Makes one attempt, in this thread, within this time."""

_UNKNOWN: Final = "The job is not known to this process any more."


class Attempts:
    """Makes attempts, one at a time, and decides what their outcomes mean."""

    def __init__(
        self,
        *,
        clock: Clock,
        desk: Desk,
        bus: EventBus,
        find: Callable[[str], Definition | None],
        engine: Engine,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._desk = desk
        self._bus = bus
        self._find = find
        self._engine = engine
        self._chance = chance

    def make(self, claim: Claim) -> Transition:
        """Make one attempt; its transition is not written yet."""
        definition = self._find(claim.job)
        if definition is None:
            return self._settled(claim, None, Failed(_UNKNOWN, retry=False))
        late = expiry(claim, now=self._clock.now())
        if late is not None:
            return self._settled(claim, definition, late)
        try:
            args = _args(claim)
        except (TickworkError, TypeError) as fault:
            return self._settled(claim, definition, Failed(str(fault), retry=False))
        return self._made(claim, definition, args)

    def _made(self, claim: Claim, definition: Definition, args: Mapping[str, Any]) -> Transition:
        timeout = definition.spec.timeout
        started_at = self._clock.now()
        deadline = None if timeout is None else started_at + timeout
        ctx = RunContext(claim, desk=self._desk, args=args, deadline=deadline)
        if self._bus.is_listened_to:
            self._bus.emit(
                RunStarted(
                    at=started_at,
                    run_id=claim.run_id,
                    job=claim.job,
                    tenant=claim.tenant,
                    attempt=claim.attempt,
                )
            )
        outcome = self._engine(definition, ctx, timeout)
        if isinstance(outcome, Succeeded) and ctx.has_seen_cancel:
            outcome = Canceled("Its handler saw the request, and stopped.")
        step = self._settled(claim, definition, outcome)
        if step.refund and not isinstance(outcome, Canceled):
            return step
        return step._replace(started_at=started_at)

    def _settled(self, claim: Claim, definition: Definition | None, outcome: Outcome) -> Transition:
        spec = None if definition is None else definition.spec
        retry = NoRetry() if spec is None else spec.retry
        if not isinstance(retry, NoRetry):
            # Whoever dispatched it may not have known the policy; the job itself does.
            claim = claim._replace(attempts_max=retry.attempts_max)
        is_canceled = isinstance(outcome, Failed) and self._desk.is_canceled(claim.run_id)
        return settle(
            claim,
            outcome,
            now=self._clock.now(),
            retry=retry,
            random=self._chance(),
            is_cancel_requested=is_canceled,
        )


def _args(claim: Claim) -> dict[str, Any]:
    if claim.args == NO_ARGS:
        return {}
    args = decode(claim.args)
    if not isinstance(args, dict):
        raise TypeError(f"The stored arguments are {type(args).__name__}, not an object.")
    return args
