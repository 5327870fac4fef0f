"""One pass of a worker, in the calling thread: ``app.run()``, ``collect``, ``execute`` and tests.

It drives the parts of a worker one step at a time: stage, reap, sweep, tick, one claim, the
attempts, and the writes.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Event
from typing import Final, NamedTuple, Protocol

from tickwork._domain.identity import RunId
from tickwork._domain.lease import has_expired
from tickwork._domain.outcome import Interrupted, OutcomeKind
from tickwork._domain.run import Claim, Run
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import Clock
from tickwork._worker.attempt_runner import AttemptRunner
from tickwork._worker.attempt_store import RowAttemptStore
from tickwork._worker.cancel_poller import CancelPoller
from tickwork._worker.claimer import Claimer
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held_runs import HeldRun, HeldRuns
from tickwork._worker.known_jobs import KnownJobs
from tickwork._worker.maintenance import sweep
from tickwork._worker.reaper import Reaper
from tickwork._worker.reporter import Reporter
from tickwork._worker.timer import NextFiring, Timer
from tickwork._worker.writer import Writer
from tickwork.engines.contract import Engine
from tickwork.errors import OutcomeUnknown, StoreError
from tickwork.stores.contract import ClaimRequest, PendingWork, Store

WRITE_EVERY: Final = 0.05
"""Seconds after which outcomes are written even if attempts are left."""

RETRIES_MAX: Final = 3
"""How often a write whose answer was lost is sent again before the caller gets the error."""

WAIT_EVERY: Final = 0.05
CANCELS_EVERY: Final = 1.0
PASS_ENDED: Final = Interrupted("The pass that had claimed it ended.")

ACCEPT_SECONDS: Final = 30.0
"""How long a pass waits for a process of a remote engine to accept a run."""
NOT_ACCEPTED: Final = Interrupted("No process of its engine has accepted it.")

_ATTEMPTS: Final = frozenset(
    {OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.SNOOZED, OutcomeKind.CANCELED}
)


class SteppedEngine(Engine, Protocol):
    """An engine that makes attempts in the thread of its caller."""

    def run_next(self) -> bool:
        """Make the next attempt; False when there is none."""
        ...


class PassResult(NamedTuple):
    """What one pass did. After an idle pass, another one would find nothing to do either."""

    transitions: Sequence[Transition]
    is_idle: bool


class NextDue(NamedTuple):
    """Whether something is due now, and when the next thing will be due after now.

    ``pending`` is what the store returned, so that a pass right after this need not read it again.
    """

    is_due: bool
    next_at: datetime | None
    pending: PendingWork


class PassParts(NamedTuple):
    """The parts that all passes of an application share."""

    store: Store
    clock: Clock
    known: KnownJobs
    timer: Timer
    next_firing_at: NextFiring
    reaper: Reaper
    reporter: Reporter
    held: HeldRuns
    heartbeat: Heartbeat
    attempt_store: RowAttemptStore
    on_claimed: Callable[[], None]  # starts the heartbeat thread


class SinglePass:
    """Makes passes. Only one thread at a time may use it, because it has a writer of its own.

    ``engine_of`` returns the engine of a job that has to run elsewhere, None for others. Those
    engines set ``notified`` when they have an outcome.
    """

    def __init__(
        self,
        parts: PassParts,
        *,
        claimer: Claimer,
        writer: Writer,
        runner: AttemptRunner,
        inline: SteppedEngine,
        engine_of: Callable[[str], Engine | None],
        notified: Event,
        timeout_grace: timedelta,
        stop_engines: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._claimer = claimer
        self._writer = writer
        self._runner = runner
        self._inline = inline
        self._engine_of = engine_of
        self._notified = notified
        self._timeout_grace = timeout_grace
        self.stop_engines = stop_engines
        self._cancels = CancelPoller(store=parts.store, held=parts.held, clock=parts.clock)
        self._cancels_at = 0.0

    def run(
        self, batch: int, *, stop: Event | None = None, pending: PendingWork | None = None
    ) -> PassResult:
        """Fire, claim at most ``batch`` runs, and make an attempt at each.

        Once ``stop`` is set, runs that have not started are released. ``pending`` is what
        :func:`find_next_due` returned, if the caller has just called it.
        """
        parts = self._parts
        moved, is_ready = prepare(parts, pending or parts.store.pending_work())
        plan = parts.timer.fire()
        claims: Sequence[Claim] = ()
        if is_ready or plan.runs:
            claims = self._claim(
                ClaimRequest(batch, jobs=parts.known.names(), is_starting=batch == 1)
            )
        transitions = self._execute(claims, stop=stop) if claims else []
        return PassResult(transitions, is_idle=not (moved or plan.moves or claims))

    def run_one(self, run_id: RunId, *, job: str) -> bool:
        """Claim exactly this run, and make an attempt at it; False when it cannot start."""
        claim = self._claimer.claim_run(run_id, job=job, cancel_attempt=self._cancel)
        if claim is None:
            return False
        self._parts.on_claimed()
        self._execute([claim], stop=None)
        return True

    def watch(self) -> None:
        """Check timeouts and cancellations while another thread or process makes the attempt."""
        self._runner.watch_deadlines(self._timeout_grace)
        now = self._parts.clock.monotonic()
        if now >= self._cancels_at:
            self._cancels_at = now + CANCELS_EVERY
            with suppress(StoreError):  # the next poll may succeed
                self._cancels.poll()

    def _claim(self, wanted: ClaimRequest) -> Sequence[Claim]:
        sent_at = self._parts.clock.monotonic()
        try:
            claims = self._claimer.claim(wanted, self._cancel)
        except OutcomeUnknown:
            # If the claim was committed, this worker holds the runs, and no other can claim them.
            claims = self._claimer.find_lost()
            self._parts.held.add(claims, extended_at=sent_at, cancel_attempt=self._cancel)
        if claims:
            self._parts.on_claimed()
        return claims

    def _cancel(self, claim: Claim) -> None:
        engine = self._engine_of(claim.job)
        if engine is not None:
            engine.cancel(claim)

    def _execute(self, claims: Sequence[Claim], *, stop: Event | None) -> list[Transition]:
        clock, written = self._parts.clock, list[Transition]()
        written_at = clock.monotonic()
        try:
            for claim in claims:
                if stop is not None and stop.is_set():
                    self._runner.give_back(claim, PASS_ENDED)
                elif self._may_start(claim):
                    self._attempt(claim)
                if clock.monotonic() - written_at >= WRITE_EVERY:
                    written += self._write(after=claim)
                    written_at = clock.monotonic()
            return written + self._write(after=claims[-1])
        except BaseException:
            # Ctrl-C was pressed, or the database is unreachable. What was done must not be done
            # again, and the rest is released, so that no worker has to wait for the leases.
            self._inline.take_back()
            for claim in claims:
                self._runner.give_back(claim, PASS_ENDED)
            with suppress(StoreError):
                self._write()
            raise
        finally:
            self._parts.held.drop_all(claims)

    def _attempt(self, claim: Claim) -> None:
        engine = self._engine_of(claim.job)
        if engine is None:
            self._inline.submit([claim])
            self._inline.run_next()
        else:
            run = self._parts.held.of(claim)
            engine.submit([claim])
            until = self._parts.clock.monotonic() + ACCEPT_SECONDS
            while run is not None and not run.is_settled:  # ends with the attempt
                self._notified.wait(WAIT_EVERY)
                self._notified.clear()
                self.watch()
                if run.is_handed_over and self._parts.clock.monotonic() >= until:
                    self._runner.give_back(claim, NOT_ACCEPTED)

    def _may_start(self, claim: Claim) -> bool:
        parts = self._parts
        run = parts.held.of(claim)  # None: a handler of this pass claimed the run again
        if run is not None:
            self._check_leases(run)
            if not run.is_lost and (claim.crashes or claim.token > claim.attempt):
                # An earlier claim was lost, maybe because the handler killed its process.
                parts.heartbeat.write_start(claim)
        if run is None or run.is_lost:
            parts.reporter.report_lost(claim, at=parts.clock.now())
            return False
        return True

    def _check_leases(self, run: HeldRun) -> None:
        """Find out which runs another worker has, if a heartbeat for this one is overdue."""
        held, heartbeat = self._parts.held, self._parts.heartbeat
        if not heartbeat.is_due(run):
            return
        # First those whose lease may have expired: a heartbeat cannot tell a run that another
        # worker finished from one that this worker finished.
        late = {
            each.claim.run_id: each.claim.token
            for each in held.snapshot()
            if heartbeat.is_late(each)
        }
        for row in self._parts.store.get_runs(list(late)) if late else ():
            if row.token != late[row.id]:
                held.revoke(row.id, token=late[row.id])
        heartbeat.step_if_due()

    def _write(self, *, after: Claim | None = None) -> list[Transition]:
        """Write all outcomes; ``after`` is the last claim that was attempted."""
        last = None if after is None else self._parts.held.of(after)
        if last is not None:
            # A heartbeat may be overdue. The log lines of lost attempts must not be written.
            self._check_leases(last)
        written: list[Transition] = []
        retries = 0
        while self._writer.pending:  # ends: each round writes a batch, splits it, or raises
            try:
                written += self._writer.write().written
            except OutcomeUnknown:
                retries += 1
                if retries > RETRIES_MAX:
                    raise
        return written


def prepare(parts: PassParts, pending: PendingWork) -> tuple[int, bool]:
    """Stage, reap and sweep if needed; return how many runs changed, and whether one is ready."""
    moved = parts.timer.stage(pending)
    if pending.lease_until is not None and has_expired(pending.lease_until, now=parts.clock.now()):
        moved += parts.reaper.reap()
    if pending.is_blocked:
        moved += sweep(parts.store, parts.clock)
    is_ready = pending.is_ready or moved > 0
    parts.known.discover(is_ready=is_ready)
    return moved, is_ready


def find_due(parts: PassParts, limit: int) -> list[Run]:
    """Return the runs that could start now, after schedules that are due were fired."""
    prepare(parts, parts.store.pending_work())
    now = parts.clock.now()
    parts.timer.fire()
    return parts.store.due_runs(ClaimRequest(limit, jobs=parts.known.names()), now=now)


def find_next_due(parts: PassParts, *, is_stuck: bool = False) -> NextDue:
    """Return whether anything is due, and until when the caller can sleep or move the clock.

    ``is_stuck`` means that a pass was idle: what seems to be due now cannot be run here, and is
    ignored in favor of what is due later.
    """
    now, pending = parts.clock.now(), parts.store.pending_work()
    firing_at = parts.next_firing_at()
    if is_stuck and firing_at is not None and firing_at <= now:
        firing_at = parts.next_firing_at(after=now)
    moments = [pending.due_at, pending.lease_until, pending.turn_at, firing_at]
    if pending.is_ready:
        moments += [pause.until for pause in parts.store.list_pauses()]
    known = [moment for moment in moments if moment is not None]
    later = [moment for moment in known if moment > now]
    is_due = pending.is_ready or len(later) < len(known)
    return NextDue(is_due, min(later, default=None), pending)


def count_attempts(transitions: Iterable[Transition]) -> int:
    return sum(map(is_attempt, transitions))


def is_attempt(transition: Transition) -> bool:
    """Whether a handler was called: not when a filter rejected the run."""
    return transition.outcome in _ATTEMPTS
