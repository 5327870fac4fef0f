"""The application class. Each of its public methods calls a service."""

# The first overload that matches decides.
# mypy: disable-error-code="overload-overlap"

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import datetime
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, Unpack, overload

from tickwork._calendars.calendars import Calendars, CalendarSource
from tickwork._config.settings import (
    CONFIG_FILE,
    Settings,
    read_document,
    read_settings,
    report_late_settings,
    settings_in,
)
from tickwork._control.cleanup import PRUNE_BATCH
from tickwork._control.limits import Limits
from tickwork._define.engine_choice import EngineRegistration, add_engines
from tickwork._define.options import Duration, JobDefaults, JobKeywords
from tickwork._define.registry import Registry
from tickwork._dispatch.builder import JobBuilder, JobFactory, ScheduleBuilder
from tickwork._dispatch.decorator import JobDecorator
from tickwork._dispatch.dispatch import Dispatcher, DispatchTracer
from tickwork._dispatch.jobs import Draft, Job, JobOrName, OpenDraft
from tickwork._dispatch.runs import RunHandle, Runs
from tickwork._domain.identity import RunId
from tickwork._domain.names import check_name
from tickwork._domain.runs.run import Run
from tickwork._domain.schedules.pattern import SYMBOLS, SymbolRule
from tickwork._handlers.handler_types import (
    OpenClass,
    OpenFunction,
    PlainClass,
    PlainFunction,
    RunClass,
    RunFunction,
)
from tickwork._handlers.handlers import Construct, construct_plainly
from tickwork._handlers.lifecycle import Lifecycle
from tickwork._handlers.middleware import Middleware
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When
from tickwork._kernel.signals import stop_on_signals
from tickwork._masks.url import mask_url
from tickwork._payload.payload_types import Codec
from tickwork._stores.cipher import Cipher, EncryptionKey, make_cipher
from tickwork._stores.contract import Pause, Pruned, Store, WorkerRow
from tickwork.app.composition import ENGINES, Services
from tickwork.events.bus import EventBus

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    import click

    from tickwork._config.toml_document import Document
    from tickwork._control.audit import AuditLog, IdempotentDispatcher
    from tickwork._control.locks import Lock
    from tickwork._control.schedules import Schedules
    from tickwork._dispatch.callbacks import Callbacks
    from tickwork._dispatch.emitter import Emitted
    from tickwork._domain.explain import Explanation
    from tickwork._domain.health import Check, UnwrittenOutcomes, WorkerState
    from tickwork._engines.contract import EngineFactory
    from tickwork._engines.local.thread_caller import WaitFor
    from tickwork._engines.wire import AppLocation
    from tickwork._inspect.inspector import Inspector
    from tickwork._worker.attempts.attempt_store import RowAttemptStore
    from tickwork._worker.attempts.stats import Stats
    from tickwork._worker.options import WorkerOptions
    from tickwork.alerts.registry import Alerts
    from tickwork.app.async_tickwork import AsyncTickwork
    from tickwork.events import Event
    from tickwork.export import CalendarExports

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound="Event")
M = TypeVar("M", bound=Middleware)
F = TypeVar("F", bound=Callable[[], Any])

_INTERNAL: Final = frozenset(
    {
        *("alert_settings", "attempt_store", "calendars", "callbacks", "cipher", "config_files"),
        *("created_in",),
        *("defaults", "engines", "events", "is_configuration", "lifecycle", "location", "path"),
        *("registry", "tracer", "wait_for"),
    }
)
"""What services use of their application, and users do not: not offered by completion."""


