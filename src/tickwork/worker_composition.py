"""The composition root of the worker half: everything that fires schedules and executes runs.

A process that only dispatches never imports this module.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

from tickwork._client.catalog import Catalog
from tickwork._define.definition import Definition
from tickwork._define.engine_choice import EngineRegistration
from tickwork._define.handlers import Construct
from tickwork._define.options import Length
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration
from tickwork._kernel.import_location import find_import_location
from tickwork._kernel.loop import Loop
from tickwork._kernel.version import VERSION
from tickwork._kernel.zonedata import add_zone_version
from tickwork._worker.attempt_store import RowAttemptStore
from tickwork._worker.build import (
    WorkerContext,
    build_pass_parts,
    build_single_pass,
    build_worker,
)
from tickwork._worker.known_jobs import KnownJobs
from tickwork._worker.log_capture import LogCapture
from tickwork._worker.options import BATCH_MAX, WorkerOptions, worker_options
from tickwork._worker.reaper import Reaper
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
from tickwork.engines.thread_caller import ThreadCaller
from tickwork.engines.wire import AppLocation, ProcessRole
from tickwork.errors import InvalidOption, TickworkError
from tickwork.events.bus import EventBus
from tickwork.settings import Settings
from tickwork.stores.contract import PendingWork, Store

DUE_MAX: Final = 10_000
COLLECT_POLL: Final = 0.2
"""Seconds that ``collect`` sleeps at most before it polls for due runs again."""


class WorkedApp(Protocol):
    """The parts of an application that its worker half uses."""

    settings: Settings
    registry: Registry
    events: EventBus
    construct: Construct
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
        has_threads: bool,
    ) -> None:
        def get_construct() -> Construct:
            return app.construct

        self.store = store
        self.clock = clock
        self.catalog = catalog
        self.known = KnownJobs(store=store, registry=app.registry)
        self.stats = Stats()
        self.log_capture = LogCapture(now=clock.now)
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
            reporter=Reporter(bus=app.events, stats=self.stats),
            log_capture=self.log_capture,
            engines=engines,
            inline=lambda setup, watch: InlineEngine(setup, while_waiting=watch),
            call_hooks=ThreadCaller(clock=clock, construct=get_construct).call_after_hooks,
            construct=get_construct,
            app_location=partial(find_app_location, app),
            refresh_catalog=catalog.refresh,
            version=add_zone_version(VERSION),
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
        self.pass_options = WorkerOptions()
        self._idle_passes: list[SinglePass] = []
        self.adapt_definition: Callable[[Definition], Definition] | None = None
        """Changes definitions before single passes use them. For tests."""

    @property
    def reaper(self) -> Reaper:
        """Takes back the runs of dead workers."""
        return self.parts.reaper

    # ------------------------------------------------------------ single passes

    def run(self, batch: int, stop: threading.Event) -> int:
        """Make one pass; return the number of attempts."""
        if not 1 <= batch <= BATCH_MAX:
            raise InvalidOption("batch", batch, f"must be between 1 and {BATCH_MAX}")
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
                return self.stats.failures - before
            stop.wait(min(left, self.parts.timer.seconds_left(COLLECT_POLL)))

    def make_pass(
        self, batch: int, *, stop: threading.Event | None = None, ahead: PendingWork | None = None
    ) -> PassResult:
        """Make one pass. Log records are kept only inside ``log_capture.capturing()``."""
        self.catalog.refresh()
        with self.use_pass() as single_pass:
            return single_pass.run(batch, stop=stop, ahead=ahead)

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
        while self._idle_passes:
            self._idle_passes.pop().stop_engines()

    @contextmanager
    def use_pass(self) -> Iterator[SinglePass]:
        """Lend a pass to this thread."""
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

    def build_worker(self, options: WorkerOptions | None, given: dict[str, Any]) -> Worker:
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
        self.known.look()
        return build_worker(self._context, options or worker_options(**given))

    @property
    def attempt_store(self) -> RowAttemptStore:
        """Where handlers in a child process save their progress."""
        return RowAttemptStore(store=self.store, clock=self.clock)


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
