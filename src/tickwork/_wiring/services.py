"""Everything behind the face of an application, and who works with whom."""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tickwork._client.catalog import Catalog
from tickwork._client.control import Limits, Pauses
from tickwork._client.enqueue import Enqueuer
from tickwork._client.insert import RunInserter
from tickwork._client.locks import Locks
from tickwork._client.manual_runs import ManualRuns
from tickwork._client.runs import Runs
from tickwork._client.schedule_factory import ScheduleFactory
from tickwork._client.schedule_rows import ScheduleRows
from tickwork._client.schedules import Schedules
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._define.definition import Definition
from tickwork._define.handlers import Construct
from tickwork._define.registry import Registry
from tickwork._domain.schedules.pattern import Values
from tickwork._kernel.clock import Clock
from tickwork.events.bus import EventBus
from tickwork.settings import Settings
from tickwork.stores import Store

if TYPE_CHECKING:
    from tickwork._inspect.inspector import Inspector
    from tickwork._wiring.worker_services import WorkerServices


class Face(Protocol):
    """The parts of an application that its services use."""

    settings: Settings
    registry: Registry
    events: EventBus
    construct: Construct
    symbols: dict[str, Mapping[str, Values]]
    path: str


class Services:
    """Everything behind the face, made when it is first needed.

    ``is_beating`` says that a handler that takes long needs a thread that beats for it.
    """

    def __init__(
        self,
        app: Face,
        store: Store,
        clock: Clock,
        bridge: ThreadBridge,
        *,
        is_beating: bool = True,
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
        self.inserter = RunInserter(store=store, bus=app.events)
        self.runs = Runs(store=store, clock=clock, inserter=self.inserter, bridge=bridge)
        self.enqueuer = Enqueuer(store=store, clock=clock, runs=self.runs, inserter=self.inserter)
        self.schedule_rows = ScheduleRows(
            store=store,
            clock=clock,
            registry=app.registry,
            factory=ScheduleFactory(
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
            manual=ManualRuns(
                store=store, registry=app.registry, inserter=self.inserter, runs=self.runs
            ),
            timezone=settings.timezone,
            retire_after=settings.retire_after,
        )
        self.pauses = Pauses(store=store, clock=clock, registry=app.registry)
        self.limits = Limits(store=store, clock=clock, registry=app.registry)
        self.locks = Locks(store=store, clock=clock)
        self._is_beating = is_beating
        self._building = threading.Lock()
        self._app = app

    @cached_property
    def inspector(self) -> "Inspector":
        """Read models, for whoever looks."""
        # Who only dispatches, or works, need not load what looks.
        from tickwork._inspect.inspector import Inspector  # noqa: PLC0415

        return Inspector(
            store=self.store,
            clock=self.clock,
            registry=self._app.registry,
            catalog=self.catalog,
            redact=self._app.settings.redact,
            retire_after=self._app.settings.retire_after,
        )

    @cached_property
    def worker(self) -> "WorkerServices":
        """The worker half: built, and its modules loaded, when a run is to be executed."""
        from tickwork._wiring.worker_services import WorkerServices  # noqa: PLC0415

        with self._building:
            built: WorkerServices | None = self.__dict__.get("worker")
            if built is None:
                built = self.__dict__["worker"] = WorkerServices(
                    self._app,
                    store=self.store,
                    clock=self.clock,
                    catalog=self.catalog,
                    is_beating=self._is_beating,
                )
            return built

    def close(self) -> None:
        """End what runs in the background."""
        if "worker" in self.__dict__:
            self.worker.close()

    def after_fork(self) -> None:
        """Take the parent's log handler off the loggers of this child process."""
        if "worker" in self.__dict__:
            self.worker.keeper.forget()


class Door:
    """Where dispatches of one application go."""

    def __init__(
        self,
        services: Callable[[object], Services],
        registry: Registry,
        *,
        bridge: ThreadBridge,
        has_to_ask: Callable[[], bool],
    ) -> None:
        self._services = services
        self._registry = registry
        self._has_to_ask = has_to_ask
        self.bridge = bridge

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