class Tickwork:
    """Jobs, schedules and runs on one database.

    >>> app = Tickwork("memory://")
    >>> @app.job(queue="emails")
    ... def greet(name: str) -> str:
    ...     return f"Hello {name}"
    >>> run = greet.dispatch(name="Ann")
    >>> app.run()
    1
    >>> run.result()
    'Hello Ann'
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        timezone: str | None = None,
        install: bool | None = None,
        handler_paths: Iterable[str] | None = None,
        redact: Iterable[str] | None = None,
        payload_max: int | None = None,
        retire_after: Duration | None = None,
        version: str | None = None,
        dashboard_url: str | None = None,
        callback_secret: str | Sequence[str] | None = None,
        defaults: JobDefaults | None = None,
        config: str | PathLike[str] | None = None,
        encrypt: EncryptionKey | Sequence[EncryptionKey] | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
        engines: "Mapping[str, EngineFactory | EngineRegistration] | None" = None,
        queues: Iterable[str] = (),
    ) -> None:
        file, source = ({}, "") if config is None else _read_file_settings(config)
        self.defaults: JobDefaults = _merge_defaults(defaults, config)
        self.settings: Settings = read_settings(
            {
                "url": url,
                "name": name,
                "timezone": timezone,
                "install": install,
                "handler_paths": handler_paths,
                "redact": redact,
                "payload_max": payload_max,
                "retire_after": retire_after,
                "version": version,
                "dashboard_url": dashboard_url,
                "callback_secret": callback_secret,
            },
            package=_package_of_caller(),
            file=file,
            config=source,
        )
        self.construct: Construct = construct_plainly
        self.lifecycle: Lifecycle = Lifecycle()
        self.tracer: DispatchTracer | None = None  # see tickwork.integrations.opentelemetry
        self.wait_for: WaitFor | None = None  # runs the coroutines of app.run() and collect()
        self.symbols: dict[str, SymbolRule] = dict(SYMBOLS)
        self.calendars: Calendars = Calendars()
        self.path: str = ""  # "module:attribute", if the command line loaded it from there
        self.created_in: str = _module_of_caller()
        self.config_files: list[str] = []  # whose jobs and schedules it has
        self.is_configuration: bool = False  # whether such a file is all that makes it
        self.events: EventBus = EventBus()
        self._alerts: Alerts | None = None
        self.engines: Mapping[str, EngineRegistration] = add_engines(ENGINES, engines)
        self.registry: Registry = Registry(
            handler_paths=self.settings.handler_paths,
            size_max=self.settings.payload_max,
            redact=self.settings.redact,
            engines=self.engines,
            queues=[
                check_name("queues", queue, forbidden="=")
                for queue in ([queues] if isinstance(queues, str) else queues)
            ],
            defaults=self.defaults.options,
        )
        self.codec: Codec = self.registry.codec
        self.engine_options: dict[str, Any] = {}  # by the name of the engine
        self.cipher: Cipher | None = None if encrypt is None else make_cipher(encrypt)
        self._services = Services(self, store=store, clock=clock)
        self._dispatcher = Dispatcher(self._services, self.registry)
        self._factory = JobFactory(
            registry=self.registry,
            dispatcher=self._dispatcher,
            now=self._now,
            timezone=self.settings.timezone,
            symbols=self.symbols,
            calendars=self.calendars,
            construct=lambda: self.construct,
        )

    def __repr__(self) -> str:
        return f"<Tickwork {mask_url(self.settings.url)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and threads. The next use opens them again."""
        self._services.close()

    def __dir__(self) -> list[str]:
        return [
            name
            for name in super().__dir__()
            if name not in _INTERNAL and (name[0] != "_" or name.startswith("__"))
        ]

    @property
    def aio(self) -> "AsyncTickwork":
        """The same methods for coroutines: ``await app.aio.dispatch("report")``."""
        from tickwork.app.async_tickwork import AsyncTickwork  # noqa: PLC0415  # only with coroutines

        return AsyncTickwork(self._services, self._dispatcher)

    @property
    def clock(self) -> Clock:
        """The clock of the application: by default the time of its database."""
        return self._services.clock

    def _now(self) -> datetime:
        return self._services.clock.now()

    # ------------------------------------------------------------ define jobs

    @overload
    def job(self, handler: OpenClass[R], /) -> Job[..., R]: ...
    @overload
    def job(self, handler: RunClass[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, handler: PlainClass[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, handler: OpenFunction[R], /) -> Job[..., R]: ...
    @overload
    def job(self, handler: RunFunction[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, handler: PlainFunction[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, /, *, name: str = ..., **options: Unpack[JobKeywords]) -> JobDecorator: ...

    def job(self, handler: Any = None, /, *, name: str = "", **options: Any) -> Any:
        """Define a job from a function or a class, which stays callable as before.

        Options are those of the builder: ``@app.job(queue="emails", attempts=5)``. The name is
        the function's own, unless given.
        """
        defaults = self.registry.defaults
        decorate = JobDecorator(self._factory.make_job, name, options, defaults)
        return decorate if handler is None else decorate(handler)

    @overload
    def schedule(self, name: str, handler: Job[P, Any]) -> ScheduleBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: JobBuilder[P, Any]) -> ScheduleBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: OpenClass[R]) -> JobBuilder[..., R]: ...
    @overload
    def schedule(self, name: str, handler: RunClass[P, R]) -> JobBuilder[P, R]: ...
    @overload
    def schedule(self, name: str, handler: PlainClass[P, R]) -> JobBuilder[P, R]: ...
    @overload
    def schedule(self, name: str, handler: OpenFunction[R]) -> JobBuilder[..., R]: ...
    @overload
    def schedule(self, name: str, handler: RunFunction[P, R]) -> JobBuilder[P, R]: ...
    @overload
    def schedule(self, name: str, handler: PlainFunction[P, R]) -> JobBuilder[P, R]: ...
    @overload
    def schedule(self, name: str, handler: object = None) -> JobBuilder[..., Any]: ...

    def schedule(self, name: str, handler: Any = None) -> Any:
        """Define a job and its schedule with the builder.

        Given a function, a class or a path, the name is that of a job and of its schedule.
        Given a job, it is the name of one more schedule of that job. Without a time rule, no
        schedule is created:

        >>> app = Tickwork("memory://")
        >>> report = app.schedule("report", lambda: None).weekdays().hours(9)
        >>> report.describe()
        'at 09:00 on Monday to Friday (UTC)'
        """
        check_name("name", name, forbidden="=")
        if isinstance(handler, JobBuilder):
            handler = handler.job
        if isinstance(handler, Job):
            return self._factory.add_schedule(name, handler)
        return self._factory.make_builder(name, handler)

    @overload
    def adhoc(self, name: str, handler: OpenFunction[R]) -> JobBuilder[..., R]: ...
    @overload
    def adhoc(self, name: str, handler: RunFunction[P, R]) -> JobBuilder[P, R]: ...
    @overload
    def adhoc(self, name: str, handler: PlainFunction[P, R]) -> JobBuilder[P, R]: ...

    def adhoc(self, name: str, handler: Any) -> Any:
        """Define a job that only this process can run, such as one with a local function.

        When the process ends, its unfinished runs stay pending and visible.
        """
        return self._factory.make_adhoc(check_name("name", name, forbidden="="), handler)

    def remote(self, name: str) -> JobBuilder[..., Any]:
        """Refer to a job that another program defines. Its arguments are not checked here.

        Its limits are read from the database, where the workers of its program store them. Its
        queue, priority and uniqueness are not known here: if it has any, repeat them on the
        builder.
        """
        check_name("name", name, forbidden="=")
        registry = Registry(size_max=self.settings.payload_max, redact=self.settings.redact)
        return self._factory.make_remote(name, registry)

    def calendar(
        self, name: str, source: CalendarSource = (), *, country: str | None = None
    ) -> None:
        """Register days on which schedules do not fire: ``except_on(calendar=name)``.

        ``source`` is the path of an .ics file, or dates; ``country`` adds the public holidays of
        a country, such as ``DE`` or ``DE-BY``. Both are read here, once, for this year and the
        next two. Rules in text, such as those of requests, can name a calendar, and no file:

        >>> app = Tickwork("memory://")
        >>> app.calendar("inventory", ["2027-01-02", "2027-07-02"])
        >>> app.schedule("report", lambda: None).daily().except_on(calendar="inventory").describe()
        'at 00:00 (UTC), not on 2 dates'

        Raises:
            InvalidSchedule: The calendar cannot be read.
            InvalidOption: Another calendar has this name.
        """
        self.calendars.add(name, source, country=country)

    def middleware(self, function: M) -> M:
        """Wrap every attempt of every job in a generator function that yields once.

        The attempt happens where the function yields. The ``yield`` returns the result, or
        raises the exception of the attempt. The function takes the context of the run:

        >>> app = Tickwork("memory://")
        >>> @app.middleware
        ... def announce(ctx):
        ...     print("begin", ctx.job, ctx.args)
        ...     result = yield
        ...     print("end", result)
        >>> app.schedule("double", lambda number: 2 * number).dispatch(number=21).id and app.run()
        begin double {'number': 21}
        end 42
        1

        The first middleware is the outermost. If it raises, the attempt fails with that
        exception. An ``async def`` with ``yield`` works, too.
        """
        self.registry.add_middleware(function)
        return function

    def on_worker_start(self, function: F) -> F:
        """Call this function when a worker starts, before it claims any run.

        Coroutine functions run on the event loop of the coroutine handlers, so clients that they
        open can be used there. The functions are called in order of definition, also in each child
        process of ``engine="process"``. If one raises, the worker does not start.
        """
        self.lifecycle.add_start(function)
        return function

    def on_worker_stop(self, function: F) -> F:
        """Call this function when a worker stops, after its last attempt.

        The functions are called in reverse order of definition. Exceptions are logged. Child
        processes of ``engine="process"`` do not call them: they may be killed at any time.
        """
        self.lifecycle.add_stop(function)
        return function

    def handler(self, instance: R) -> R:
        """Register an object with ``supports(job_type)`` and ``handle(run)`` as a handler."""
        self.registry.add_handler(instance)
        return instance

    @classmethod
    def from_config(cls, path: str | PathLike[str] = CONFIG_FILE, **settings: Any) -> Self:
        """Make an application from a file with settings, jobs and schedules.

        Arguments and environment variables override the settings of the file.

        Raises:
            ConfigError: With every error in the file, each with its line.
        """
        from tickwork._config.config_file import read_defaults  # noqa: PLC0415  # with a file

        document = read_document(path)
        settings_in(document)
        read_defaults(document)
        # With invalid settings the application is only used to find the other errors.
        app = cls(**settings, config=None if document.problem_count else path)
        app.is_configuration = not settings
        app._declare(document)
        app.config_files.append(str(Path(path).absolute()))
        return app

    def load_config(self, path: str | PathLike[str] | None = None) -> list[str]:
        """Define the jobs and schedules of a file; return their names.

        The default is the file of the application, or ``tickwork.toml``. Handlers are
        imported here, so call it when they can be imported.

        Raises:
            ConfigError: With every error in the file, each with its line. Nothing was defined.
            DuplicateDefinition: Code or another file defines the same name differently.
        """
        from tickwork._config.config_file import report_late_defaults  # noqa: PLC0415  # with a file

        path = path or self.settings.config or CONFIG_FILE
        document = read_document(path)
        report_late_settings(document, self.settings)
        report_late_defaults(document, self.defaults)
        names = self._declare(document)
        self.config_files.append(str(Path(path).absolute()))
        return names

    def _declare(self, document: "Document") -> list[str]:
        from tickwork._config.config_file import read_declarations  # noqa: PLC0415  # with a file

        declarations, symbols, calendars = read_declarations(
            document,
            registry=self.registry,
            symbols=self.symbols,
            calendars=self.calendars,
            timezone=self.settings.timezone,
        )
        document.raise_problems()
        self.registry.add_all(declarations)
        self.symbols.update(symbols)
        self.calendars.update(calendars)
        return [each.name for each in declarations]

    # ------------------------------------------------------------ dispatch

    def dispatch(self, job: JobOrName, /, *args: Any, **kwargs: Any) -> RunHandle[Any]:
        """Add a run of a job: the job itself, its name, or the path or class of its handler.

        Raises:
            JobNotFound: There is no such job; a similar name is suggested.
            HandlerNotAllowed: The path or class is not allowed: see ``handler_paths``.
            ArgumentError: The arguments do not fit the handler. Nothing was stored.
        """
        return self.draft.dispatch(job, *args, **kwargs)

    @property
    def draft(self) -> OpenDraft:
        """A dispatch that takes its options first, and its job last."""
        return Draft(self._dispatcher)

    def args(self, **args: Any) -> OpenDraft:
        """Set arguments first, the job last: ``app.args(kind="daily").dispatch("report")``."""
        return self.draft.args(**args)

    def delay(self, length: Duration) -> OpenDraft:
        """Set the delay first, the job last: ``app.delay("10s").dispatch("report")``."""
        return self.draft.delay(length)

    def at(self, when: When) -> OpenDraft:
        """Set the time first, the job last: ``app.at(when).dispatch("report")``."""
        return self.draft.at(when)

    def emit(
        self,
        event: str,
        *,
        key: str,
        data: Any = None,
        tenant: str = "",
        using: object = None,
    ) -> "Emitted":
        """Store an event: runs that wait for it with ``ctx.wait_for`` continue.

        The first event of a name and key is stored for 30 days, also for runs that wait later; a
        second one is ignored, and its ``is_new`` is False. With ``using``, the event is part of the
        transaction of this connection.

        Raises:
            InvalidOption: The name or the key is no text of 1 to 200 characters.
            PayloadError: The data cannot be stored.
        """
        return self._services.emitter.emit(event, key=key, data=data, tenant=tenant, using=using)

    @property
    def callbacks(self) -> "Callbacks":
        """Links that answer a wait: ``ctx.callback_url`` makes them."""
        return self._services.callbacks

    @property
    def runs(self) -> Runs:
        """Runs by id or by a filter."""
        return self._services.runs

    def get_run(self, run_id: str) -> RunHandle[Any]:
        """A handle on a run, by its id."""
        return self._services.runs.handle(RunId(run_id))

    # ------------------------------------------------------------ execute runs

    def run(self, batch: int = 32) -> int:
        """Fire due schedules, and execute at most ``batch`` due runs in this thread.

        Returns the number of attempts, failed ones included. Runs that fall due meanwhile are
        left to the next call.
        """
        return self._services.passes.run(batch, threading.Event())

    def collect(
        self, length: Duration = 0, *, batch: int = 32, stop: threading.Event | None = None
    ) -> int:
        """Execute due runs until none is left, and for at least ``length``.

        Returns the number of failed attempts. Runs that fall due within ``length`` are executed
        on time. When ``stop`` is set, the current attempt is finished, and the other claimed
        runs are released.
        """
        return self._services.passes.collect(length, batch, stop or threading.Event())

    def due(self, limit: int = 100) -> list[Run]:
        """List the runs that this process could start now, in order.

        Due schedules are fired first, so that this is a complete scheduler:
        ``for run in app.due(): app.execute(run.id)``.
        """
        return self._services.passes.due(limit)

    def execute(self, run_id: str) -> RunHandle[Any]:
        """Claim exactly this run, due or not, and make one attempt at it here.

        The outcome is recorded as usual: ``app.execute(id).status``.

        Raises:
            RunNotFound: There is no such run.
            InvalidTransition: It is claimed, or has finished.
            RunError: Its queue or job is paused, or a limit that it needs is full.
            JobNotFound: This process does not know its job.
        """
        return self._services.execute(RunId(run_id))

    def use_celery(self, celery: object, *, queue: str | None = None, runs_max: int = 20) -> None:
        """Have Celery workers execute the jobs with ``engine="celery"``.

        ``celery`` is a Celery application with its broker configured. Call this in a module that
        Celery workers import, too: it registers the task ``tickwork.execute``. Messages go to
        ``queue``, by default that of the Celery application. A message has up to ``runs_max`` runs,
        if they are known to be short.

        Raises:
            InvalidOption: It is not a Celery application, or an option is invalid.
            EngineMissing: Celery is not installed.
        """
        from tickwork._engines.remote import celery as engine  # noqa: PLC0415  # only with Celery

        self.engine_options["celery"] = engine.connect(
            celery, self.execute_handovers, queue=queue, runs_max=runs_max, close=self.close
        )

    def execute_handovers(self, message: object, *, is_redelivered: bool = False) -> int:
        """Make attempts at runs that a worker handed over to this process; return how many.

        For remote engines: a process of theirs calls this with the message that it got. When it
        returns, the outcomes are stored, and the message can be acknowledged.

        Raises:
            HandoverRejected: The message cannot be read. Nothing was done.
            StoreUnavailable: The database does not answer.
        """
        return self._services.remote_worker.execute(message, is_redelivered=is_redelivered)

    def start(
        self,
        options: "WorkerOptions | None" = None,
        *,
        loop: "AbstractEventLoop | None" = None,
        **changes: Any,
    ) -> None:
        """Start a worker in the background of this process.

        Options are given by name: ``app.start(threads=4, drain="5s")``. Coroutine handlers run on
        an event loop of their own, or on ``loop``: one that runs in another thread. From a
        coroutine, use ``async with app.aio.running()``.

        Raises:
            AlreadyStarted: This process has a worker.
            WorkerStartFailed: A function of :meth:`on_worker_start` raised an exception.
            InvalidOption: The loop is not running, or it is the one that calls this.
        """
        self._services.start_worker(options, changes, loop=loop)

    def stop(self) -> None:
        """Tell the worker to claim no more runs. Returns at once; running attempts go on."""
        self._services.stop_worker()

    def join(self) -> int:
        """Wait until a stopped worker has ended.

        Returns the number of attempts that could not be ended: their threads still run, and their
        runs were released.
        """
        return self._services.join_worker()

    def forever(self, poll: Duration = 0.2, **options: Any) -> None:
        """Run a worker until :meth:`stop` is called, from a handler, a signal or a thread.

        In the main thread, SIGTERM, SIGINT and SIGHUP stop it; a second one ends the process.
        """
        is_requested = threading.Event()

        def stop() -> None:
            is_requested.set()
            self.stop()

        with stop_on_signals(stop):
            self.start(poll=poll, **options)
            if is_requested.is_set():
                self.stop()  # the signal came before there was a worker
            self.join()

    @contextmanager
    def running(
        self,
        options: "WorkerOptions | None" = None,
        *,
        loop: "AbstractEventLoop | None" = None,
        **changes: Any,
    ) -> Iterator[Self]:
        """Run a worker in the background while the block runs, as :meth:`start` does."""
        self.start(options, loop=loop, **changes)
        try:
            yield self
        finally:
            self.stop()
            self.join()

    @property
    def worker_state(self) -> "WorkerState":
        """The state of the worker of this process: absent, starting, running, stopping or stuck."""
        return self._services.worker_state()

    @property
    def unwritten_outcomes(self) -> "UnwrittenOutcomes | None":
        """The outcomes that the worker of this process keeps, because the database is ill."""
        return self._services.unwritten_outcomes()

    @property
    def stats(self) -> "Stats":
        """Counters of this process: attempts, failures and so on."""
        return self._services.passes.context.stats

    @property
    def attempt_store(self) -> "RowAttemptStore":
        """Where handlers in a child process save their progress."""
        return self._services.passes.context.build_row_store()

    @property
    def location(self) -> "AppLocation":
        """Where other processes find this application.

        Raises:
            InvalidOption: It is not an attribute of a module.
        """
        from tickwork.app.worker_composition import find_app_location  # noqa: PLC0415

        return find_app_location(self)

    def release_dead(self, pid: int) -> int:
        """End the leases of a worker process of this machine that is known to be dead."""
        return self._services.passes.reaper.release_process(pid)

    # ------------------------------------------------------------ operate

    @property
    def schedules(self) -> "Schedules":
        """Schedules at run time: create, change, pause, run and read them."""
        return self._services.schedules

    @property
    def limits(self) -> Limits:
        """Concurrency limits at run time: an override applies until it is reset."""
        return self._services.limits

    def pause(
        self,
        *,
        queue: str | None = None,
        job: str | None = None,
        note: str = "",
        until: When | None = None,
    ) -> Pause:
        """Pause a queue or a job: its runs wait until it is resumed, or until an instant.

        Its schedules still fire. To pause a schedule, use ``app.schedules.pause(name)``.

        Raises:
            JobNotFound: There is no such job; a similar name is suggested.
            InvalidOption: ``until`` has passed, or ``queue`` and ``job`` are both given or missing.
        """
        return self._services.pauses.pause(queue=queue, job=job, note=note, until=until)

    def resume(self, *, queue: str | None = None, job: str | None = None) -> bool:
        """Resume a queue or a job; False if it was not paused."""
        return self._services.pauses.resume(queue=queue, job=job)

    def pauses(self) -> list[Pause]:
        """The queues and jobs that are paused now."""
        return self._services.pauses.list()

    def drain_worker(self, worker: str) -> WorkerRow:
        """Ask a worker to drain: to claim no more runs, to finish those it has, and to end.

        ``worker`` is its id, the beginning of its id, or ``HOST:PID``. The worker reads the
        request within two seconds. It waits for its runs as long as they take. After a
        signal it waits only for the drain time.

        Raises:
            WorkerNotFound: There is no such worker, or there are several.
        """
        return self._services.worker_requests.drain(worker)

    @property
    def audit(self) -> "AuditLog":
        """The actions that were taken through the dashboard and the API."""
        return self._services.audit

    @property
    def idempotent(self) -> "IdempotentDispatcher":
        """Dispatch once for each idempotency key, however often a request is repeated."""
        from tickwork._control.audit import IdempotentDispatcher  # noqa: PLC0415  # for the API

        return IdempotentDispatcher(self._dispatcher)

    def lock(self, name: str, ttl: Duration = "60s") -> "AbstractContextManager[Lock]":
        """Hold a named lock: one holder across all processes, renewed while the block runs.

        Raises:
            LockHeld: Another process holds it; the error names its host and pid.
        """
        return self._services.locks.hold(name, as_duration(ttl))

    def unlock(self, name: str) -> bool:
        """Release a named lock whose holder is known to be dead; False if it was free."""
        return self._services.locks.release(name)

    def install(self) -> int:
        """Create or upgrade the tables; return their version. Concurrent calls are safe."""
        return self._services.install()

    def schema_version(self) -> int:
        """The version of the tables in the database; 0 if there are none."""
        return self._services.opened_store.schema_version()

    def prune(
        self,
        days: float = 30,
        *,
        batch: int = PRUNE_BATCH,
        on_batch: Callable[[Pruned], object] | None = None,
    ) -> Pruned:
        """Delete finished runs older than ``days``, and definitions unused for that long.

        What a program defined within the last two hours is kept, even with ``days=0``.
        ``on_batch`` is called after each batch with the total so far.

        Raises:
            InvalidOption: ``days`` is negative, or not a number of days.
        """
        return self._services.cleanup.prune(days, batch=batch, on_batch=on_batch)

    def cancel_orphans(self, days: float = 30) -> int:
        """Cancel waiting runs older than ``days`` whose job no program defines any more.

        No live worker knows such a job, this program does not define it, and no program has
        defined it for that long. Returns the number of canceled runs.
        """
        return self._services.cleanup.cancel_orphans(days)

    # ------------------------------------------------------------ inspect

    @property
    def alerts(self) -> "Alerts":
        """The targets of alerts about late schedules and failing jobs, and pings."""
        if self._alerts is None:
            from tickwork.alerts.registry import Alerts  # noqa: PLC0415  # loaded on demand

            self._alerts = Alerts(self.events, on_stop=self.lifecycle.add_stop)
        return self._alerts

    @property
    def alert_settings(self) -> "Alerts | None":
        """:attr:`alerts`, if the program has used them."""
        return self._alerts

    def watch(self, every: Duration = "10s", *, stop: threading.Event | None = None) -> None:
        """Watch schedules and jobs for :attr:`alerts`, until a signal or ``stop`` ends it.

        It watches the schedules with ``expect_within`` and the jobs of ``alerts.watch_failures``,
        and executes no runs. Each alert goes to the log, to subscribers, hooks and targets. If
        several processes watch, one of them sends it. Workers of a program with alerts watch, too.
        """
        ended = stop or threading.Event()
        with stop_on_signals(ended.set):
            self._services.watch(as_duration(every).total_seconds(), ended)

    @property
    def export(self) -> "CalendarExports":
        """Schedules as a calendar file, or as links to Google Calendar and Outlook."""
        return self._services.calendar_exports

    @property
    def inspect(self) -> "Inspector":
        """Read models: what runs, what is next, the details of one run."""
        return self._services.inspector

    def explain(self, what: str, *, tenant: str = "") -> "Explanation":
        """Explain why a job, a schedule or a run has not run: by name, or by the start of an id.

        >>> app = Tickwork("memory://")
        >>> @app.job
        ... def report() -> None: ...
        >>> run = report.delay("1h").dispatch()
        >>> [cause.text for cause in app.explain(run.id).causes]
        ['The run was dispatched for a later time.', 'No worker is running.']

        Raises:
            JobNotFound: Nothing has that name; a similar one is suggested.
            RunNotFound: It looks like an id, and no run has it.
            AmbiguousRun: Several ids start like that.
        """
        return self._services.inspector.explain(what, tenant=tenant)

    def check_health(self) -> "list[Check]":
        """Run the health checks: connection, tables, clock, workers, leases, backlog."""
        return self._services.check_health()

    def check_worker(self) -> "Check":
        """Check that the workers of this machine, or of this container, send heartbeats."""
        return self._services.check_worker()

    def status(self) -> dict[str, Any]:
        """A summary of jobs, unfinished runs, schedules and workers."""
        return asdict(self._services.inspector.status())

    def cli(self) -> "click.Group":
        """The command line for this application, to add to a click command of your own."""
        # By name: the command line is a layer above, and most programs do not load it.
        command: click.Group = import_module("tickwork.cli.main").command_for(self)
        return command

    def on(self, kind: type[E]) -> Callable[[Callable[[E], R]], Callable[[E], R]]:
        """Subscribe to events: ``@app.on(RunFailed)``. Errors of subscribers affect no run."""

        def subscribe(subscriber: Callable[[E], R]) -> Callable[[E], R]:
            self.events.subscribe(kind, subscriber)
            return subscriber

        return subscribe


def _read_file_settings(path: str | PathLike[str]) -> tuple[Mapping[str, Any], str]:
    document = read_document(path)
    settings = settings_in(document)
    document.raise_problems()
    return settings, document.source


def _merge_defaults(given: JobDefaults | None, config: str | PathLike[str] | None) -> JobDefaults:
    from_file = {} if config is None else _read_file_defaults(config)
    return JobDefaults(**{**from_file, **({} if given is None else given.values_set)})


def _read_file_defaults(path: str | PathLike[str]) -> Mapping[str, Any]:
    from tickwork._config.config_file import read_defaults  # noqa: PLC0415  # with a file

    document = read_document(path)
    defaults = read_defaults(document)
    document.raise_problems()
    return defaults.values_set


def _package_of_caller() -> str:
    """The package whose code creates the application."""
    names = _names_of_caller()
    return str(names.get("__package__") or names.get("__name__", "__main__")).partition(".")[0]


def _module_of_caller() -> str:
    """The module whose code creates the application."""
    return str(_names_of_caller().get("__name__", "__main__"))


def _names_of_caller() -> dict[str, Any]:
    """The global names of the innermost caller outside of tickwork."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # inspect.stack reads every file
    ours = __name__.partition(".")[0]
    while frame is not None:
        names = frame.f_globals
        named = names.get("__package__") or names.get("__name__", "__main__")
        if str(named).partition(".")[0] != ours:
            return names
        frame = frame.f_back
    return globals()
