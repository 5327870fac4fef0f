"""Everything behind the face of an application, and who works with whom."""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tickwork._client.adding import Inlet
from tickwork._client.catalog import Catalog
from tickwork._client.control import Limits, Pauses
from tickwork._client.enqueue import Enqueuer
from tickwork._client.hops import Hops
from tickwork._client.locks import Locks
from tickwork._client.manual_runs import ManualRuns
from tickwork._client.runs import Runs
from tickwork._client.schedule_factory import Maker
from tickwork._client.schedule_rows import ScheduleRows
from tickwork._client.schedules import Schedules
from tickwork._define.definition import Definition
from tickwork._define.handlers import Construct
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._domain.schedules.pattern import Values
from tickwork._kernel.clock import Clock
from tickwork._kernel.loop import Loop
from tickwork._kernel.processes import ThisProcess
from tickwork._ticker.ticker import Ticker
from tickwork._upkeep.reaper import Reaper
from tickwork._worker.attempts import Attempts
from tickwork._worker.by_name import execute
from tickwork._worker.desk import StoreDesk
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork._worker.keeping import LogKeeper
from tickwork._worker.known import KnownJobs
from tickwork._worker.once import OnePass, Passed
from tickwork._worker.options import WorkerOptions
from tickwork._worker.reporting import Reporter
from tickwork._worker.stats import Stats
from tickwork._worker.timer import Timer
from tickwork._worker.worker import Worker
from tickwork.engines.inline import InlineEngine
from tickwork.engines.wire import Origin
from tickwork.events.bus import EventBus
from tickwork.settings import Settings
from tickwork.stores import Store
from tickwork.stores.contract import Ahead

if TYPE_CHECKING:
    from tickwork._client.explaining import Explainer
    from tickwork._client.inspect import Inspection


class Face(Protocol):
    """What services need to know of the application they work for."""

    settings: Settings
    registry: Registry
    events: EventBus
    construct: Construct
    symbols: dict[str, Mapping[str, Values]]

    @property
    def origin(self) -> Origin:
        """Where other processes find the application."""
        ...


class Services:
    """Everything behind the face, made when it is first needed.

    ``is_beating`` says that a handler that takes long needs a thread that beats for it.
    """

    def __init__(
        self, app: Face, store: Store, clock: Clock, hops: Hops, *, is_beating: bool = True
    ) -> None:
        settings = app.settings
        self.store = store
        self.clock = clock
        self.catalog = Catalog(
            store=store,
            clock=clock,
            registry=app.registry,
            timezone=settings.timezone,
            retire_after=settings.retire_after,
        )
        self.known = KnownJobs(store=store, registry=app.registry)
        self.ticker = Ticker(
            store=store,
            clock=clock,
            specs=self.known.specs,
            retire_after=settings.retire_after,
        )
        self.inlet = Inlet(store=store, bus=app.events)
        self.runs = Runs(store=store, clock=clock, inlet=self.inlet, hops=hops)
        self.enqueuer = Enqueuer(store=store, clock=clock, runs=self.runs, inlet=self.inlet)
        self.schedule_rows = ScheduleRows(
            store=store,
            clock=clock,
            registry=app.registry,
            maker=Maker(
                registry=app.registry,
                timezone=settings.timezone,
                symbols=app.symbols,
                size_max=settings.payload_max,
            ),
            retire_after=settings.retire_after,
        )
        self.schedules = Schedules(
            store=store,
            clock=clock,
            rows=self.schedule_rows,
            asked=ManualRuns(store=store, registry=app.registry, inlet=self.inlet, runs=self.runs),
            timezone=settings.timezone,
            retire_after=settings.retire_after,
        )
        self.pauses = Pauses(store=store, clock=clock, registry=app.registry)
        self.limits = Limits(store=store, clock=clock, registry=app.registry)
        self.locks = Locks(store=store, clock=clock)
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
            reporter=Reporter(bus=app.events, stats=self.stats),
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
            reporter=Reporter(bus=app.events, stats=self.stats),
        )
        self.reaper = Reaper(
            store=store,
            clock=clock,
            crashes_max=self.known.crashes_max,
            patience=self.known.pace_longest,
            me=ThisProcess.look(),
        )
        self._app = app

    @cached_property
    def inspection(self) -> "Inspection":
        """Read models, for whoever looks."""
        # Who only dispatches, or works, need not load what looks.
        from tickwork._client.inspect import Inspection  # noqa: PLC0415

        return Inspection(
            store=self.store,
            clock=self.clock,
            registry=self._app.registry,
            catalog=self.catalog,
            redact=self._app.settings.redact,
            retire_after=self._app.settings.retire_after,
        )

    @cached_property
    def explainer(self) -> "Explainer":
        """Why something has not run, for whoever asks."""
        from tickwork._client.explaining import Explainer  # noqa: PLC0415  # as above

        return Explainer(
            store=self.store,
            clock=self.clock,
            registry=self._app.registry,
            inspection=self.inspection,
            retire_after=self._app.settings.retire_after,
        )

    def seconds_to_next(self, longest: float) -> float:
        """How long until something falls due."""
        return self.timer.seconds_left(longest)

    def worker(self, options: WorkerOptions) -> Worker:
        """A worker that is ready to start."""
        # Who only dispatches need not load what works.
        from tickwork._wiring.workers import assembled  # noqa: PLC0415

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
            options=options,
            stats=self.stats,
            pumps=2 if is_server else 1,
            origin=lambda: self._app.origin,
        )

    def passes(
        self, batch: int, *, stop: threading.Event | None = None, ahead: Ahead | None = None
    ) -> Passed:
        """One pass, with what was said anew written down first.

        Whoever makes passes listens: what is logged is kept only inside ``keeper.listening()``.
        """
        self.catalog.refresh()
        return self.once.run(batch, stop=stop, ahead=ahead)

    def due(self, limit: int) -> list[Run]:
        """What could start now, with what was said anew written down first."""
        self.catalog.refresh()
        return self.once.due(limit)

    def execute(self, run_id: RunId) -> None:
        """Claim exactly this run, and make an attempt at it."""
        self.catalog.refresh()  # what code says about limits holds from the first run on
        with self.keeper.listening():
            execute(run_id, store=self.store, clock=self.clock, known=self.known, once=self.once)

    def close(self) -> None:
        """End what runs in the background."""
        self.beating.stop()
        self.engine.close()


class Door:
    """Where dispatches of one application go."""

    def __init__(
        self,
        services: Callable[[object], Services],
        registry: Registry,
        *,
        hops: Hops,
        has_to_ask: Callable[[], bool],
    ) -> None:
        self._services = services
        self._registry = registry
        self._has_to_ask = has_to_ask
        self.hops = hops

    @property
    def enqueuer(self) -> Enqueuer:
        """Adds runs."""
        return self._services(None).enqueuer

    def enqueuer_beside(self, connection: object) -> Enqueuer:
        """The same for runs in a transaction of this connection."""
        return self._services(connection).enqueuer

    @property
    def has_to_ask(self) -> bool:
        """Whether the next look would wait for the database."""
        return self._has_to_ask()

    def look(self, connection: object) -> tuple[Enqueuer, datetime]:
        """Who adds runs beside this connection, and what time it is for the database."""
        services = self._services(connection)
        return services.enqueuer, services.clock.now()

    def define(self, name: str) -> Definition:
        """The job of this name, as this process knows it."""
        return self._registry.get(name)
