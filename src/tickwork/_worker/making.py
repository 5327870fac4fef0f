"""Attempts as engines make them: begun, driven, settled, handed over."""

import logging
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._domain.outcome import (
    Canceled,
    Failed,
    Interrupted,
    Outcome,
    outcome_of_exception,
)
from tickwork._domain.run import Claim
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import Clock
from tickwork._worker.attempts import Attempts, Begun
from tickwork._worker.held import HeldRun, HeldRuns
from tickwork._worker.once import InlineAttempt
from tickwork._worker.writer import Writer
from tickwork.errors import AttemptTimeout

EndedBy = Callable[[BaseException], Outcome]
"""What it means that a coroutine was cancelled."""

AsyncAttempt = Callable[[Definition, RunContext, timedelta | None, EndedBy], Awaitable[Outcome]]
"""Makes one attempt on a loop, within this time."""

ProcessAttempt = Callable[
    [
        Claim,
        Definition,
        RunContext,
        timedelta | None,
        EndedBy,
        Callable[[Callable[[], None]], None],
    ],
    Outcome,
]
"""Makes one attempt in another process. The last argument is told how it can be ended."""

SHARE: Final = 0.05
"""How much one attempt counts in the mean: twenty of them make it."""

QUICK_MEAN: Final = 0.0002
QUICK_LONGEST: Final = 0.05
ALIKE: Final = 4
ALIKE_EVERY: Final = 0.02
FADING: Final = 0.999
"""An attempt of ten seconds is forgotten after some five thousand quick ones."""

STOPPED: Final = "The worker was stopped while it ran."

_log: Final = logging.getLogger("tickwork.worker")


