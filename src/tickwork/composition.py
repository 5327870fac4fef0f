"""The composition root: builds the services of an application when they are first used.

This is the only module that knows every part. A service is built under a lock, once; after
that it is a plain attribute, so that using it costs nothing. Schedules, read models and the
worker half are imported at their first use: a program that only dispatches loads none of them.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from tickwork._client.cleanup import Cleanup
from tickwork._client.dispatch import Dispatcher, DispatchTracer, RunInserter
from tickwork._client.jobs import plan_run
from tickwork._client.limits import Limits
from tickwork._client.pauses import Pauses
from tickwork._client.runs import RunHandle, Runs
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._client.workers import WorkerRequests
from tickwork._define.engine_choice import EngineRegistration
from tickwork._define.handlers import Construct
from tickwork._define.lifecycle import Lifecycle
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.schedules.pattern import SymbolRule
from tickwork._kernel.cipher import Cipher
from tickwork._kernel.clock import Clock, StoreClock, SystemClock, check_clock, is_manual
from tickwork._kernel.fork import reset_after_fork
from tickwork._kernel.loop import Loop
from tickwork._kernel.version import VERSION
from tickwork.errors import AlreadyStarted, InvalidOption, SchemaMissing, SchemaOutdated
from tickwork.events.bus import EventBus
from tickwork.settings import Settings
from tickwork.stores import open_store, would_install_block
from tickwork.stores.contract import Store

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from tickwork._client.audit import AuditLog
    from tickwork._client.catalog import Catalog
    from tickwork._client.locks import Locks
    from tickwork._client.schedule_rows import ScheduleRows
    from tickwork._client.schedules import Schedules
    from tickwork._domain.health import Check, WorkerState
    from tickwork._inspect.inspector import Inspector
    from tickwork._worker.options import WorkerOptions
    from tickwork._worker.watcher import Watcher
    from tickwork._worker.worker import Worker
    from tickwork.alerts.contract import AlertTarget
    from tickwork.engines.thread_caller import WaitFor
    from tickwork.export import CalendarExports
    from tickwork.worker_composition import WorkerServices

T = TypeVar("T")

ENGINES: Final[Mapping[str, EngineRegistration]] = {
    "thread": EngineRegistration("tickwork.engines.threads:ThreadEngine", "threads"),
    "async": EngineRegistration("tickwork.engines.asyncio_:AsyncEngine", "coroutines"),
    "process": EngineRegistration(
        "tickwork.engines.processes:ProcessEngine", "children", needs_import=True
    ),
    "celery": EngineRegistration(
        "tickwork.engines.celery:build_engine",
        "handovers",
        is_remote=True,
        check="tickwork.engines.celery:check_broker",
    ),
    "dask": EngineRegistration(
        "tickwork.engines.dask:build_engine",
        "handovers",
        is_remote=True,
        check="tickwork.engines.dask:check_scheduler",
    ),
    "dask_results": EngineRegistration(
        "tickwork.engines.dask_results:build_engine",
        is_optional=True,
        check="tickwork.engines.dask:check_scheduler",
    ),
}
"""The engines of tickwork. A program adds its own with ``Tickwork(engines=...)``."""

_KEPT: Final = {"opened_store", "clock"}
"""The services that are kept by ``close()`` and in a child process."""


class Application(Protocol):
    """The parts of an application that its services use."""

    settings: Settings
    registry: Registry
    events: EventBus
    construct: Construct
    lifecycle: Lifecycle
    wait_for: "WaitFor | None"
    symbols: dict[str, SymbolRule]
    path: str
    cipher: Cipher | None
    tracer: DispatchTracer | None
    engines: Mapping[str, EngineRegistration]
    engine_options: dict[str, Any]

    @property
    def alert_targets(self) -> "Sequence[AlertTarget]":
        """Where alerts go."""
        ...


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
    """The services of one application."""

    def __init__(
        self, app: Application, *, store: Store | None = None, clock: Clock | None = None
    ) -> None:
        self._app = app
        self._given_store = store
        self._given_clock = check_clock(clock)
        self._is_swapped = False
        self.bridge: ThreadBridge = ThreadBridge(lambda: self.opened_store.connections_max)
        self._reset()
        reset_after_fork(self)

    def _reset(self) -> None:
        self.building = threading.RLock()
        self._starting = threading.Lock()
        self._worker: Worker | None = None
        self._transaction_worker: tuple[object, WorkerServices] | None = None
        self._loop: AbstractEventLoop | None = None  # of the caller
        self._watch_loop: Loop | None = None

    def after_fork(self) -> None:
        """Reset in a child process, which has neither the threads nor the worker of the parent."""
        self._reset()
        self._drop(_built(self) - _KEPT)

    def close(self) -> None:
        """Close connections and threads. The next use opens them again."""
        self.bridge.close()
        if "own_worker" in self.__dict__:
            self.own_worker.close()
        self._transaction_worker = None
        self._drop(_built(self) - _KEPT)
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
        check_clock(clock)
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
        store = self.opened_store
        return self._given_clock or StoreClock(
            store.database_time, base=SystemClock(), every=store.clock_seconds
        )

    @built_once
    def store(self) -> Store:
        """The store, after its tables were checked, or created where settings allow it."""
        store = self.opened_store
        # An installation takes a lock, which the caller's transaction would keep.
        if self._app.settings.should_install and not (self._is_swapped and _has_schema(store)):
            store.install()
        store.check_schema()
        if self._app.cipher is None:
            return store
        from tickwork.stores.encrypted import EncryptedStore  # noqa: PLC0415  # loaded on demand

        return cast("Store", EncryptedStore(store, self._app.cipher))

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

    @property
    def tracer(self) -> DispatchTracer | None:
        """What follows runs from their dispatch to their attempts."""
        return self._app.tracer

    @built_once
    def catalog(self) -> "Catalog":
        """Writes definitions to the database."""
        return self._build_catalog()

    def _build_catalog(self) -> "Catalog":
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
        return RunInserter(store=self.store, bus=self._app.events, app=self._app)

    @built_once
    def runs(self) -> Runs:
        """Reads and changes runs."""
        return Runs(
            store=self.store,
            clock=self.clock,
            add=self.inserter.add,
            bridge=self.bridge,
            find=self._app.registry.find,
            check_wait=self._check_wait,
        )

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
    def worker_requests(self) -> WorkerRequests:
        """Requests to workers in other processes."""
        return WorkerRequests(store=self.store, clock=self.clock)

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

    @built_once
    def audit(self) -> "AuditLog":
        """The audit log of the dashboard and the API."""
        from tickwork._client.audit import AuditLog  # noqa: PLC0415  # see the module

        return AuditLog(store=self.store, clock=self.clock)

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

    @built_once
    def calendar_exports(self) -> "CalendarExports":
        """Schedules as calendars."""
        from tickwork.export import CalendarExports  # noqa: PLC0415  # see the module

        return CalendarExports(
            store=self.store, clock=self.clock, active=self.inspector.active_schedules
        )

    def check_health(self) -> "list[Check]":
        """Run the health checks. They work without tables, too."""
        from tickwork._inspect.engines import check_engines  # noqa: PLC0415  # see the module
        from tickwork._inspect.health import check_health  # noqa: PLC0415

        return [
            *check_health(
                self.opened_store,
                clock=self.clock,
                machine=SystemClock(),
                retire_after=self._app.settings.retire_after,
                version=VERSION,
            ),
            *check_engines(self._app.engines, self._app.registry, self._app.engine_options),
        ]

    def check_worker(self) -> "Check":
        """Check the workers of this machine."""
        from tickwork._inspect.health import check_worker  # noqa: PLC0415  # see the module
        from tickwork._kernel.processes import ThisProcess  # noqa: PLC0415

        return check_worker(self.opened_store, clock=self.clock, me=ThisProcess.current())

    # ------------------------------------------------------------ the worker half

    @property
    def worker(self) -> "WorkerServices":
        """The services that fire schedules and execute runs."""
        transaction = self.store.caller_transaction
        if transaction is None:
            return self.own_worker
        # Not own_worker: its services remember what they wrote, and this may be rolled back.
        if self._transaction_worker is None or self._transaction_worker[0] != transaction:
            built = self._build_worker(self._build_catalog(), has_threads=False)
            self._transaction_worker = transaction, built
        return self._transaction_worker[1]

    @built_once
    def own_worker(self) -> "WorkerServices":
        """The services of the worker half, outside of a transaction of the caller."""
        # No threads if a test moves the clock, or if all happens on a connection of the caller.
        has_threads = not (self._is_swapped or is_manual(self.clock))
        return self._build_worker(self.catalog, has_threads=has_threads)

    def _build_worker(self, catalog: "Catalog", *, has_threads: bool) -> "WorkerServices":
        from tickwork.worker_composition import WorkerServices  # noqa: PLC0415

        return WorkerServices(
            self._app,
            store=self.store,
            clock=self.clock,
            catalog=catalog,
            engines=self._app.engines,
            engine_options=self._app.engine_options,
            has_threads=has_threads,
            plan_run=partial(plan_run, Dispatcher(self, self._app.registry)),
            on_follow_ups=self.inserter.report_follow_ups,
        )

    def _check_wait(self) -> None:
        """Check that a wait for a run does not block the loop that may have to execute it."""
        if self._worker is not None and self._loop is not None:
            _check_not_blocked(self._loop, fix="Use `await run.aio.result()`.")

    def execute(self, run_id: RunId) -> RunHandle[Any]:
        """Claim exactly this run, and make an attempt at it here."""
        self.worker.execute(run_id)
        return self.runs.handle(run_id)

    def start_worker(
        self,
        options: "WorkerOptions | None",
        given: dict[str, Any],
        *,
        loop: "AbstractEventLoop | None" = None,
    ) -> None:
        """Start a worker in the background; its coroutines run on ``loop``, if it is given.

        Raises:
            AlreadyStarted: There is one.
            InvalidOption: The loop is not running, or would be blocked by this call.
        """
        if loop is not None:
            _check_loop(loop)
        with self._starting:
            if self._worker is not None:
                raise AlreadyStarted
            self._loop = loop
            worker = self.worker.build_worker(options, given, loop=loop)
            self._worker = worker  # before it starts: another thread may stop it meanwhile
            self.worker.log_capture.start()
            try:
                worker.start(on_registered=lambda: self.worker.log_start(worker))
            except BaseException:
                self._worker = None
                self.worker.log_capture.stop()
                raise
            self._start_watch()

    @built_once
    def watcher(self) -> "Watcher":
        """Raises alerts when schedules are late: see ``expect_within``."""
        from tickwork._worker.watcher import Watcher  # noqa: PLC0415  # see the module

        return Watcher(
            store=self.store,
            clock=self.clock,
            bus=self._app.events,
            targets=lambda: self._app.alert_targets,
            hooks_of=partial(_missed_hooks, self._app.registry),
            retire_after=self._app.settings.retire_after,
        )

    def watch(self, every: float, stop: threading.Event) -> None:
        """Raise alerts when schedules are late, until ``stop`` is set."""
        watcher = self.watcher
        watcher.every = every
        while not stop.is_set():
            watcher.try_step()
            stop.wait(watcher.pace())

    def _start_watch(self) -> None:
        """Raise alerts beside the worker, if the program has ``expect_within`` or alert targets."""
        registry = self._app.registry
        options = [each.options for each in registry.definitions().values()]
        options += [each.options for each in registry.schedules()]
        if self._app.alert_targets or any(each.expect_within is not None for each in options):
            watcher = self.watcher
            self._watch_loop = Loop(
                watcher.try_step, pace=watcher.pace, is_idle=lambda: False, name="tickwork-watch"
            )
            self._watch_loop.start()

    def worker_state(self) -> "WorkerState":
        """Return the state of the worker of this process."""
        from tickwork._domain.health import WorkerState  # noqa: PLC0415  # see the module

        worker = self._worker
        return WorkerState.ABSENT if worker is None else worker.state

    def stop_worker(self) -> None:
        """Stop claiming. Attempts that run may finish."""
        worker = self._worker
        if worker is not None:
            worker.stop()

    def join_worker(self) -> int:
        """Wait until the worker has stopped; return how many attempts could not be ended.

        Raises:
            InvalidOption: The coroutines of the worker run on the loop that calls this.
        """
        if self._worker is not None and self._loop is not None:
            _check_not_blocked(self._loop)
        with self._starting:
            worker = self._worker
        if worker is None:
            return 0
        worker.join()
        if self._watch_loop is not None:
            self._watch_loop.stop()
            self._watch_loop = None
        with self._starting:
            if self._worker is worker:
                self._worker = None
                self.worker.log_capture.stop()
                self.worker.log_stop(worker)
        return worker.left_behind


def _missed_hooks(registry: Registry, tenant: str, name: str) -> Sequence[Callable[..., object]]:
    """The hooks for missed firings of a schedule, if this program defines it."""
    for declaration in registry.schedules():
        if declaration.name == name and not tenant:
            is_own = not declaration.job or "on_missed" in declaration.options.explicit
            definition = None if is_own else registry.find(declaration.job_name)
            return (declaration if definition is None else definition).options.missed
    return ()


def _check_loop(loop: "AbstractEventLoop") -> None:
    _check_not_blocked(loop)
    if not loop.is_running():
        raise InvalidOption("loop", loop, "must be running", fix=_USE_RUNNING)


_USE_RUNNING: Final = "Use `async with app.aio.running():`."


def _check_not_blocked(loop: "AbstractEventLoop", *, fix: str = _USE_RUNNING) -> None:
    if sys.modules["asyncio"]._get_running_loop() is loop:  # noqa: SLF001  # with a loop, it is loaded
        raise InvalidOption(
            "loop",
            loop,
            "must run in another thread: this call would block it",
            fix=fix,
        )


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
