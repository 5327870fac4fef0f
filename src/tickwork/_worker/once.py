"""One pass: what is due is fired, claimed, executed here, and recorded."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from threading import Event
from typing import Final, NamedTuple, Protocol

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.lease import LEASE_DEFAULT, has_expired
from tickwork._domain.outcome import Interrupted, Outcome, OutcomeKind
from tickwork._domain.run import Claim, Run
from tickwork._domain.tick import TickPlan
from tickwork._domain.transitions import Transition
from tickwork._domain.transitions import reap as decide_reap
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._worker.attempts import Attempts
from tickwork._worker.completing import look_after
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork._worker.keeping import LINES_MAX, LogKeeper
from tickwork._worker.known import KnownJobs
from tickwork._worker.reporting import Reporter
from tickwork.errors import OutcomeUnknown, StoreError
from tickwork.stores.contract import Ahead, Expired, Store, Wanted

STAGE_MAX: Final = 5_000
REAP_MAX: Final = 500
SWEEP_MAX: Final = 500
TURNS_MAX: Final = 500
FLUSH_EVERY: Final = 0.05
"""Seconds after which finished attempts of a pass are written, though others are left."""

REPEATS_MAX: Final = 3
"""How often a record whose answer was lost is repeated before the caller is told."""

InlineAttempt = Callable[[Definition, RunContext, timedelta | None], Outcome]
"""Makes one attempt, in this thread, within this time."""

_ATTEMPTS: Final = frozenset(
    {OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.SNOOZED, OutcomeKind.CANCELED}
)


class NextFiring(Protocol):
    """When the next schedule falls due."""

    def __call__(self, *, after: datetime | None = None) -> datetime | None:
        """The next that can be fired; strictly after an instant, if one is given."""
        ...


class Passed(NamedTuple):
    """What one pass did. One that is idle moved nothing at all: the next would not either."""

    steps: list[Transition]
    is_idle: bool


class Upcoming(NamedTuple):
    """Whether something seems to be due now, and when the next thing will be after now.

    ``ahead`` is what the store showed: a pass that follows at once need not look again.
    """

    is_due: bool
    next_at: datetime | None
    ahead: Ahead


class OnePass:
    """``run()``: one tick and one claim, executed inline.

    ``keep_alive`` is called when claims were made: from then on somebody has to beat for
    them, should a handler take long.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tick: Callable[[], TickPlan],
        next_firing_at: NextFiring,
        known: KnownJobs,
        attempts: Attempts,
        engine: InlineAttempt,
        reporter: Reporter,
        keeper: LogKeeper,
        held: HeldRuns,
        heartbeat: Heartbeat,
        keep_alive: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._tick = tick
        self._next_firing_at = next_firing_at
        self._known = known
        self._attempts = attempts
        self._engine = engine
        self._reporter = reporter
        self._keeper = keeper
        self._held = held
        self._heartbeat = heartbeat
        self._keep_alive = keep_alive
        self._worker = WorkerId(new_id(clock.now()))
        self._passes = count(1)

    def run(self, batch: int, *, stop: Event | None = None, ahead: Ahead | None = None) -> Passed:
        """Fire, claim at most ``batch``, and make an attempt at each.

        Once ``stop`` is set, what has not begun is given back. ``ahead`` is for whoever has
        just looked: see :meth:`look_ahead`.
        """
        moved, is_ready = self._upkeep(ahead or self._store.look_ahead())
        self._known.look(is_ready=is_ready)
        plan = self._tick()
        self._reporter.fired(plan, at=self._clock.now())
        claims: list[Claim] = []
        if is_ready or plan.runs:
            wanted = Wanted(batch, jobs=self._known.names(), is_starting=batch == 1)
            claims = self._claim(wanted)
        steps = self._work(claims, stop=stop) if claims else []
        return Passed(steps, is_idle=not (moved or plan.moves or claims))

    def due(self, limit: int) -> list[Run]:
        """What could start now, once what fell due was fired."""
        _, is_ready = self._upkeep(self._store.look_ahead())
        self._known.look(is_ready=is_ready)
        now, plan = self._clock.now(), self._tick()
        self._reporter.fired(plan, at=now)
        return self._store.due_runs(Wanted(limit, jobs=self._known.names()), now=now)

    def run_one(self, run_id: RunId, *, job: str) -> bool:
        """Claim exactly this run, and make an attempt at it; False when it cannot start."""
        tag, asked_at = str(next(self._passes)), self._clock.monotonic()
        try:
            claim = self._store.claim_run(
                run_id,
                worker=self._worker,
                tag=tag,
                now=self._clock.now(),
                lease=self._known.lease_of(job),
            )
        except OutcomeUnknown:
            claim = next(iter(self._store.find_claims(worker=self._worker, tag=tag)), None)
        if claim is None:
            return False
        self._held.add([claim], extended_at=asked_at)
        self._keep_alive()
        self._work([claim], stop=None)
        return True

    def look_ahead(self, *, is_stuck: bool = False) -> Upcoming:
        """What is due, and what will be: the moment to which one may sleep, or travel.

        ``is_stuck`` says that a pass was idle: what seems to be due now is not for us, and
        must not hide what comes later.
        """
        now, ahead = self._clock.now(), self._store.look_ahead()
        firing_at = self._next_firing_at()
        if is_stuck and firing_at is not None and firing_at <= now:
            firing_at = self._next_firing_at(after=now)
        moments = [ahead.due_at, ahead.lease_until, ahead.turn_at, firing_at]
        if ahead.is_ready:
            moments += [pause.until for pause in self._store.list_pauses()]
        is_due, next_at = ahead.is_ready, None
        for moment in moments:
            if moment is None:
                continue
            if moment <= now:
                is_due = True
            elif next_at is None or moment < next_at:
                next_at = moment
        return Upcoming(is_due, next_at, ahead)

    # ------------------------------------------------------------ before the work

    def _upkeep(self, ahead: Ahead) -> tuple[int, bool]:
        """Stage, reap and sweep where there is something to; how many, and if any is ready."""
        now, moved = self._clock.now(), 0
        if ahead.due_at is not None and ahead.due_at <= now:
            moved += self._store.stage(now=now, limit=STAGE_MAX)
        if ahead.lease_until is not None and has_expired(ahead.lease_until, now=now):
            taken_back = self._store.reap(now=now, limit=REAP_MAX, verdict=self._verdict)
            self._reporter.recorded(taken_back, lost=(), at=now)
            moved += len(taken_back)
        if ahead.turn_at is not None and ahead.turn_at <= now:
            moved += self._store.unblock_rated(now=now, limit=TURNS_MAX)
        if ahead.is_blocked:
            moved += self._store.sweep(now=now, limit=SWEEP_MAX)
        return moved, ahead.is_ready or moved > 0

    def _verdict(self, expired: Expired) -> Transition:
        return decide_reap(
            expired.claim,
            has_started=expired.has_started,
            now=self._clock.now(),
            crashes_max=self._known.crashes_max(expired.claim.job),
            is_cancel_requested=expired.is_cancel_requested,
        )

    def _claim(self, wanted: Wanted) -> list[Claim]:
        tag = str(next(self._passes))
        asked_at = self._clock.monotonic()
        try:
            claims = self._store.claim(
                wanted,
                worker=self._worker,
                tag=tag,
                now=self._clock.now(),
                lease=LEASE_DEFAULT.length,
                lease_by_job=self._known.lease_by_job(),
            )
        except OutcomeUnknown:
            # If it landed, they are ours, and nobody else can take them for a while.
            claims = self._store.find_claims(worker=self._worker, tag=tag)
        if claims:
            self._held.add(claims, extended_at=asked_at)
            self._keep_alive()
        return claims

    # ------------------------------------------------------------ the work

    def _work(self, claims: Sequence[Claim], *, stop: Event | None) -> list[Transition]:
        made: list[Transition] = []
        unwritten: list[Transition] = []
        left = list(reversed(claims))
        written_at = self._clock.monotonic()
        try:
            while left:
                if stop is not None and stop.is_set():
                    unwritten.append(self._given_back(left[-1]))
                elif self._may_start(left[-1]):
                    unwritten.append(self._made(left[-1]))
                left.pop()
                if self._clock.monotonic() - written_at >= FLUSH_EVERY:
                    made += self._write(unwritten)
                    unwritten = []
                    written_at = self._clock.monotonic()
            return made + self._write(unwritten)
        except BaseException:
            # Somebody interrupts us, or the database went. What was done must not be done
            # again, and what was not is given back, so that nobody waits for our leases.
            with suppress(StoreError):
                self._write([*unwritten, *map(self._given_back, left)])
            raise
        finally:
            self._held.drop_all(claims)

    def _made(self, claim: Claim) -> Transition:
        begun = self._attempts.begin(claim)
        if isinstance(begun, Transition):
            return begun
        outcome = self._engine(begun.definition, begun.ctx, begun.definition.spec.timeout)
        return self._attempts.end(begun, outcome)

    def _may_start(self, claim: Claim) -> bool:
        """Whether it is still ours; its start is noted."""
        held = self._held.get(claim.run_id)
        assert held is not None, claim
        if self._heartbeat.is_due(held):
            found = self._store.get_run(claim.run_id) if self._heartbeat.is_late(held) else None
            self._heartbeat.is_lost(claim.run_id, found=found)
        if not held.is_lost:
            held.started_at = self._clock.now()
            if claim.crashes or claim.token > claim.attempt:
                # An earlier claim of it came to nothing, and it may have been the reason.
                self._heartbeat.write_start(claim)
        if held.is_lost:
            self._reporter.lost(claim, at=self._clock.now())
        return not held.is_lost

    def _given_back(self, claim: Claim) -> Transition:
        held = self._held.get(claim.run_id)
        step = self._attempts.give_back(claim, Interrupted("The pass that had claimed it ended."))
        return step._replace(started_at=None if held is None else held.started_at)

    def _write(self, steps: list[Transition]) -> list[Transition]:
        if not steps:
            return steps
        looked = look_after(self._store, steps)
        lost = self._recorded(looked.unwritten)
        steps = [*looked.landed, *looked.unwritten]
        lines = self._keeper.take()
        if lines:
            kept = {run_id: logged for run_id, logged in lines.items() if run_id not in lost}
            self._store.append_logs(kept, lines_max=LINES_MAX)
        self._reporter.recorded(steps, lost=lost, at=self._clock.now())
        return steps

    def _recorded(self, steps: Sequence[Transition]) -> list[RunId]:
        try:
            return self._store.record(steps)
        except OutcomeUnknown:
            # What has landed is not done again.
            for _ in range(REPEATS_MAX - 1):
                with suppress(OutcomeUnknown):
                    return self._store.record(steps, is_repeat=True)
            return self._store.record(steps, is_repeat=True)


def attempts_in(steps: Iterable[Transition]) -> int:
    """How many of these were attempts: what a filter held back was none."""
    return sum(map(is_attempt, steps))


def is_attempt(step: Transition) -> bool:
    """Whether a handler was called, or was to be."""
    return step.outcome in _ATTEMPTS


def has_failed(step: Transition) -> bool:
    """Whether this attempt failed."""
    return step.outcome is OutcomeKind.FAILED
