"""The composition root of the worker half: everything that fires schedules and executes runs.

A process that only dispatches never imports this module.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

from tickwork._client.catalog import Catalog
from tickwork._define.definition import Definition
from tickwork._define.engine_choice import EngineRegistration
from tickwork._define.handlers import Construct
from tickwork._define.lifecycle import Lifecycle
from tickwork._define.options import Length
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.run import NewRun, Run
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration, human_duration
from tickwork._kernel.import_location import find_import_location
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.loop import Loop
from tickwork._kernel.plurals import count_of
from tickwork._kernel.version import VERSION
from tickwork._kernel.zonedata import add_zone_version
from tickwork._worker.attempt_store import PlanRun, RowAttemptStore
from tickwork._worker.build import (
    WorkerContext,
    build_pass_parts,
    build_remote_worker,
    build_single_pass,
    build_worker,
)
from tickwork._worker.known_jobs import KnownJobs
from tickwork._worker.log_capture import LogCapture
from tickwork._worker.options import BATCH_MAX, WorkerOptions, worker_options
from tickwork._worker.pruner import Pruner
from tickwork._worker.reaper import Reaper
from tickwork._worker.remote_worker import RemoteWorker
from tickwork._worker.reporter import Reporter
from tickwork._worker.run_by_id import execute
from tickwork._worker.single_pass import (
    NextDue,
    PassResult,
    SinglePass,
    count_attempts,
    find_due,
    find_next_due,
)
from tickwork._worker.stats import Stats
from tickwork._worker.ticker import Ticker
from tickwork._worker.worker import Worker
from tickwork.engines.inline import InlineEngine
from tickwork.engines.thread_caller import ThreadCaller, WaitFor
from tickwork.engines.wire import AppLocation, ProcessRole
from tickwork.errors import InvalidOption, TickworkError, mask_url
from tickwork.events.bus import EventBus
from tickwork.settings import Settings
from tickwork.stores.contract import PendingWork, Store

_log: Final = get_logger("tickwork.worker")

DUE_MAX: Final = 10_000
COLLECT_POLL: Final = 0.2
"""Seconds that ``collect`` sleeps at most before it polls for due runs again."""


COLLECT_PRUNE: Final = timedelta(hours=1)
PRUNE_BATCHES: Final = 200
"""How often ``collect`` prunes history, over all processes, and at most how many batches."""


class WorkedApp(Protocol):
    """The parts of an application that its worker half uses."""

    settings: Settings
    registry: Registry
    events: EventBus
    construct: Construct
    lifecycle: Lifecycle
    wait_for: WaitFor | None
    path: str


class WorkerServices:
    """The services that execute runs, on the store and the clock of the client half.

    ``has_threads`` is False when other threads must not take part: a test moves the clock, or
    everything happens in a transaction of the caller.
    """

    def __init__(
        self,
        app: WorkedApp,
        *,
        store: Store,
        clock: Clock,
        catalog: Catalog,
        engines: Mapping[str, EngineRegistration],
        engine_options: Mapping[str, Any],
        has_threads: bool,
        plan_run: PlanRun,
        on_follow_ups: Callable[[Sequence[NewRun]], None],
    ) -> None:
        def get_construct() -> Construct:
            return app.construct

        self._url = app.settings.url
        self._registry = app.registry
        self.store = store
        self.clock = clock
        self.catalog = catalog
        self.known = KnownJobs(store=store, registry=app.registry)
        self.stats = Stats()
        self.wait_for: WaitFor | None = app.wait_for
        """Runs the coroutines of single passes, instead of a private event loop. For tests."""
        self.log_capture = LogCapture()
        self._has_threads = has_threads
        self._context = WorkerContext(
            store=store,
            clock=clock,
            known=self.known,
            ticker=Ticker(
                store=store,
                clock=clock,
                specs=self.known.specs,
                retire_after=app.settings.retire_after,
            ),
            bus=app.events,
            reporter=Reporter(bus=app.events, stats=self.stats, on_follow_ups=on_follow_ups),
            log_capture=self.log_capture,
            engines=engines,
            engine_options=engine_options,
            inline=lambda setup, watch: InlineEngine(
                setup, while_waiting=watch, find_wait=lambda: self.wait_for
            ),
            call_hooks=ThreadCaller(clock=clock, construct=get_construct).call_hooks,
            construct=get_construct,
            app_location=partial(find_app_location, app),
            refresh_catalog=catalog.refresh,
            plan_run=plan_run,
            lifecycle=app.lifecycle,
            version=add_zone_version(VERSION),
            retention=app.registry.defaults.retention,
            retire_after=app.settings.retire_after,
        )
        self.parts = build_pass_parts(
            self._context, on_claimed=self._start_heartbeat if has_threads else lambda: None
        )
        self.heartbeat_loop = Loop(
            self.parts.heartbeat.step,
            pace=self.parts.heartbeat.pace,
            is_idle=lambda: not len(self.parts.held),
            name="tickwork-heartbeat",
        )
        self._remote_worker: RemoteWorker | None = None
        self._remote_lock = threading.Lock()
        self.pass_options = WorkerOptions()
        self._idle_passes: list[SinglePass] = []
        self.adapt_definition: Callable[[Definition], Definition] | None = None
        """Changes definitions before single passes use them. For tests."""

    def execute_handovers(self, message: object, *, is_redelivered: bool) -> int:
        """Make attempts at runs that a worker handed over to this process; return how many."""
        return self._get_remote_worker().execute(message, is_redelivered=is_redelivered)

    def _get_remote_worker(self) -> RemoteWorker:
        with self._remote_lock:
            if self._remote_worker is None:
                caller = ThreadCaller(clock=self.clock, construct=self._context.construct)
                self._remote_worker = build_remote_worker(self._context, caller)
            return self._remote_worker

    @property
    def reaper(self) -> Reaper:
        """Takes back the runs of dead workers."""
        return self.parts.reaper

    # ------------------------------------------------------------ single passes

    def run(self, batch: int, stop: threading.Event) -> int:
        """Make one pass; return the number of attempts."""
        if not 1 <= batch <= BATCH_MAX:
            raise InvalidOption("batch", batch, f"must be between 1 and {BATCH_MAX:,}")
        with self.log_capture.capturing():
            return count_attempts(self.make_pass(batch, stop=stop).transitions)

    def collect(self, length: Length, batch: int, stop: threading.Event) -> int:
        """Make passes until nothing is due, for at least this long; return the failures."""
        until = self.clock.monotonic() + as_duration(length).total_seconds()
        before = self.stats.failures
        # It ends at the given moment, once nothing is due.
        while True:
            if self.run(batch, stop) and not stop.is_set():
                continue
            left = until - self.clock.monotonic()
            if left <= 0 or stop.is_set():
                self.build_pruner().run_once(every=COLLECT_PRUNE, batches_max=PRUNE_BATCHES)
                return self.stats.failures - before
            stop.wait(min(left, self.parts.timer.seconds_left(COLLECT_POLL)))

    def build_pruner(self) -> Pruner:
        """Build what deletes old history."""
        return self._context.build_pruner()

    def make_pass(
        self, batch: int, *, stop: threading.Event | None = None, pending: PendingWork | None = None
    ) -> PassResult:
        """Make one pass. Log records are kept only inside ``log_capture.capturing()``."""
        self.catalog.refresh()
        with self.use_pass() as single_pass:
            return single_pass.run(batch, stop=stop, pending=pending)

    def due(self, limit: int) -> list[Run]:
        """List the runs that this process could start now."""
        if not 1 <= limit <= DUE_MAX:
            raise InvalidOption("limit", limit, f"must be between 1 and {DUE_MAX}")
        self.catalog.refresh()
        return find_due(self.parts, limit)

    def find_next_due(self, *, is_stuck: bool = False) -> NextDue:
        """Find what is due, and when the next thing will be."""
        return find_next_due(self.parts, is_stuck=is_stuck)

    def execute(self, run_id: RunId) -> None:
        """Claim exactly this run, and make an attempt at it."""
        self.catalog.refresh()  # the limits in code apply from the first run on
        with self.log_capture.capturing(), self.use_pass() as single_pass:
            execute(run_id, parts=self.parts, single_pass=single_pass)

    def close(self) -> None:
        """Stop the heartbeat thread and the engines of the passes."""
        self.heartbeat_loop.stop()
        if self._remote_worker is not None:
            self._remote_worker.stop()
            self._remote_worker = None
        while self._idle_passes:
            self._idle_passes.pop().stop_engines()

    @contextmanager
    def use_pass(self) -> Iterator[SinglePass]:
        """Give this thread a pass that no other thread uses meanwhile."""
        # Other threads, and handlers that call run() themselves, get a pass of their own.
        try:
            single_pass = self._idle_passes.pop()
        except IndexError:
            single_pass = build_single_pass(
                self._context,
                self.parts,
                options=self.pass_options,
                has_threads=self._has_threads,
                find=self._find,
            )
        try:
            yield single_pass
        finally:
            self._idle_passes.append(single_pass)

    def _find(self, job: str) -> Definition | None:
        definition = self.known.find(job)
        if definition is None or self.adapt_definition is None:
            return definition
        return self.adapt_definition(definition)

    def _start_heartbeat(self) -> None:
        self.heartbeat_loop.start()

    # ------------------------------------------------------------ a worker in the background

    def build_worker(
        self, options: WorkerOptions | None, given: dict[str, Any], *, loop: Any = None
    ) -> Worker:
        """Build a worker that is ready to start.

        Raises:
            TickworkError: This is a child process of another worker.
        """
        if ProcessRole.is_child:
            raise TickworkError(
                "A child process of a worker cannot start a worker.",
                why="The module of the application starts a worker when it is imported.",
                fix='Put the start below `if __name__ == "__main__":`.',
            )
        self.catalog.refresh()
        self.known.discover()
        return build_worker(self._context, options or worker_options(**given), loop=loop)

    def log_start(self, worker: Worker) -> None:
        """Log what a worker that has started works on."""
        registry, options = self._registry, worker.options
        queues = f"queues {', '.join(options.queues)}" if options.queues else "all queues"
        _log.info(
            "The worker %d started on %s: %s, %s, %s.",
            os.getpid(),
            mask_url(self._url),
            count_of(len(registry.job_names()), "job"),
            count_of(len(registry.schedules()), "schedule"),
            queues,
        )

    def log_stop(self, worker: Worker) -> None:
        """Log what a worker that has stopped did."""
        stats = self.stats
        _log.info(
            "The worker %d stopped after %s: %s, %d failed, started at most %s late.",
            os.getpid(),
            human_duration(worker.uptime),
            count_of(stats.attempts, "attempt"),
            stats.failures,
            human_duration(stats.lateness),
        )

    @property
    def attempt_store(self) -> RowAttemptStore:
        """Where handlers in a child process save their progress."""
        return RowAttemptStore(store=self.store, clock=self.clock, plan_run=self._context.plan_run)


def find_app_location(app: WorkedApp) -> AppLocation:
    """Find where other processes can import an application from.

    Raises:
        InvalidOption: No module has it under a name.
    """
    if app.path:
        module, _, attribute = app.path.partition(":")
        return AppLocation(module, attribute or "app", "", tuple(sys.path))
    place = find_import_location(app)
    if place is None:
        raise InvalidOption(
            "engine",
            "process",
            "must be 'async' or 'thread' for an application that no module holds",
            fix="Assign the application at the top of a module: app = Tickwork(...).",
        )
    return AppLocation(place.module, place.attribute, place.file, tuple(sys.path))
