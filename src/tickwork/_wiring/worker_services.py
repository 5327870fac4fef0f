"""The worker half of an application: everything that fires schedules and executes runs.

A process that only dispatches never imports this module.
"""

import sys
import threading
from functools import partial
from typing import Any, Final, Protocol

from tickwork._client.catalog import Catalog
from tickwork._define.handlers import Construct
from tickwork._define.options import Length
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration
from tickwork._kernel.loop import Loop
from tickwork._kernel.origins import place_of
from tickwork._kernel.processes import ThisProcess
from tickwork._ticker.ticker import Ticker
from tickwork._upkeep.reaper import Reaper
from tickwork._wiring.workers import assembled
from tickwork._worker.attempts import Attempts
from tickwork._worker.by_name import execute
from tickwork._worker.desk import StoreDesk
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork._worker.keeping import LogKeeper
from tickwork._worker.known import KnownJobs
from tickwork._worker.once import OnePass, Passed, attempts_in
from tickwork._worker.options import WorkerOptions, worker_options
from tickwork._worker.reporting import Reporter
from tickwork._worker.stats import Stats
from tickwork._worker.timer import Timer
from tickwork._worker.worker import Worker
from tickwork.engines.inline import InlineEngine
from tickwork.engines.wire import Here, Origin
from tickwork.errors import InvalidOption, TickworkError
from tickwork.events.bus import EventBus
from tickwork.settings import Settings
from tickwork.stores import Store
from tickwork.stores.contract import Ahead

BATCH_MAX: Final = 500
DUE_MAX: Final = 10_000
COLLECT_POLL: Final = 0.2
"""Seconds that ``collect`` sleeps at most before it looks for due runs again."""


class WorkedApp(Protocol):
    """The parts of an application that its worker half uses."""

    settings: Settings
    registry: Registry
    events: EventBus
    construct: Construct
    path: str


class WorkerServices:
    """The services that execute runs, on the store and the clock of the client half.

    ``is_beating`` is False when no thread may extend leases: time stands still, or nobody
    else can see the claims.
    """

    def __init__(
        self, app: WorkedApp, *, store: Store, clock: Clock, catalog: Catalog, is_beating: bool
    ) -> None:
        self._app = app
        self.store = store
        self.clock = clock
        self.catalog = catalog
        self.known = KnownJobs(store=store, registry=app.registry)
        self.ticker = Ticker(
            store=store,
            clock=clock,
            specs=self.known.specs,
            retire_after=app.settings.retire_after,
        )
        self.stats = Stats()
        self.keeper = LogKeeper(now=clock.now)
        self.held = HeldRuns()
        self.heartbeat = Heartbeat(
            store=store, held=self.held, clock=clock, lease_of=self.known.lease_of
        )
        self.beating = Loop(
            self.heartbeat.step,
            pace=self.heartbeat.pace,
            is_idle=lambda: not len(self.held),
            name="tickwork-heartbeat",
        )
        self.engine = InlineEngine(clock=clock, construct=lambda: app.construct)
        reporter = Reporter(bus=app.events, stats=self.stats)
        self.once = OnePass(
            store=store,
            clock=clock,
            tick=self.ticker.tick,
            next_firing_at=self.ticker.next_at,
            known=self.known,
            attempts=Attempts(
                clock=clock,
                desk=StoreDesk(store=store, clock=clock, heartbeat=self.heartbeat),
                bus=app.events,
                find=self.known.find,
            ),
            engine=self.engine,
            reporter=reporter,
            keeper=self.keeper,
            held=self.held,
            heartbeat=self.heartbeat,
            keep_alive=self.beating.start if is_beating else lambda: None,
        )
        self.timer = Timer(
            store=store,
            clock=clock,
            tick=self.ticker.tick,
            next_firing_at=self.ticker.next_at,
            reporter=reporter,
        )
        self.reaper = Reaper(
            store=store,
            clock=clock,
            crashes_max=self.known.crashes_max,
            patience=self.known.pace_longest,
            me=ThisProcess.current(),
        )

    # ------------------------------------------------------------ one pass, in this thread

    def run(self, batch: int, stop: threading.Event) -> int:
        """Make one pass; return the number of attempts."""
        if not 1 <= batch <= BATCH_MAX:
            raise InvalidOption("batch", batch, f"must be between 1 and {BATCH_MAX}")
        with self.keeper.listening():
            return attempts_in(self.passes(batch, stop=stop).steps)

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
            stop.wait(min(left, self.timer.seconds_left(COLLECT_POLL)))

    def passes(
        self, batch: int, *, stop: threading.Event | None = None, ahead: Ahead | None = None
    ) -> Passed:
        """Make one pass. Log records are kept only inside ``keeper.listening()``."""
        self.catalog.refresh()
        return self.once.run(batch, stop=stop, ahead=ahead)

    def due(self, limit: int) -> list[Run]:
        """List the runs that this process could start now."""
        if not 1 <= limit <= DUE_MAX:
            raise InvalidOption("limit", limit, f"must be between 1 and {DUE_MAX}")
        self.catalog.refresh()
        return self.once.due(limit)

    def execute(self, run_id: RunId) -> None:
        """Claim exactly this run, and make an attempt at it."""
        self.catalog.refresh()  # the limits in code apply from the first run on
        with self.keeper.listening():
            execute(run_id, store=self.store, clock=self.clock, known=self.known, once=self.once)

    def close(self) -> None:
        """Stop the heartbeat thread and the inline engine."""
        self.beating.stop()
        self.engine.close()

    # ------------------------------------------------------------ a worker in the background

    def worker(self, options: WorkerOptions | None, given: dict[str, Any]) -> Worker:
        """Build a worker that is ready to start.

        Raises:
            TickworkError: This is a child process of another worker.
        """
        if Here.is_child:
            raise TickworkError(
                "This is a child process of a worker: it starts none itself.",
                why="The module of the application starts a worker when it is imported.",
                fix='Put the start below `if __name__ == "__main__":`.',
            )
        self.catalog.refresh()
        self.known.look()
        # SQLite has one writer at a time: a second pump would only wait for the first.
        is_server = not self._app.settings.url.startswith(("sqlite", "memory"))
        return assembled(
            store=self.store,
            clock=self.clock,
            known=self.known,
            catalog=self.catalog,
            ticker=self.ticker,
            bus=self._app.events,
            keeper=self.keeper,
            construct=lambda: self._app.construct,
            options=options or worker_options(**given),
            stats=self.stats,
            pumps=2 if is_server else 1,
            origin=partial(find_origin, self._app),
        )

    @property
    def desk(self) -> StoreDesk:
        """Where handlers in a child process save their progress."""
        return StoreDesk(store=self.store, clock=self.clock)


def find_origin(app: WorkedApp) -> Origin:
    """Where other processes find an application.

    Raises:
        InvalidOption: No module has it under a name.
    """
    if app.path:
        module, _, attribute = app.path.partition(":")
        return Origin(module, attribute or "app", "", tuple(sys.path))
    place = place_of(app)
    if place is None:
        raise InvalidOption(
            "engine",
            "process",
            "must be 'async' or 'thread' for an application that no module holds",
            fix="Assign the application at the top of a module: app = Tickwork(...).",
        )
    return Origin(place.module, place.attribute, place.file, tuple(sys.path))
