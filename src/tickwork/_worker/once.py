"""One pass: what is due is fired, claimed, executed here, and recorded."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Event
from typing import Final

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._domain.identity import WorkerId
from tickwork._domain.lease import LEASE_DEFAULT
from tickwork._domain.outcome import Interrupted, Outcome, OutcomeKind
from tickwork._domain.run import Claim
from tickwork._domain.tick import TickPlan
from tickwork._domain.transitions import Transition
from tickwork._domain.transitions import reap as decide_reap
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._worker.attempts import Attempts
from tickwork._worker.keeping import LINES_MAX, LogKeeper
from tickwork._worker.known import KnownJobs
from tickwork._worker.reporting import Reporter
from tickwork.stores.contract import Expired, Held, Store, Wanted

STAGE_MAX: Final = 5_000
REAP_MAX: Final = 500
SWEEP_MAX: Final = 500
FLUSH_EVERY: Final = 0.05
"""Seconds after which finished attempts of a pass are written, though others are left."""

InlineAttempt = Callable[[Definition, RunContext, timedelta | None], Outcome]
"""Makes one attempt, in this thread, within this time."""

_ATTEMPTS: Final = frozenset(
    {OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.SNOOZED, OutcomeKind.CANCELED}
)


class OnePass:
    """``run()``: one tick and one claim, executed inline."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tick: Callable[[], TickPlan],
        known: KnownJobs,
        attempts: Attempts,
        engine: InlineAttempt,
        reporter: Reporter,
        keeper: LogKeeper,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tick = tick
        self._known = known
        self._attempts = attempts
        self._engine = engine
        self._reporter = reporter
        self._keeper = keeper
        self._worker = WorkerId(new_id(clock.now()))
        self._passes = 0

    def run(self, batch: int, *, stop: Event | None = None) -> list[Transition]:
        """Fire, claim at most ``batch``, and make an attempt at each; return their steps.

        When it is told to stop, the attempt at hand is finished and the rest given back.
        """
        self._upkeep()
        plan = self._tick()
        self._reporter.fired(plan, at=self._clock.now())
        claims = self._claim(Wanted(batch, jobs=self._known.names(), is_starting=batch == 1))
        return self._work(claims, stop=stop)

    def run_claimed(self, wanted: Wanted) -> list[Transition]:
        """Claim and execute, without a tick."""
        return self._work(self._claim(wanted))

    def _upkeep(self) -> None:
        now = self._clock.now()
        self._store.stage(now=now, limit=STAGE_MAX)
        taken_back = self._store.reap(now=now, limit=REAP_MAX, verdict=self._verdict)
        self._reporter.recorded(taken_back, lost=(), at=now)
        self._store.sweep(now=now, limit=SWEEP_MAX)

    def _verdict(self, expired: Expired) -> Transition:
        return decide_reap(
            expired.claim,
            has_started=expired.has_started,
            now=self._clock.now(),
            crashes_max=self._known.crashes_max(expired.claim.job),
            is_cancel_requested=expired.is_cancel_requested,
        )

    def _claim(self, wanted: Wanted) -> list[Claim]:
        self._passes += 1
        return self._store.claim(
            wanted,
            worker=self._worker,
            tag=f"{self._passes}",
            now=self._clock.now(),
            lease=LEASE_DEFAULT.length,
            lease_by_job=self._known.lease_by_job(),
        )

    def _work(self, claims: Sequence[Claim], *, stop: Event | None = None) -> list[Transition]:
        made: list[Transition] = []
        unwritten: list[Transition] = []
        written_at = self._clock.monotonic()
        for claim in claims:
            is_stopped = stop is not None and stop.is_set()
            unwritten.append(self._given_back(claim) if is_stopped else self._made(claim))
            if self._clock.monotonic() - written_at >= FLUSH_EVERY:
                made += self._write(unwritten)
                unwritten = []
                written_at = self._clock.monotonic()
        return made + self._write(unwritten)

    def _given_back(self, claim: Claim) -> Transition:
        return self._attempts.give_back(
            claim, Interrupted("Its worker was told to stop before it began.")
        )

    def _made(self, claim: Claim) -> Transition:
        begun = self._attempts.begin(claim)
        if isinstance(begun, Transition):
            return begun
        if claim.token > 1:
            # It was claimed before, and may be why it was not finished: should this process
            # die of it, that must be known.
            held = [Held(claim.run_id, claim.token, begun.started_at)]
            self._store.extend_leases(held, until=claim.lease_until)
        outcome = self._engine(begun.definition, begun.ctx, begun.definition.spec.timeout)
        return self._attempts.end(begun, outcome)

    def _write(self, steps: list[Transition]) -> list[Transition]:
        lines = self._keeper.take()
        if lines:
            self._store.append_logs(lines, lines_max=LINES_MAX)
        lost = self._store.record(steps)
        self._reporter.recorded(steps, lost=lost, at=self._clock.now())
        return steps


def attempts_in(steps: Sequence[Transition]) -> int:
    """How many of these were attempts: what a filter held back was none."""
    return sum(step.outcome in _ATTEMPTS for step in steps)


def has_failed(step: Transition) -> bool:
    """Whether this attempt failed."""
    return step.outcome is OutcomeKind.FAILED
