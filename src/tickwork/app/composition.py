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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tickwork._control.cleanup import Cleanup
from tickwork._control.limits import Limits
from tickwork._control.pauses import Pauses
from tickwork._control.workers import WorkerRequests
from tickwork._define.engine_choice import EngineRegistration
from tickwork._define.registry import Registry
from tickwork._dispatch.dispatch import Dispatcher, DispatchTracer, RunInserter, StoredLimits
from tickwork._dispatch.jobs import plan_run
from tickwork._dispatch.runs import RunHandle, Runs
from tickwork._dispatch.thread_bridge import ThreadBridge
from tickwork._domain.identity import RunId
from tickwork._domain.names import NAME_MAX
from tickwork._kernel.clock import Clock, StoreClock, SystemClock, check_clock, is_manual
from tickwork._kernel.fork import reset_after_fork
from tickwork._kernel.import_location import name_program
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.version import VERSION
from tickwork._stores import open_store, would_install_block
from tickwork._stores.contract import Store
from tickwork.app.application import Application
from tickwork.errors import AlreadyStarted, InvalidOption, SchemaMissing, SchemaOutdated

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from tickwork._control.audit import AuditLog
    from tickwork._control.catalog import Catalog
    from tickwork._control.locks import Locks
    from tickwork._control.schedule_changes import ScheduleWriter
    from tickwork._control.schedule_rows import ScheduleRows
    from tickwork._control.schedules import Schedules
    from tickwork._dispatch.callbacks import Callbacks
    from tickwork._dispatch.emitter import Emitter
    from tickwork._domain.health import Check, UnwrittenOutcomes, WorkerState
    from tickwork._inspect.inspector import Inspector
    from tickwork._watch.alert_recorder import AlertRecorder
    from tickwork._watch.watcher import Watcher
    from tickwork._worker.attempt_core import WorkerContext
    from tickwork._worker.options import WorkerOptions
    from tickwork._worker.pass_pool import PassPool
    from tickwork._worker.remote_worker import RemoteWorker
    from tickwork._worker.worker import Worker
    from tickwork.alerts.contract import AlertTarget, FailureWatch
    from tickwork.export import CalendarExports

T = TypeVar("T")

_log: Final = get_logger("tickwork.store")

ENGINES: Final[Mapping[str, EngineRegistration]] = {
    "thread": EngineRegistration("tickwork._engines.local.threads:ThreadEngine", "threads"),
    "async": EngineRegistration("tickwork._engines.local.asyncio_:AsyncEngine", "coroutines"),
    "process": EngineRegistration(
        "tickwork._engines.local.processes:ProcessEngine", "children", needs_import=True
    ),
    "celery": EngineRegistration(
        "tickwork._engines.remote.celery:build_engine",
        "handovers",
        is_remote=True,
        check="tickwork._engines.remote.celery:check_broker",
    ),
    "dask": EngineRegistration(
        "tickwork._engines.remote.dask:build_engine",
        "handovers",
        is_remote=True,
        check="tickwork._engines.remote.dask:check_scheduler",
    ),
    "dask_results": EngineRegistration(
        "tickwork._engines.remote.dask_results:build_engine",
        is_optional=True,
        check="tickwork._engines.remote.dask:check_scheduler",
    ),
}
"""The engines of tickwork. A program adds its own with ``Tickwork(engines=...)``."""