class Mean:
    """How long attempts take, lately. Written by many threads: a lost update is no harm."""

    __slots__ = ("longest", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        """Take one attempt in."""
        before = self.seconds
        if seconds > self.longest:
            self.longest = seconds
        else:
            self.longest *= FADING
        self.seconds = seconds if not before else before + SHARE * (seconds - before)

    @property
    def is_quick(self) -> bool:
        """Whether attempts take so little, all of them, that more than one at a time is no gain."""
        return 0 < self.seconds < QUICK_MEAN and self.longest < QUICK_LONGEST


class Means:
    """How long attempts take: all of them, and those of each job."""

    def __init__(self) -> None:
        self.all = Mean()
        self._by_job: dict[str, Mean] = {}
        self._alike: frozenset[str] = frozenset()
        self._looked_at = -ALIKE_EVERY

    def add(self, job: str, seconds: float) -> None:
        """Take one attempt in."""
        self.all.add(seconds)
        mean = self._by_job.get(job)
        if mean is None:
            mean = self._by_job[job] = Mean()
        mean.add(seconds)

    def alike(self, now: float) -> frozenset[str]:
        """The jobs that take no longer than most attempts do, lately.

        Whoever guesses from the mean how many runs can be made in a while must not be wrong
        by the first job that takes its time, or one that nobody knows yet.
        """
        if now - self._looked_at >= ALIKE_EVERY:
            self._looked_at = now
            most = ALIKE * self.all.seconds
            self._alike = frozenset(
                job for job, mean in list(self._by_job.items()) if mean.seconds <= most
            )
        return self._alike


class Hands:
    """What every way to make an attempt shares: whether it may begin, and where its step goes."""

    def __init__(self, *, clock: Clock, attempts: Attempts, held: HeldRuns, writer: Writer) -> None:
        self._clock = clock
        self._attempts = attempts
        self._held = held
        self._writer = writer
        self._is_leaving = False

    def find(self, claim: Claim) -> HeldRun | None:
        """What is held under this claim, if an attempt may be made of it."""
        run = self._held.of(claim)
        if run is None or run.is_settled:
            return None  # it was given back before it began
        if not run.is_told:
            return run
        if run.is_lost:
            self._held.drop_all([claim])  # it was taken from us before it began
            return None
        if run.is_canceled:
            outcome = Canceled("Somebody asked that it be stopped before it began.")
            self._writer.put(run, self._attempts.give_back(claim, outcome))
            return None
        return run

    def begin(self, claim: Claim, run: HeldRun) -> Begun | None:
        """Begin its attempt; None when there is nothing to make, and that was handed over."""
        begun = self._attempts.begin(claim)
        if isinstance(begun, Transition):
            self._writer.put(run, begun)
            return None
        timeout = begun.definition.spec.timeout
        if timeout is not None:
            run.deadline = self._clock.monotonic() + timeout.total_seconds()
        run.started_at = begun.started_at
        return begun

    def end(self, begun: Begun, run: HeldRun, outcome: Outcome) -> None:
        """Hand over what came of it. Should it have been lost, its token keeps it out."""
        self._writer.put(run, self._attempts.end(begun, outcome))

    def stumbled(self, claim: Claim, run: HeldRun, fault: BaseException) -> None:
        """Hand over an attempt that we ourselves could not make."""
        _log.error("%s: run %s could not be made.", claim.job, claim.run_id, exc_info=fault)
        self.give_up(claim, run, _failed(fault))

    def give_up(self, claim: Claim, run: HeldRun, outcome: Failed) -> None:
        """Say that it failed, though its attempt may go on."""
        step = self._attempts.give_up(claim, outcome)
        self._writer.put(run, step._replace(started_at=run.started_at))

    def give_back(self, claim: Claim, outcome: Interrupted) -> None:
        """Hand over a claim without an attempt, or with one that nobody waits for any more."""
        run = self._held.of(claim)
        if run is None:
            return
        if run.is_lost:
            self._held.drop_all([claim])
            return
        step = self._attempts.give_back(claim, outcome)
        # In this order: what its attempt says, once it is told, counts no more.
        self._writer.put(run, step._replace(started_at=run.started_at))
        run.tell()

    def leave(self) -> None:
        """From here on, what is ended from outside is interrupted, and costs nothing."""
        self._is_leaving = True

    def ended_by(self, run: HeldRun, raised: BaseException) -> Outcome:
        """What it means that an attempt was ended from outside."""
        if run.is_canceled:
            return Canceled("Somebody asked that it be stopped.")
        if self._is_leaving or run.is_lost:
            return Interrupted(STOPPED)
        return _failed(raised)  # nobody but the handler itself can have done it

    def watch(self, grace: timedelta) -> bool:
        """Tell what took too long; whether one has ignored that for longer than ``grace``."""
        now, is_stuck = self._clock.monotonic(), False
        for run in self._held.snapshot():
            deadline = run.deadline
            if deadline is None or now < deadline or run.is_settled:
                continue
            run.is_told = True
            if now >= deadline + grace.total_seconds():
                is_stuck = True
                self._given_up_late(run)
        return is_stuck

    def _given_up_late(self, run: HeldRun) -> None:
        _log.error(
            "%s: run %s ignores its timeout, and nothing can end it but the end of this process.",
            run.claim.job,
            run.claim.run_id,
        )
        spec_timeout = self._attempts.timeout_of(run.claim)
        fault = AttemptTimeout(run.claim.run_id, timeout=spec_timeout)
        self.give_up(run.claim, run, _failed(fault))


class Maker:
    """Makes attempts in the thread that calls it."""

    def __init__(self, hands: Hands, *, engine: Callable[[], InlineAttempt]) -> None:
        self._hands = hands
        self._engine = engine
        self._local = threading.local()
        self.means = Means()

    def make(self, claim: Claim) -> None:
        """Make one attempt; hand over its step."""
        hands = self._hands
        run = hands.find(claim)
        if run is None:
            return
        begun_at = time.perf_counter()
        try:
            begun = hands.begin(claim, run)
            if begun is not None:
                timeout = begun.definition.spec.timeout
                hands.end(begun, run, self._own_engine()(begun.definition, begun.ctx, timeout))
        except BaseException as fault:  # noqa: BLE001  # a claim must not be left behind
            hands.stumbled(claim, run, fault)
        self.means.add(claim.job, time.perf_counter() - begun_at)

    def _own_engine(self) -> InlineAttempt:
        engine: InlineAttempt | None = getattr(self._local, "engine", None)
        if engine is None:
            engine = self._local.engine = self._engine()
        return engine


class AsyncMaker:
    """Makes attempts on a loop; ``stop`` ends one that is being made."""

    def __init__(
        self, hands: Hands, *, attempt: AsyncAttempt, stop: Callable[[Claim], None]
    ) -> None:
        self._hands = hands
        self._attempt = attempt
        self._stop = stop
        self.means = Means()

    async def make(self, claim: Claim) -> None:
        """Make one attempt; hand over its step."""
        hands = self._hands
        run = hands.find(claim)
        if run is None:
            return
        begun_at = time.perf_counter()
        try:
            begun = hands.begin(claim, run)
            if begun is not None:
                _may_stop(run, partial(self._stop, claim))
                timeout = begun.definition.spec.timeout
                ended_by = partial(hands.ended_by, run)
                outcome = await self._attempt(begun.definition, begun.ctx, timeout, ended_by)
                hands.end(begun, run, outcome)
        except BaseException as fault:  # noqa: BLE001  # as above
            hands.stumbled(claim, run, fault)
        finally:
            run.stop = None
        self.means.add(claim.job, time.perf_counter() - begun_at)


class ProcessMaker:
    """Has attempts made by a child process, while the thread that calls it waits."""

    def __init__(self, hands: Hands, *, attempt: ProcessAttempt) -> None:
        self._hands = hands
        self._attempt = attempt
        self.means = Means()

    def make(self, claim: Claim) -> None:
        """Have one attempt made; hand over its step."""
        hands = self._hands
        run = hands.find(claim)
        if run is None:
            return
        begun_at = time.perf_counter()
        try:
            begun = hands.begin(claim, run)
            if begun is not None:
                run.deadline = None  # nothing can ignore its timeout there
                definition, ctx = begun.definition, begun.ctx
                timeout, ended_by = definition.spec.timeout, partial(hands.ended_by, run)
                outcome = self._attempt(
                    claim, definition, ctx, timeout, ended_by, partial(_may_stop, run)
                )
                hands.end(begun, run, outcome)
        except BaseException as fault:  # noqa: BLE001  # as above
            hands.stumbled(claim, run, fault)
        finally:
            run.stop = None
        self.means.add(claim.job, time.perf_counter() - begun_at)


def _may_stop(run: HeldRun, stop: Callable[[], None]) -> None:
    """From here on its attempt can be ended from outside."""
    run.stop = stop
    if run.is_told:
        stop()  # somebody told it just before there was a way to


def _failed(raised: BaseException) -> Failed:
    outcome = outcome_of_exception(raised)
    assert isinstance(outcome, Failed), outcome
    return outcome
