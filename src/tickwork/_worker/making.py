"""Attempts as engines make them: begun, driven, settled, handed over."""

import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork._domain.outcome import Canceled, Interrupted, Outcome
from tickwork._domain.run import Claim
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import Clock
from tickwork._worker.attempts import Attempts
from tickwork._worker.held import HeldRun, HeldRuns
from tickwork._worker.once import InlineAttempt
from tickwork._worker.writer import Writer

AsyncAttempt = Callable[[Definition, RunContext, timedelta | None], Awaitable[Outcome | None]]
"""Makes one attempt on a loop, within this time."""

SHARE: Final = 0.05
"""How much one attempt counts in the mean: twenty of them make it."""


class Mean:
    """How long attempts take, lately. Written by many threads: a lost update is no harm."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Take one attempt in."""
        before = self.seconds
        self.seconds = seconds if not before else before + SHARE * (seconds - before)


class Maker:
    """Makes attempts in the thread that calls it."""

    def __init__(
        self,
        *,
        clock: Clock,
        attempts: Attempts,
        held: HeldRuns,
        writer: Writer,
        engine: Callable[[], InlineAttempt],
    ) -> None:
        self._clock = clock
        self._attempts = attempts
        self._held = held
        self._writer = writer
        self._engine = engine
        self._local = threading.local()
        self.mean = Mean()

    def make(self, claim: Claim) -> None:
        """Make one attempt; hand over its step."""
        run = self._held.get(claim.run_id)
        if run is None or run.is_lost:
            return  # it was taken from us before it began
        begun_at = time.perf_counter()
        step = self._made(claim, run)
        self.mean.add(time.perf_counter() - begun_at)
        self._writer.done.append(step)

    def give_back(self, claim: Claim, outcome: Interrupted) -> None:
        """Hand over a claim without an attempt, or with one that is given up."""
        run = self._held.get(claim.run_id)
        if run is not None and not run.is_lost:
            self._writer.done.append(self._attempts.give_back(claim, outcome))

    def _made(self, claim: Claim, run: HeldRun) -> Transition:
        begun = self._attempts.begin(claim)
        if isinstance(begun, Transition):
            return begun
        run.started_at = begun.started_at
        timeout = begun.definition.spec.timeout
        if timeout is not None:
            run.deadline = self._clock.monotonic() + timeout.total_seconds()
        outcome = self._own_engine()(begun.definition, begun.ctx, timeout)
        return self._attempts.end(begun, outcome)

    def _own_engine(self) -> InlineAttempt:
        engine: InlineAttempt | None = getattr(self._local, "engine", None)
        if engine is None:
            engine = self._local.engine = self._engine()
        return engine


class AsyncMaker:
    """Makes attempts on a loop. ``attempt`` answers None when it was ended from outside."""

    def __init__(
        self,
        *,
        attempts: Attempts,
        held: HeldRuns,
        writer: Writer,
        attempt: AsyncAttempt,
        stop: Callable[[RunId], None],
    ) -> None:
        self._attempts = attempts
        self._held = held
        self._writer = writer
        self._attempt = attempt
        self._stop = stop
        self.mean = Mean()

    async def make(self, claim: Claim) -> None:
        """Make one attempt; hand over its step."""
        run = self._held.get(claim.run_id)
        if run is None or run.is_lost:
            return  # it was taken from us before it began
        begun_at = time.perf_counter()
        begun = self._attempts.begin(claim)
        if isinstance(begun, Transition):
            self._writer.done.append(begun)
            return
        run.started_at = begun.started_at
        run.stop = partial(self._stop, claim.run_id)
        outcome = await self._attempt(begun.definition, begun.ctx, begun.definition.spec.timeout)
        self.mean.add(time.perf_counter() - begun_at)
        if outcome is None:
            outcome = _ended_from_outside(run)
        # Should it have been lost meanwhile, its token keeps this from landing.
        self._writer.done.append(self._attempts.end(begun, outcome))


def _ended_from_outside(run: HeldRun) -> Outcome:
    if run.is_canceled:
        return Canceled("Somebody asked that it be stopped.")
    return Interrupted("The worker was stopped while it ran.")