_KEPT: Final = {"opened_store", "clock"}
"""The services that are kept by ``close()`` and in a child process."""


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
        self._transaction_passes: tuple[object, PassPool] | None = None
        self._loop: AbstractEventLoop | None = None  # of the caller

    def after_fork(self) -> None:
        """Reset in a child process, which has neither the threads nor the worker of the parent."""
        self._reset()
        self._drop(_built(self) - _KEPT)

    def close(self) -> None:
        """Close connections and threads. The next use opens them again."""
        self.bridge.close()
        if "remote_worker" in self.__dict__:
            self.remote_worker.stop()
        if "own_passes" in self.__dict__:
            self.own_passes.close()
        self._transaction_passes = None
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
        kept_choice = self._given_store, self._given_clock, self._is_swapped
        self._given_store, self._is_swapped = store, True
        if clock is not None:
            self._given_clock = clock
        try:
            yield
        finally:
            self.close()
            self._given_store, self._given_clock, self._is_swapped = kept_choice
            self._drop(_built(self))
            self.__dict__.update(kept)

    # ------------------------------------------------------------ store and clock

    @built_once
    def opened_store(self) -> Store:
        """The store, whether its tables exist or not."""
        store = self._given_store or open_store(self._app.settings.url)
        cipher = self._app.cipher
        return store if cipher is None else store.with_cipher(cipher)

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
        path = Path(getattr(store, "path", "."))
        if "url" not in self._app.settings.sources and not path.exists():
            _log.warning("No URL is configured, so the database is the new file %s.", path)
        # An installation takes a lock, which the caller's transaction would keep.
        if self._app.settings.should_install and not (self._is_swapped and _has_schema(store)):
            store.install()
        store.check_schema()
        return store

    def install(self) -> int:
        """Create or upgrade the tables, and check them."""
        store = self.opened_store
        version = store.install()
        store.check_schema()
        store.check_tables()
        return version

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
        from tickwork._control.catalog import Catalog  # noqa: PLC0415  # see the module

        return Catalog(
            store=self.store,
            writer=self.schedule_writer,
            clock=self.clock,
            registry=self._app.registry,
            audit=self.audit,
            timezone=self._app.settings.timezone,
            retire_after=self._app.settings.retire_after,
            version=self._app.settings.version,
            application=_name_of(self._app),
        )

    @built_once
    def schedule_writer(self) -> "ScheduleWriter":
        """Changes rows of schedules."""
        from tickwork._control.schedule_changes import ScheduleWriter  # noqa: PLC0415  # see the module

        return ScheduleWriter(store=self.store, bus=self._app.events)

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
            find_emitter=lambda: self.emitter,
            check_wait=self._check_wait,
        )

    @built_once
    def schedule_rows(self) -> "ScheduleRows":
        """Writes schedules."""
        from tickwork._control.schedule_factory import ScheduleFactory  # noqa: PLC0415
        from tickwork._control.schedule_rows import ScheduleRows  # noqa: PLC0415

        return ScheduleRows(
            store=self.store,
            writer=self.schedule_writer,
            clock=self.clock,
            registry=self._app.registry,
            factory=ScheduleFactory(
                registry=self._app.registry,
                timezone=self._app.settings.timezone,
                symbols=self._app.symbols,
                calendars=self._app.calendars,
                size_max=self._app.settings.payload_max,
            ),
            retire_after=self._app.settings.retire_after,
        )

    @built_once
    def schedules(self) -> "Schedules":
        """Schedules at run time."""
        from tickwork._control.schedules import Schedules  # noqa: PLC0415
        from tickwork._dispatch.manual_runs import ManualRuns  # noqa: PLC0415  # see the module

        return Schedules(
            store=self.store,
            writer=self.schedule_writer,
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
    def emitter(self) -> "Emitter":
        """Stores events."""
        from tickwork._dispatch.emitter import Emitter  # noqa: PLC0415  # few programs emit events

        return Emitter(
            store=self.store,
            bus=self._app.events,
            clock=self.clock,
            registry=self._app.registry,
        )

    @built_once
    def callbacks(self) -> "Callbacks":
        """Makes and reads links that answer a wait."""
        from tickwork._dispatch.callbacks import Callbacks  # noqa: PLC0415  # few programs have links

        settings = self._app.settings
        return Callbacks(
            store=self.store,
            clock=self.clock,
            runs=self.runs,
            secrets=settings.callback_secret,
            dashboard_url=settings.dashboard_url,
        )

    @built_once
    def stored_limits(self) -> StoredLimits:
        """The limits that dispatches of remote jobs count against."""
        return StoredLimits(store=self.store, clock=self.clock)

    @built_once
    def locks(self) -> "Locks":
        """Named locks."""
        from tickwork._control.locks import Locks  # noqa: PLC0415  # see the module

        return Locks(store=self.store, clock=self.clock)

    @built_once
    def cleanup(self) -> Cleanup:
        """Prunes old runs."""
        return Cleanup(store=self.store, clock=self.clock, registry=self._app.registry)

    @built_once
    def audit(self) -> "AuditLog":
        """The audit log of the dashboard and the API."""
        from tickwork._control.audit import AuditLog  # noqa: PLC0415  # see the module

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

        return [
            *self._check_database(),
            *check_engines(self._app.engines, self._app.registry, self._app.engine_options),
        ]

    def _check_database(self) -> "list[Check]":
        from tickwork._inspect.health import check_health  # noqa: PLC0415  # see the module

        return check_health(
            self.opened_store,
            clock=self.clock,
            machine=SystemClock(),
            retire_after=self._app.settings.retire_after,
            version=VERSION,
        )

    def check_worker(self) -> "Check":
        """Check the workers of this machine."""
        from tickwork._inspect.health import check_worker  # noqa: PLC0415  # see the module
        from tickwork._kernel.processes import ThisProcess  # noqa: PLC0415

        return check_worker(self.opened_store, clock=self.clock, me=ThisProcess.current())

    # ------------------------------------------------------------ the worker half

    @property
    def passes(self) -> "PassPool":
        """What fires schedules and executes runs in the calling thread."""
        transaction = self.store.caller_transaction
        if transaction is None:
            return self.own_passes
        # Not own_passes: its services remember what they wrote, and this may be rolled back.
        if self._transaction_passes is None or self._transaction_passes[0] != transaction:
            context = self._build_worker_context(self._build_catalog())
            self._transaction_passes = transaction, self._build_passes(context, has_threads=False)
        return self._transaction_passes[1]

    @built_once
    def own_passes(self) -> "PassPool":
        """The same, outside of a transaction of the caller."""
        # No threads if a test moves the clock, or if all happens on a connection of the caller.
        has_threads = not (self._is_swapped or is_manual(self.clock))
        return self._build_passes(self.worker_context, has_threads=has_threads)

    def _build_passes(self, context: "WorkerContext", *, has_threads: bool) -> "PassPool":
        from tickwork._worker.pass_pool import PassPool  # noqa: PLC0415  # see the module

        return PassPool(context, wait_for=self._app.wait_for, has_threads=has_threads)

    @built_once
    def worker_context(self) -> "WorkerContext":
        """What the worker of this process, its single passes and remote engines share.

        A worker uses every table, so it checks them before it starts.
        """
        self.store.check_tables()
        return self._build_worker_context(self.catalog)

    def _build_worker_context(self, catalog: "Catalog") -> "WorkerContext":
        from tickwork.app.worker_composition import build_context  # noqa: PLC0415  # see the module

        return build_context(
            self._app,
            store=self.store,
            clock=self.clock,
            refresh_catalog=catalog.refresh,
            plan_run=partial(plan_run, Dispatcher(self, self._app.registry)),
            find_callbacks=lambda: self.callbacks,
            decode_result=self.runs.decode_result,
            on_follow_ups=self.inserter.report_follow_ups,
        )

    @built_once
    def remote_worker(self) -> "RemoteWorker":
        """Executes runs that a worker handed over to this process."""
        from tickwork.app.worker_composition import build_remote_worker  # noqa: PLC0415

        return build_remote_worker(self.worker_context)

    def _check_wait(self) -> None:
        """Check that a wait for a run does not block the loop that may have to execute it."""
        if self._worker is not None and self._loop is not None:
            _check_not_blocked(self._loop, fix="Use `await run.aio.result()`.")

    def execute(self, run_id: RunId) -> RunHandle[Any]:
        """Claim exactly this run, and make an attempt at it here."""
        self.passes.execute(run_id)
        return self.runs.handle(run_id)

    def start_worker(
        self,
        options: "WorkerOptions | None",
        changes: dict[str, Any],
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
            from tickwork.app.worker_composition import build_background_worker  # noqa: PLC0415

            self._loop = loop
            context = self.worker_context
            worker = build_background_worker(
                context,
                options,
                changes,
                loop=loop,
                watcher=self.watcher if self._has_alerts() else None,
                recorder=self.build_alert_recorder(),
            )
            self._worker = worker  # before it starts: another thread may stop it meanwhile
            context.log_capture.start()
            try:
                worker.start()
            except BaseException:
                self._worker = None
                context.log_capture.stop()
                raise

    @built_once
    def watcher(self) -> "Watcher":
        """Raises alerts when schedules are late or jobs keep failing."""
        from tickwork._watch.watcher import Watcher  # noqa: PLC0415  # see the module

        return Watcher(
            store=self.store,
            clock=self.clock,
            bus=self._app.events,
            targets=self._alert_targets,
            hooks_of=partial(_missed_hooks, self._app.registry),
            failures=self._failure_watches,
            retire_after=self._app.settings.retire_after,
        )

    def build_alert_recorder(self) -> "AlertRecorder":
        """Build what keeps the history of alerts while no page is open."""
        from tickwork._watch.alert_recorder import AlertRecorder  # noqa: PLC0415  # see the module

        return AlertRecorder(
            store=self.store,
            clock=self.clock,
            # Engines have no history, and may take seconds to answer.
            find=lambda: self.inspector.find_alerts(self._check_database()),
        )

    def watch(self, every: float, stop: threading.Event) -> None:
        """Raise alerts when schedules are late or jobs keep failing, until ``stop`` is set."""
        watcher = self.watcher
        watcher.every = every
        recorder = self.build_alert_recorder()
        recorder.start()
        try:
            while not stop.is_set():
                watcher.try_step()
                stop.wait(watcher.pace())
        finally:
            recorder.stop()

    def _has_alerts(self) -> bool:
        """Whether the program has ``expect_within``, watches jobs, or has alert targets."""
        registry = self._app.registry
        options = [each.options for each in registry.definitions().values()]
        options += [each.options for each in registry.schedules()]
        is_expected = any(each.expect_within is not None for each in options)
        return bool(self._alert_targets() or self._failure_watches()) or is_expected

    def _alert_targets(self) -> "Sequence[AlertTarget]":
        settings = self._app.alert_settings
        return () if settings is None else settings.targets

    def _failure_watches(self) -> "Mapping[str | None, FailureWatch]":
        settings = self._app.alert_settings
        return {} if settings is None else settings.failure_watches

    def worker_state(self) -> "WorkerState":
        """Return the state of the worker of this process."""
        from tickwork._domain.health import WorkerState  # noqa: PLC0415  # see the module

        worker = self._worker
        return WorkerState.ABSENT if worker is None else worker.state

    def unwritten_outcomes(self) -> "UnwrittenOutcomes | None":
        """Return the outcomes that the worker of this process keeps in memory."""
        worker = self._worker
        return None if worker is None else worker.find_unwritten()

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
        with self._starting:
            if self._worker is worker:
                self._worker = None
                self.worker_context.log_capture.stop()
        return worker.left_behind


def _name_of(app: Application) -> str:
    """The name of the program: the same wherever and however it was started."""
    if app.settings.name:
        return app.settings.name
    if app.is_configuration:
        return Path(app.config_files[0]).name
    return name_program(app.created_in)[:NAME_MAX]


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
