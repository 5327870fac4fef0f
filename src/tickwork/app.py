"""The application class: every public method, each a line or two into a service."""

# The first overload that matches decides.
# mypy: disable-error-code="overload-overlap"

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import datetime
from importlib import import_module
from os import PathLike
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from tickwork._client.builder import JobBuilder, JobFactory, ScheduleBuilder
from tickwork._client.cleanup import PRUNE_BATCH
from tickwork._client.decorator import JobDecorator
from tickwork._client.dispatch import Dispatcher
from tickwork._client.jobs import Draft, Job, JobOrName, OpenDraft
from tickwork._client.limits import Limits
from tickwork._client.runs import RunHandle, Runs
from tickwork._define.handler_types import (
    OpenClass,
    OpenFunction,
    PlainClass,
    PlainFunction,
    RunClass,
    RunFunction,
)
from tickwork._define.handlers import Construct, construct_plainly
from tickwork._define.options import JobKeywords, Length
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.names import check_name
from tickwork._domain.run import Run
from tickwork._domain.schedules.pattern import SYMBOLS, SymbolRule
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When
from tickwork._kernel.signals import stop_on_signals
from tickwork.composition import ENGINES, Services
from tickwork.errors import mask_url
from tickwork.events import Event
from tickwork.events.bus import EventBus
from tickwork.settings import (
    CONFIG_FILE,
    Settings,
    note_late_settings,
    read_document,
    read_settings,
    settings_in,
)
from tickwork.stores.contract import Pause, Pruned, Store

