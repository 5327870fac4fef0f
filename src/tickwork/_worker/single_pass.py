"""One pass of a worker, in the calling thread: ``app.run()``, ``collect``, ``execute`` and tests.

It drives the parts of a worker one step at a time: stage, reap, sweep, tick, one claim, the
attempts, and the writes.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Event
from typing import Final, NamedTuple

from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.limits.rates import is_rate
from tickwork._domain.runs.lease import has_expired
from tickwork._domain.runs.outcome import Interrupted, OutcomeKind
from tickwork._domain.runs.run import Claim, Run
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition
from tickwork._engines.contract import Engine
from tickwork._engines.local.thread_caller import WaitFor
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import ClaimRequest, Pause, PauseKind, PendingWork, Store
from tickwork._worker.attempt_core import WorkerContext, build_core
from tickwork._worker.attempts.held_runs import HeldRun, HeldRuns
from tickwork._worker.attempts.known_jobs import COROUTINES, FUNCTIONS, engine_of
from tickwork._worker.options import BATCH_MAX
from tickwork._worker.services.claimer import Claimer
from tickwork._worker.services.maintenance import sweep
from tickwork._worker.services.reaper import Reaper
from tickwork._worker.services.timer import Timer
from tickwork.errors import InvalidTransition, OutcomeUnknown, RunError, RunNotFound, StoreError

WRITE_EVERY: Final = 0.05
"""Seconds after which outcomes are written even if attempts are left, so that others see them."""

RETRIES_MAX: Final = 3
"""How often a write whose answer was lost is sent again before the caller gets the error.

A worker retries for ever; here a person or a request waits.
"""

WAIT_EVERY: Final = 0.05
CANCELS_EVERY: Final = 1.0
"""While an attempt runs elsewhere: seconds between checks of its timeout, and for its cancel.

