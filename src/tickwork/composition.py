"""The composition root: builds the services of an application when they are first used.

This is the only module that knows every part. A service is built under a lock, once; after
that it is a plain attribute, so that using it costs nothing. Schedules, read models and the
worker half are imported at their first use: a program that only dispatches loads none of them.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from tickwork._client.cleanup import Cleanup
from tickwork._client.insert import RunInserter
from tickwork._client.limits import Limits
from tickwork._client.pauses import Pauses
from tickwork._client.runs import RunHandle, Runs
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._define.engine_choice import EngineRegistration
from tickwork._define.handlers import Construct
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.schedules.pattern import SymbolRule
from tickwork._kernel.clock import Clock, StoreClock, SystemClock, is_manual
from tickwork._kernel.fork import reset_after_fork
from tickwork._kernel.version import VERSION
from tickwork.errors import AlreadyStarted, SchemaMissing, SchemaOutdated
from tickwork.events.bus import EventBus
from tickwork.settings import Settings
from tickwork.stores import open_store, would_install_block
from tickwork.stores.contract import Store

if TYPE_CHECKING:
    from tickwork._client.catalog import Catalog
    from tickwork._client.locks import Locks
    from tickwork._client.schedule_rows import ScheduleRows
    from tickwork._client.schedules import Schedules
    from tickwork._domain.health import Check
    from tickwork._inspect.inspector import Inspector
    from tickwork._worker.options import WorkerOptions
    from tickwork._worker.worker import Worker
    from tickwork.worker_composition import WorkerServices

T = TypeVar("T")

ENGINES: Final[Mapping[str, EngineRegistration]] = {
    "thread": EngineRegistration("tickwork.engines.threads:ThreadEngine", "threads"),
    "async": EngineRegistration("tickwork.engines.asyncio_:AsyncEngine", "coroutines"),
    "process": EngineRegistration(
        "tickwork.engines.processes:ProcessEngine", "processes", needs_import=True
    ),
}
"""The engines that jobs can choose by name. To add an engine, add it here."""

_KEPT_BY_CLOSE: Final = {"opened_store", "clock"}


class Application(Protocol):
    """The parts of an application that its services use."""

    settings: Settings
    registry: Registry
    events: EventBus
    construct: Construct
    symbols: dict[str, SymbolRule]
    path: str


class built_once(Generic[T]):  # noqa: N801  # a decorator, as `cached_property` is
    """A service: built under the lock of its owner at the first use, then an attribute.

    ``functools.cached_property`` has no lock, or, up to Python 3.11, one for each property:
    two threads that build services for each other would then wait for each other.
    """

    def __init__(self, build: "Callable[[Services], T]") -> None:
        self._build = build
        self._name = build.__name__
        self.__doc__ = build.__doc__

    def __get__(self, services: "Services", owner: type | None = None) -> T:
        with services.building:
            built = services.__dict__
            if self._name not in built:
                built[self._name] = self._build(services)
            service: T = built[self._name]
            return service


class Services:
    """Everything that works behind one application."""

    def __init__(
        self, app: Application, *, store: Store | None = None, clock: Clock | None = None
    ) -> None:
        self._app = app
        self._given_store = store
        self._given_clock = clock
        self._is_swapped = False
        self.bridge: ThreadBridge = ThreadBridge(lambda: self.opened_store.connections_max)
        self._start_empty()
        reset_after_fork(self)

    def _start_empty(self) -> None:
        self.building = threading.RLock()
        self._starting = threading.Lock()
        self._worker: Worker | None = None

    def after_fork(self) -> None:
        """Start anew in a child process: threads and the worker of the parent are not here."""
        self._start_empty()
        if "worker" in self.__dict__:
            self.worker.log_capture.forget()
        self._drop(_built(self) - _KEPT_BY_CLOSE)

    def close(self) -> None:
        """Close connections and threads. The next use opens them again."""
        self.bridge.close()
        if "worker" in self.__dict__:
            self.worker.close()
        self._drop(_built(self) - _KEPT_BY_CLOSE)
        if "opened_store" in self.__dict__:
            self.opened_store.close()

    def _drop(self, names: set[str]) -> dict[str, Any]:
        return {name: self.__dict__.pop(name) for name in names}

    @contextmanager
    def swapped(self, store: Store, clock: Clock | None = None) -> Iterator[None]:
        """Use another store, and another clock, for a block.

        Raises:
            AlreadyStarted: A worker runs in the background. It would go on in the other store.
        """
        if self._worker is not None:
            raise AlreadyStarted
        kept = self._drop(_built(self))
        given = self._given_store, self._given_clock, self._is_swapped
        self._given_store, self._is_swapped = store, True
        if clock is not None:
            self._given_clock = clock
        try:
            yield
        finally:
            self.close()
            self._given_store, self._given_clock, self._is_swapped = given
            self._drop(_built(self))
            self.__dict__.update(kept)

    # ------------------------------------------------------------ store and clock

    @built_once
    def opened_store(self) -> Store:
        """The store, whether its tables exist or not."""
        return self._given_store or open_store(self._app.settings.url)

    @built_once
    def clock(self) -> Clock:
        """The clock of the application: by default the time of its database."""
        return self._given_clock or StoreClock(self.opened_store.database_time, base=SystemClock())

    @built_once
    def store(self) -> Store:
        """The store, after its tables were checked, or created where settings allow it."""
        store = self.opened_store
        # An installation takes a lock, which the caller's transaction would keep.
        if self._app.settings.is_installing and not (self._is_swapped and _has_schema(store)):
            store.install()
        store.check_schema()
        return store

    @property
    def would_block(self) -> bool:
        """Whether the next dispatch has to wait for the database before it can add a run."""
        clock = self.clock
        return "store" not in self.__dict__ or (isinstance(clock, StoreClock) and clock.is_stale)

    def check_connection(self, connection: object) -> None:
        """Check that creating the tables does not wait for this connection of the caller.

        Raises:
            SchemaMissing: It would.
        """
        if "store" not in self.__dict__ and would_install_block(connection, self.opened_store):
            raise SchemaMissing(self._app.settings.url, is_in_transaction=True)

    # ------------------------------------------------------------ the client half

    @built_once
    def catalog(self) -> "Catalog":
        """Writes definitions to the database."""
        from tickwork._client.catalog import Catalog  # noqa: PLC0415  # see the module

        return Catalog(
            store=self.store,
            clock=self.clock,
            registry=self._app.registry,
            timezone=self._app.settings.timezone,
            retire_after=self._app.settings.retire_after,
        )

    @built_once
    def inserter(self) -> RunInserter:
        """Adds runs."""
        return RunInserter(store=self.store, bus=self._app.events)

    @built_once
    def runs(self) -> Runs:
        """Reads and changes runs."""
        return Runs(store=self.store, clock=self.clock, inserter=self.inserter, bridge=self.bridge)

    @built_once
    def schedule_rows(self) -> "ScheduleRows":
        """Writes schedules."""
        from tickwork._client.schedule_factory import ScheduleFactory  # noqa: PLC0415
        from tickwork._client.schedule_rows import ScheduleRows  # noqa: PLC0415

        return ScheduleRows(
            store=self.store,
            clock=self.clock,
            registry=self._app.registry,
            factory=ScheduleFactory(
                registry=self._app.registry,
                timezone=self._app.settings.timezone,
                symbols=self._app.symbols,
                size_max=self._app.settings.payload_max,
            ),
            retire_after=self._app.settings.retire_after,
        )

    @built_once
    def schedules(self) -> "Schedules":
        """Schedules at run time."""
        from tickwork._client.manual_runs import ManualRuns  # noqa: PLC0415  # see the module
        from tickwork._client.schedules import Schedules  # noqa: PLC0415

        return Schedules(
            store=self.store,
            clock=self.clock,
            rows=self.schedule_rows,
            manual=ManualRuns(
                store=self.store,
                registry=self._app.registry,
                inserter=self.inserter,
                runs=self.runs,
            ),
            timezone=self._app.settings.timezone,
            retire_after=self._app.settings.retire_after,
        )

    @built_once
    def pauses(self) -> Pauses:
        """Pauses of queues and jobs."""
        return Pauses(store=self.store, clock=self.clock, registry=self._app.registry)

    @built_once
    def limits(self) -> Limits:
        """Limits at run time."""
        return Limits(store=self.store, clock=self.clock, registry=self._app.registry)

    @built_once
    def locks(self) -> "Locks":
        """Named locks."""
        from tickwork._client.locks import Locks  # noqa: PLC0415  # see the module

        return Locks(store=self.store, clock=self.clock)

    @built_once
    def cleanup(self) -> Cleanup:
        """Prunes old runs."""
        return Cleanup(store=self.store, clock=self.clock, registry=self._app.registry)

    # ------------------------------------------------------------ read models

    @built_once
    def inspector(self) -> "Inspector":
        """Read models for the CLI, the API and the pages."""
        from tickwork._inspect.inspector import Inspector  # noqa: PLC0415  # see the module

        return Inspector(
            store=self.store,
            clock=self.clock,
            registry=self._app.registry,
            catalog=self.catalog,
            redact=self._app.settings.redact,
            retire_after=self._app.settings.retire_after,
        )

    def check_health(self) -> "list[Check]":
        """Run the health checks. They work without tables, too."""
        from tickwork._inspect.health import check_health  # noqa: PLC0415  # see the module

        return check_health(
            self.opened_store,
            clock=self.clock,
            machine=SystemClock(),
            retire_after=self._app.settings.retire_after,
            version=VERSION,
        )

    # ------------------------------------------------------------ the worker half

    @built_once
    def worker(self) -> "WorkerServices":
        """The services that fire schedules and execute runs."""
        from tickwork.worker_composition import WorkerServices  # noqa: PLC0415

        return WorkerServices(
            self._app,
            store=self.store,
            clock=self.clock,
            catalog=self.catalog,
            engines=ENGINES,
            # Not while a test moves the clock, or all happens in a transaction of the caller.
            has_threads=not (self._is_swapped or is_manual(self.clock)),
        )

    def execute(self, run_id: RunId) -> RunHandle:
        """Claim exactly this run, and make an attempt at it here."""
        self.worker.execute(run_id)
        return self.runs.handle(run_id)

    def start_worker(self, options: "WorkerOptions | None", given: dict[str, Any]) -> None:
        """Start a worker in the background.

        Raises:
            AlreadyStarted: There is one.
        """
        with self._starting:
            if self._worker is not None:
                raise AlreadyStarted
            worker = self.worker.build_worker(options, given)
            self._worker = worker  # before it starts: another thread may stop it meanwhile
            self.worker.log_capture.enable()
            try:
                worker.start()
            except BaseException:
                self._worker = None
                self.worker.log_capture.enable(is_on=False)
                raise

    def stop_worker(self) -> None:
        """Stop claiming. Attempts that run may finish."""
        worker = self._worker
        if worker is not None:
            worker.stop()

    def join_worker(self) -> int:
        """Wait until the worker has stopped; return the attempts that could not be ended."""
        with self._starting:
            worker = self._worker
        if worker is None:
            return 0
        worker.join()
        with self._starting:
            if self._worker is worker:
                self._worker = None
                self.worker.log_capture.enable(is_on=False)
        return worker.left_behind


def _built(services: Services) -> set[str]:
    """The names of the services that are built."""
    kinds = vars(Services)
    return {name for name in services.__dict__ if isinstance(kinds.get(name), built_once)}


def _has_schema(store: Store) -> bool:
    try:
        store.check_schema()
    except (SchemaMissing, SchemaOutdated):
        return False
    return True