if TYPE_CHECKING:
    import click

    from tickwork._client.locks import Lock
    from tickwork._client.schedules import Schedules
    from tickwork._define.toml_document import Document
    from tickwork._domain.explain import Explanation
    from tickwork._domain.health import Check
    from tickwork._inspect.inspector import Inspector
    from tickwork._worker.attempt_store import RowAttemptStore
    from tickwork._worker.options import WorkerOptions
    from tickwork._worker.stats import Stats
    from tickwork.async_app import AsyncTickwork
    from tickwork.engines.wire import AppLocation

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Event)


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
        timezone: str | None = None,
        install: bool | None = None,
        handler_paths: Iterable[str] | None = None,
        redact: Iterable[str] | None = None,
        payload_max: int | None = None,
        retire_after: Length | None = None,
        config: str | PathLike[str] | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        file, source = ({}, "") if config is None else _read_file_settings(config)
        self.settings: Settings = read_settings(
            {
                "url": url,
                "timezone": timezone,
                "install": install,
                "handler_paths": handler_paths,
                "redact": redact,
                "payload_max": payload_max,
                "retire_after": retire_after,
            },
            package=_package_of_caller(),
            file=file,
            config=source,
        )
        self.construct: Construct = construct_plainly
        self.symbols: dict[str, SymbolRule] = dict(SYMBOLS)
        self.path: str = ""  # "module:attribute", if the command line loaded it from there
        self.events: EventBus = EventBus()
        self.registry: Registry = Registry(
            handler_paths=self.settings.handler_paths,
            size_max=self.settings.payload_max,
            redact=self.settings.redact,
            engines=ENGINES,
        )
        self._services = Services(self, store=store, clock=clock)
        self._dispatcher = Dispatcher(self._services, self.registry)
        self._factory = JobFactory(
            registry=self.registry,
            dispatcher=self._dispatcher,
            now=self._now,
            timezone=self.settings.timezone,
            symbols=self.symbols,
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

    @property
    def aio(self) -> "AsyncTickwork":
        """The same methods for coroutines: ``await app.aio.dispatch("report")``."""
        from tickwork.async_app import AsyncTickwork  # noqa: PLC0415  # only with coroutines

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

        Options are those of the builder: ``@app.job(queue="emails", retries=5)``. The name is
        the function's own, unless given.
        """
        decorate = JobDecorator(self._factory.make_job, name, options)
        return decorate if handler is None else decorate(handler)

    @overload
    def schedule(self, name: str, handler: Job[P, Any]) -> ScheduleBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: JobBuilder[P]) -> ScheduleBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: OpenClass[Any]) -> JobBuilder[...]: ...
    @overload
    def schedule(self, name: str, handler: RunClass[P, Any]) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: PlainClass[P, Any]) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: OpenFunction[Any]) -> JobBuilder[...]: ...
    @overload
    def schedule(self, name: str, handler: RunFunction[P, Any]) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: PlainFunction[P, Any]) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: object = None) -> JobBuilder[...]: ...

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
    def adhoc(self, name: str, handler: OpenFunction[Any]) -> JobBuilder[...]: ...
    @overload
    def adhoc(self, name: str, handler: RunFunction[P, Any]) -> JobBuilder[P]: ...
    @overload
    def adhoc(self, name: str, handler: PlainFunction[P, Any]) -> JobBuilder[P]: ...

    def adhoc(self, name: str, handler: Any) -> Any:
        """Define a job that only this process can run, such as one with a local function.

        When the process ends, its unfinished runs stay pending and visible.
        """
        return self._factory.make_adhoc(check_name("name", name, forbidden="="), handler)

    def remote(self, name: str) -> JobBuilder[...]:
        """Refer to a job that another program defines. Its arguments are not checked here.

        Its queue, priority, limits and uniqueness are not known here, either: if it has any,
        repeat them on the builder.
        """
        check_name("name", name, forbidden="=")
        registry = Registry(size_max=self.settings.payload_max, redact=self.settings.redact)
        return self._factory.make_remote(name, registry)

    def handler(self, instance: R) -> R:
        """Register a handler for job types: ``supports(job_type)`` and ``handle(run)``."""
        self.registry.add_handler(instance)
        return instance

    @classmethod
    def from_config(cls, path: str | PathLike[str] = CONFIG_FILE, **settings: Any) -> Self:
        """Make an application from a file with settings, jobs and schedules.

        Arguments and environment variables override the settings of the file.

        Raises:
            ConfigError: With every error in the file, each with its line.
        """
        document = read_document(path)
        settings_in(document)
        # With invalid settings the application is only used to find the other errors.
        app = cls(**settings, config=None if document.problem_count else path)
        app._declare(document)
        return app

    def load_config(self, path: str | PathLike[str] | None = None) -> list[str]:
        """Define the jobs and schedules of a file; return their names.

        The default is the file of the application, or ``tickwork.toml``. Handlers are
        imported here, so call it when they can be imported.

        Raises:
            ConfigError: With every error in the file, each with its line. Nothing was defined.
            DuplicateDefinition: Code or another file defines the same name differently.
        """
        document = read_document(path or self.settings.config or CONFIG_FILE)
        note_late_settings(document, self.settings)
        return self._declare(document)

    def _declare(self, document: "Document") -> list[str]:
        from tickwork._define.config_file import read_declarations  # noqa: PLC0415  # with a file

        declarations, symbols = read_declarations(
            document,
            registry=self.registry,
            symbols=self.symbols,
            timezone=self.settings.timezone,
        )
        document.raise_problems()
        self.registry.add_all(declarations)
        self.symbols.update(symbols)
        return [each.name for each in declarations]

    # ------------------------------------------------------------ dispatch

    def dispatch(self, job: JobOrName, /, *args: Any, **kwargs: Any) -> RunHandle:
        """Add a run of a job: the job itself, its name, or the path of its handler.

        Raises:
            JobNotFound: There is no such job; a similar name is suggested.
            HandlerNotAllowed: It is a path that a row must not name.
            ArgumentError: The arguments do not fit the handler. Nothing was stored.
        """
        return self.draft.dispatch(job, *args, **kwargs)

    @property
    def draft(self) -> OpenDraft:
        """A dispatch to which options can be added, and the job last."""
        return Draft(self._dispatcher)

    def args(self, **args: Any) -> OpenDraft:
        """Set arguments first, the job last: ``app.args(kind="daily").dispatch("report")``."""
        return self.draft.args(**args)

    @property
    def runs(self) -> Runs:
        """Runs by id or by a filter."""
        return self._services.runs

    def get_run(self, run_id: str) -> RunHandle:
        """A handle on a run, by its id."""
        return self.runs.handle(RunId(run_id))

    # ------------------------------------------------------------ execute runs

    def run(self, batch: int = 32) -> int:
        """Fire due schedules and execute at most ``batch`` due runs here; return the attempts.

        Failed attempts are counted. Runs that fall due meanwhile are left to the next call.
        """
        return self._services.worker.run(batch, threading.Event())

    def collect(
        self, length: Length = 0, *, batch: int = 32, stop: threading.Event | None = None
    ) -> int:
        """Execute due runs until none is left, for at least this long; return the failures.

        Runs that fall due within ``length`` are executed on time. When ``stop`` is set, it
        finishes the current attempt and gives back the other runs that it has claimed.
        """
        return self._services.worker.collect(length, batch, stop or threading.Event())

    def due(self, limit: int = 100) -> list[Run]:
        """List the runs that this process could start now, in order.

        Due schedules are fired first, so that this is a complete scheduler:
        ``for run in app.due(): app.execute(run.id)``.
        """
        return self._services.worker.due(limit)

    def execute(self, run_id: str) -> RunHandle:
        """Claim exactly this run, due or not, and make one attempt at it here.

        The outcome is recorded as usual: ``app.execute(id).status``.

        Raises:
            RunNotFound: There is no such run.
            InvalidTransition: It is claimed, or has finished.
            RunError: Its queue or job is paused, or a limit that it needs is full.
            JobNotFound: This process does not know its job.
        """
        return self._services.execute(RunId(run_id))

    def start(self, options: "WorkerOptions | None" = None, **given: Any) -> None:
        """Start a worker in the background of this process.

        Options are given by name: ``app.start(threads=4, drain="5s")``.

        Raises:
            AlreadyStarted: There is one.
        """
        self._services.start_worker(options, given)

    def stop(self) -> None:
        """Tell the worker to claim no more runs. Returns at once; running attempts go on."""
        self._services.stop_worker()

    def join(self) -> int:
        """Wait until a stopped worker has ended.

        Returns the number of attempts that could not be ended: threads that still run. Their
        runs were given back.
        """
        return self._services.join_worker()

    def forever(self, poll: Length = 0.2, **options: Any) -> None:
        """Run a worker until :meth:`stop` is called, from a handler, a signal or a thread.

        In the main thread, SIGTERM and SIGINT stop it; a second one ends the process.
        """
        with stop_on_signals(self.stop):
            self.start(poll=poll, **options)
            self.join()

    @contextmanager
    def running(self, options: "WorkerOptions | None" = None, **given: Any) -> Iterator[Self]:
        """Run a worker in the background while the block runs."""
        self.start(options, **given)
        try:
            yield self
        finally:
            self.stop()
            self.join()

    @property
    def stats(self) -> "Stats":
        """Counters of this process: attempts, failures and so on."""
        return self._services.worker.stats

    @property
    def attempt_store(self) -> "RowAttemptStore":
        """Where handlers in a child process save their progress."""
        return self._services.worker.attempt_store

    @property
    def location(self) -> "AppLocation":
        """Where other processes find this application.

        Raises:
            InvalidOption: No module holds it under a name.
        """
        from tickwork.worker_composition import find_app_location  # noqa: PLC0415

        return find_app_location(self)

    def release_dead(self, pid: int) -> int:
        """End the leases of a worker process of this machine that is known to be dead."""
        return self._services.worker.reaper.release_process(pid)

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
            InvalidOption: ``until`` has passed, or not exactly one of both is given.
        """
        return self._services.pauses.pause(queue=queue, job=job, note=note, until=until)

    def resume(self, *, queue: str | None = None, job: str | None = None) -> bool:
        """Resume a queue or a job; False if it was not paused."""
        return self._services.pauses.resume(queue=queue, job=job)

    def pauses(self) -> list[Pause]:
        """The queues and jobs that are paused now."""
        return self._services.pauses.list()

    def lock(self, name: str, ttl: Length = "60s") -> "AbstractContextManager[Lock]":
        """Hold a named lock: one holder across all processes, renewed while the block runs.

        Raises:
            LockHeld: Another process holds it; the error names its host and pid.
        """
        return self._services.locks.hold(name, as_duration(ttl))

    def unlock(self, name: str) -> bool:
        """Release a named lock whose holder is known to be dead; False if it was free."""
        return self._services.locks.release(name)

    def install(self) -> int:
        """Create or upgrade the tables; return their version. Several at once are safe."""
        return self._services.opened_store.install()

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
        """Delete finished runs older than this, and definitions unused for that long.

        What a program defined within the last two hours is kept, even with ``days=0``.
        ``on_batch`` is called after each batch with the total so far.

        Raises:
            InvalidOption: ``days`` is negative, or not a number of days.
        """
        return self._services.cleanup.prune(days, batch=batch, on_batch=on_batch)

    def cancel_orphans(self, days: float = 30) -> int:
        """Cancel waiting runs older than this whose job no program defines any more.

        No live worker knows such a job, this program does not define it, and no program has
        defined it for that long. Returns the number of canceled runs.
        """
        return self._services.cleanup.cancel_orphans(days)

    # ------------------------------------------------------------ inspect

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

    def status(self) -> dict[str, Any]:
        """A summary of jobs, unfinished runs, schedules and workers."""
        return asdict(self.inspect.status())

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
    found = settings_in(document)
    document.raise_problems()
    return found, document.source


def _package_of_caller() -> str:
    """The package whose code creates the application."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # inspect.stack reads every file
    ours = name = __name__.partition(".")[0]
    while frame is not None and name == ours:
        named = frame.f_globals.get("__package__") or frame.f_globals.get("__name__", "__main__")
        name = str(named).partition(".")[0]
        frame = frame.f_back
    return name