The first reads memory, the second the database, so it is less frequent.
"""

PASS_ENDED: Final = Interrupted("The pass that had claimed it ended.")

ACCEPT_SECONDS: Final = 30.0
"""How long a pass waits for a process of a remote engine to accept a run: a person may wait."""
NOT_ACCEPTED: Final = Interrupted("No process of its engine has accepted it.")

_ATTEMPTS: Final = frozenset(
    {
        OutcomeKind.SUCCEEDED,
        OutcomeKind.FAILED,
        OutcomeKind.SNOOZED,
        OutcomeKind.SUSPENDED,
        OutcomeKind.CANCELED,
    }
)


class PassResult(NamedTuple):
    """What one pass did. After an idle pass, another one would find nothing to do either."""

    transitions: Sequence[Transition]
    is_idle: bool


class SinglePass:
    """Makes passes. Only one thread at a time may use it, because it has a writer of its own.

    Without ``has_threads`` every attempt happens in the calling thread: a test moves the clock, or
    all of it happens in a transaction of the caller. ``on_claimed`` starts the heartbeat.
    """

    def __init__(
        self,
        context: WorkerContext,
        *,
        held: HeldRuns,
        timer: Timer,
        reaper: Reaper,
        find: Callable[[str], Definition | None],
        find_wait: Callable[[], WaitFor | None],
        on_claimed: Callable[[], None],
        timeout_grace: timedelta,
        has_threads: bool,
    ) -> None:
        self._notified = Event()  # set when an engine has an outcome
        self._core = build_core(
            context,
            batch=BATCH_MAX,
            held=held,
            is_polled=True,
            find=find,
            notify=self._notified.set,
        )
        self._context = context
        self._timer = timer
        self._reaper = reaper
        self._on_claimed = on_claimed
        self._timeout_grace = timeout_grace
        self._has_threads = has_threads
        self._setup = self._core.build_setup(slots=1)
        self._inline = context.build_inline(
            self._setup, while_waiting=self.watch if has_threads else None, find_wait=find_wait
        )
        self._engine_by_name: dict[str, Engine] = {}
        self._claimer = Claimer(
            name="pass",
            store=context.store,
            clock=context.clock,
            worker=WorkerId(new_id(context.clock.now())),
            known=context.known,
            held=held,
            on_claimed=context.reporter.report_claimed,
        )
        self._cancels_at = 0.0

    def stop_engines(self) -> None:
        """Release the threads and processes of its engines."""
        for engine in [self._inline, *self._engine_by_name.values()]:
            engine.stop()

    def run(
        self, batch: int, *, stop: Event | None = None, pending: PendingWork | None = None
    ) -> PassResult:
        """Fire, claim at most ``batch`` runs, and make an attempt at each.

        Once ``stop`` is set, runs that have not started are released. ``pending`` is what
        :func:`find_next_due` returned, if the caller has just called it.
        """
        context = self._context
        moved, is_ready = prepare(
            context, self._timer, self._reaper, pending or context.store.pending_work()
        )
        plan = self._timer.fire()
        claims: Sequence[Claim] = ()
        if is_ready or plan.runs:
            claims = self._claim(
                ClaimRequest(batch, jobs=context.known.names(), is_starting=batch == 1)
            )
        transitions = self._execute(claims, stop=stop) if claims else []
        return PassResult(transitions, is_idle=not (moved or plan.moves or claims))

    def run_one(self, run_id: RunId, *, job: str) -> bool:
        """Claim exactly this run, and make an attempt at it; False when it cannot start."""
        claim = self._claimer.claim_run(run_id, job=job, cancel_attempt=self._cancel)
        if claim is None:
            return False
        self._on_claimed()
        self._execute([claim], stop=None)
        return True

    def watch(self) -> None:
        """Check timeouts and cancellations while another thread or process makes the attempt."""
        self._core.runner.watch_deadlines(self._timeout_grace)
        now = self._context.clock.monotonic()
        if now >= self._cancels_at:
            self._cancels_at = now + CANCELS_EVERY
            with suppress(StoreError):  # the next poll may succeed
                self._core.cancels.poll()

    def _claim(self, wanted: ClaimRequest) -> Sequence[Claim]:
        try:
            claims = self._claimer.claim(wanted, self._cancel)
        except OutcomeUnknown:
            # If the claim was committed, this worker holds the runs, and no other can claim them.
            claims = self._claimer.find_lost(lambda _: self._cancel)
        if claims:
            self._on_claimed()
        return claims

    def _cancel(self, claim: Claim) -> None:
        engine = self._find_engine(claim.job)
        if engine is not None:
            engine.cancel(claim)

    def _find_engine(self, job: str) -> Engine | None:
        """Return the engine of a job that chose one. Other jobs run inline."""
        definition = self._context.known.find(job)
        name = FUNCTIONS if definition is None else engine_of(definition)
        if not self._has_threads or name in {FUNCTIONS, COROUTINES}:
            return None
        if name not in self._engine_by_name:
            engine = self._engine_by_name[name] = self._context.build_engine(name, self._setup)
            engine.start()
        return self._engine_by_name[name]

    def _execute(self, claims: Sequence[Claim], *, stop: Event | None) -> list[Transition]:
        clock, written = self._context.clock, list[Transition]()
        written_at = clock.monotonic()
        try:
            for claim in claims:
                if stop is not None and stop.is_set():
                    self._core.runner.give_back(claim, PASS_ENDED)
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
                self._core.runner.give_back(claim, PASS_ENDED)
            with suppress(StoreError):
                self._write()
            raise
        finally:
            self._core.held.drop_all(claims)

    def _attempt(self, claim: Claim) -> None:
        engine = self._find_engine(claim.job)
        if engine is None:
            self._inline.submit([claim])
            self._inline.run_next()
        else:
            run = self._core.held.of(claim)
            engine.submit([claim])
            until = self._context.clock.monotonic() + ACCEPT_SECONDS
            while run is not None and not run.is_settled:  # ends with the attempt
                self._notified.wait(WAIT_EVERY)
                self._notified.clear()
                self.watch()
                if run.is_handed_over and self._context.clock.monotonic() >= until:
                    self._core.runner.give_back(claim, NOT_ACCEPTED)

    def _may_start(self, claim: Claim) -> bool:
        core = self._core
        run = core.held.of(claim)  # None: a handler of this pass claimed the run again
        if run is not None:
            self._check_leases(run)
            if not run.is_lost and (claim.crashes or claim.token > claim.attempt):
                # An earlier claim was lost, maybe because the handler killed its process.
                core.heartbeat.write_start(claim)
        if run is None or run.is_lost:
            self._context.reporter.report_lost(claim, at=self._context.clock.now())
            return False
        return True

    def _check_leases(self, run: HeldRun) -> None:
        """Find out which runs another worker has, if a heartbeat for this one is overdue."""
        held, heartbeat = self._core.held, self._core.heartbeat
        if not heartbeat.is_due(run):
            return
        # First those whose lease may have expired: a heartbeat cannot tell a run that another
        # worker finished from one that this worker finished.
        late = {
            each.claim.run_id: each.claim.token
            for each in held.snapshot()
            if heartbeat.is_late(each)
        }
        for row in self._context.store.get_runs(list(late)) if late else ():
            if row.token != late[row.id]:
                held.revoke(row.id, token=late[row.id])
        heartbeat.step_if_due()

    def _write(self, *, after: Claim | None = None) -> list[Transition]:
        """Write all outcomes; ``after`` is the last claim that was attempted."""
        last = None if after is None else self._core.held.of(after)
        if last is not None:
            # A heartbeat may be overdue. The log lines of lost attempts must not be written.
            self._check_leases(last)
        written: list[Transition] = []
        retries = 0
        while self._core.writer.pending:  # ends: each round writes a batch, splits it, or raises
            try:
                written += self._core.writer.write().written
            except OutcomeUnknown:
                retries += 1
                if retries > RETRIES_MAX:
                    raise
        return written


def prepare(
    context: WorkerContext, timer: Timer, reaper: Reaper, pending: PendingWork
) -> tuple[int, bool]:
    """Stage, reap and sweep if needed; return how many runs changed, and whether one is ready."""
    now = context.clock.now()
    moved = timer.stage(pending)
    if pending.lease_until is not None and has_expired(pending.lease_until, now=now):
        moved += reaper.reap()
    if pending.is_blocked:
        moved += sweep(context.store, context.clock)
    is_ready = pending.is_ready or moved > 0
    context.known.discover(is_ready=is_ready)
    return moved, is_ready


def count_attempts(transitions: Iterable[Transition]) -> int:
    return sum(map(is_attempt, transitions))


def is_attempt(transition: Transition) -> bool:
    """Whether a handler was called: not when a filter rejected the run."""
    return transition.outcome in _ATTEMPTS


def execute(run_id: RunId, *, context: WorkerContext, single_pass: SinglePass) -> None:
    """Claim exactly this run, due or not, and make an attempt at it.

    Raises:
        RunNotFound: There is no such run.
        InvalidTransition: It is claimed, or has finished.
        RunError: It is paused, or a limit that it needs is full.
        JobNotFound: This process does not know its job.
    """
    store = context.store
    run = _get_startable(store, run_id)
    context.known.learn(run.job)
    if not single_pass.run_one(run_id, job=run.job):
        # Another worker claimed it a moment ago, or something blocks it.
        run = _get_startable(store, run_id)
        raise _explain(run, store.list_pauses(), now=context.clock.now())


def _get_startable(store: Store, run_id: RunId) -> Run:
    run = store.get_run(run_id)
    if run is None:
        raise RunNotFound(run_id)
    if not run.status.can_execute:
        raise InvalidTransition(run_id, source=run.status, target=RunStatus.RUNNING)
    return run


def _explain(run: Run, pauses: Iterable[Pause], *, now: datetime) -> RunError:
    what = f"The run {run.id} cannot start now."
    for pause in pauses:
        is_over = pause.until is not None and pause.until <= now
        name = run.queue if pause.kind is PauseKind.QUEUE else run.job
        if pause.name == name and not is_over:
            return RunError(
                run.id,
                what,
                why=f"The {pause.kind} {pause.name!r} is paused.",
                fix=f"Resume it: app.resume({pause.kind}={pause.name!r}).",
            )
    limits = " or ".join(run.limit_keys)
    if any(map(is_rate, run.limit_keys)):
        return RunError(
            run.id,
            what,
            why=f"A limit that it needs is full, or its rate does not admit it yet: {limits}.",
            fix="Wait until a run that holds the limit has finished, or until the rate admits it.",
        )
    return RunError(
        run.id,
        what,
        why=f"A limit that it needs is full: {limits}.",
        fix="Wait until a run that holds it has finished.",
    )
