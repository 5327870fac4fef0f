"""Single passes of an application: ``app.run()``, ``collect``, ``execute``, and tests."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tickwork._define.definition import Definition
from tickwork._define.options import Duration
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._engines.local.thread_caller import WaitFor
from tickwork._kernel.durations import as_duration
from tickwork._kernel.loop import Loop
from tickwork._stores.contract import ClaimRequest, PendingWork
from tickwork._worker.attempt_core import WorkerContext, build_core
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.options import BATCH_MAX, WorkerOptions
from tickwork._worker.single_pass import PassResult, SinglePass, count_attempts, execute, prepare
from tickwork.errors import InvalidOption

DUE_MAX: Final = 10_000
"""The most runs that ``app.due()`` returns, because it reads them all into memory."""

COLLECT_POLL: Final = 0.2
"""Seconds that ``collect`` sleeps at most, because other processes dispatch runs meanwhile."""

COLLECT_PRUNE: Final = timedelta(hours=1)
PRUNE_BATCHES: Final = 200
"""How often ``collect`` prunes history, over all processes, and at most how many batches.

It may be the only process that prunes, but its caller waits for it.
"""


class NextDue(NamedTuple):
    """Whether something is due now, and when the next thing will be due after now.

    ``pending`` is what the store returned, so that a pass right after this need not read it again.
    """

    is_due: bool
    next_at: datetime | None
    pending: PendingWork


class PassPool:
    """Makes passes, each in the thread of its caller.

    ``has_threads`` is False when other threads must not take part: a test moves the clock, or
    everything happens in a transaction of the caller.
    """

    def __init__(
        self, context: WorkerContext, *, wait_for: WaitFor | None, has_threads: bool
    ) -> None:
        self.context = context
        self.wait_for = wait_for
        """Runs the coroutines of handlers, instead of a private event loop. For tests."""
        self.adapt_definition: Callable[[Definition], Definition] | None = None
        """Changes definitions before passes use them. For tests."""
        self._has_threads = has_threads
        self._held = HeldRuns()  # of all passes: a handler may make a pass itself
        core = build_core(context, batch=BATCH_MAX, held=self._held, is_polled=True)
        self.heartbeat = core.heartbeat
        self.timer = context.build_timer()
        self.reaper = context.build_reaper(core.attempt_store, self._held, in_thread=False)
        self._compactor = context.build_compactor()
        self.options = WorkerOptions()
        self._idle: list[SinglePass] = []
        self.heartbeat_loop = Loop(
            self.heartbeat.step,
            pace=self.heartbeat.pace,
            is_idle=lambda: not len(self._held),
            name="tickwork-heartbeat",
        )

    def run(self, batch: int, stop: threading.Event) -> int:
        """Make one pass; return the number of attempts."""
        if not 1 <= batch <= BATCH_MAX:
            raise InvalidOption("batch", batch, f"must be between 1 and {BATCH_MAX:,}")
        with self.context.log_capture.capturing():
            count = count_attempts(self.make_pass(batch, stop=stop).transitions)
        if self._has_threads:  # not in a transaction of the caller
            self._compactor.add_ended(count)
        return count

    def collect(self, length: Duration, batch: int, stop: threading.Event) -> int:
        """Make passes until nothing is due, for at least this long; return the failures."""
        context = self.context
        until = context.clock.monotonic() + as_duration(length).total_seconds()
        before = context.stats.failures
        # It ends at the given moment, once nothing is due.
        while True:
            if self.run(batch, stop) and not stop.is_set():
                continue
            left = until - context.clock.monotonic()
            if left <= 0 or stop.is_set():
                context.build_pruner().run_once(every=COLLECT_PRUNE, batches_max=PRUNE_BATCHES)
                self._compactor.compact()
                return context.stats.failures - before
            stop.wait(min(left, self.timer.seconds_left(COLLECT_POLL)))

    def make_pass(
        self, batch: int, *, stop: threading.Event | None = None, pending: PendingWork | None = None
    ) -> PassResult:
        """Make one pass. Log records are kept only inside ``log_capture.capturing()``."""
        self.context.refresh_catalog()
        with self.use_pass() as single_pass:
            return single_pass.run(batch, stop=stop, pending=pending)

    def execute(self, run_id: RunId) -> None:
        """Claim exactly this run, and make an attempt at it."""
        self.context.refresh_catalog()  # the limits in code apply from the first run on
        with self.context.log_capture.capturing(), self.use_pass() as single_pass:
            execute(run_id, context=self.context, single_pass=single_pass)

    def due(self, limit: int) -> list[Run]:
        """List the runs that this process could start now, after due schedules were fired."""
        if not 1 <= limit <= DUE_MAX:
            raise InvalidOption("limit", limit, f"must be between 1 and {DUE_MAX}")
        context = self.context
        context.refresh_catalog()
        prepare(context, self.timer, self.reaper, context.store.pending_work())
        now = context.clock.now()
        self.timer.fire()
        return context.store.due_runs(ClaimRequest(limit, jobs=context.known.names()), now=now)

    def find_next_due(self, *, is_stuck: bool = False) -> NextDue:
        """Find what is due, and until when the caller can sleep or move the clock.

        ``is_stuck`` means that a pass was idle: what seems to be due now cannot be run here, and
        is ignored in favor of what is due later.
        """
        now, store = self.context.clock.now(), self.context.store
        pending, firing_at = store.pending_work(), self.timer.next_firing_at()
        if is_stuck and firing_at is not None and firing_at <= now:
            firing_at = self.timer.next_firing_at(after=now)
        moments = [pending.due_at, pending.lease_until, pending.next_start_at, firing_at]
        if pending.is_ready:
            moments += [pause.until for pause in store.list_pauses()]
        known = [moment for moment in moments if moment is not None]
        later = [moment for moment in known if moment > now]
        is_due = pending.is_ready or pending.has_outbox or len(later) < len(known)
        return NextDue(is_due, min(later, default=None), pending)

    @contextmanager
    def use_pass(self) -> Iterator[SinglePass]:
        """Give this thread a pass that no other thread uses meanwhile."""
        # Other threads, and handlers that call run() themselves, get a pass of their own.
        try:
            single_pass = self._idle.pop()
        except IndexError:
            single_pass = self._build_pass()
        try:
            yield single_pass
        finally:
            self._idle.append(single_pass)

    def close(self) -> None:
        """Stop the heartbeat thread and the engines of the passes."""
        self.heartbeat_loop.stop()
        while self._idle:
            self._idle.pop().stop_engines()

    def _build_pass(self) -> SinglePass:
        return SinglePass(
            self.context,
            held=self._held,
            timer=self.timer,
            reaper=self.reaper,
            find=self._find,
            find_wait=lambda: self.wait_for,
            on_claimed=self.heartbeat_loop.start if self._has_threads else lambda: None,
            timeout_grace=self.options.timeout_grace,
            has_threads=self._has_threads,
        )

    def _find(self, job: str) -> Definition | None:
        definition = self.context.known.find(job)
        if definition is None or self.adapt_definition is None:
            return definition
        return self.adapt_definition(definition)
