"""The application: settings in, wired services out."""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import cached_property
from os import PathLike
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, overload

from tickwork._client.builder import Bench, JobBuilder, ScheduleBuilder
from tickwork._client.catalog import Catalog
from tickwork._client.decorator import JobDecorator
from tickwork._client.enqueue import Enqueuer, Order
from tickwork._client.jobs import Job, OpenDraft
from tickwork._client.locks import Lock, Locks
from tickwork._client.runs import RunHandle, Runs
from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.options import JobOptions, Length
from tickwork._define.registry import Registry, entry_for
from tickwork._define.resolve import Construct, construct_plainly
from tickwork._domain.identity import RunId
from tickwork._domain.names import checked_name
from tickwork._domain.schedules.pattern import SYMBOLS, Values
from tickwork._kernel.clock import Clock, StoreClock, SystemClock
from tickwork._kernel.durations import as_duration
from tickwork._ticker.ticker import Ticker
from tickwork._worker.attempts import Attempts
from tickwork._worker.desk import StoreDesk
from tickwork._worker.keeping import LogKeeper
from tickwork._worker.known import KnownJobs
from tickwork._worker.once import OnePass, attempts_in
from tickwork._worker.reporting import Reporter
from tickwork.engines.inline import InlineEngine
from tickwork.errors import InvalidOption, masked
from tickwork.events import Event
from tickwork.events.bus import EventBus
from tickwork.settings import Settings, note_late_settings, read_settings, settings_in
from tickwork.stores import Store, open_store
from tickwork.stores.contract import Pruned

if TYPE_CHECKING:
    from tickwork._define.document import Document

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Event)

CONFIG: Final = "tickwork.toml"
BATCH_MAX: Final = 500
PRUNE_BATCH: Final = 1_000
PRUNE_ROUNDS_MAX: Final = 10_000


class Services:
    """Everything behind the face, made when it is first needed."""

    def __init__(self, app: "Tickwork", store: Store, clock: Clock) -> None:
        settings = app.settings
        self.store = store
        self.clock = clock
        self.catalog = Catalog(
            store=store, clock=clock, registry=app.registry, timezone=settings.timezone
        )
        self.known = KnownJobs(store=store, registry=app.registry)
        self.ticker = Ticker(
            store=store,
            clock=clock,
            specs=self.known.specs,
            retire_after=settings.retire_after,
        )
        self.runs = Runs(store=store, clock=clock)
        self.enqueuer = Enqueuer(store=store, clock=clock, runs=self.runs, bus=app.events)
        self.locks = Locks(store=store, clock=clock)
        self.keeper = LogKeeper()
        self.engine = InlineEngine(clock=clock, construct=lambda: app.construct)
        self.once = OnePass(
            store=store,
            clock=clock,
            tick=self.ticker.tick,
            known=self.known,
            attempts=Attempts(
                clock=clock,
                desk=StoreDesk(store=store, clock=clock),
                bus=app.events,
                find=self.known.find,
                engine=self.engine,
            ),
            reporter=Reporter(bus=app.events),
            keeper=self.keeper,
        )


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
        file, source = ({}, "") if config is None else _settings_of(config)
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
        self.symbols: dict[str, Mapping[str, Values]] = dict(SYMBOLS)
        self.events = EventBus()
        self.registry = Registry(
            handler_paths=self.settings.handler_paths,
            size_max=self.settings.payload_max,
            redact=self.settings.redact,
        )
        self._given_clock = clock
        self._given_store = store

    def __repr__(self) -> str:
        return f"<Tickwork {masked(self.settings.url)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ defining

    @overload
    def job(self, handler: Callable[Concatenate[RunContext, P], R], /) -> Job[P, R]: ...
    @overload
    def job(self, handler: Callable[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, /, *, name: str = ..., **options: Any) -> JobDecorator: ...

    def job(
        self, handler: Callable[..., Any] | None = None, /, *, name: str = "", **options: Any
    ) -> Any:
        """Make a job of a function: it stays callable as it was.

        Options are the words of the builder: ``@app.job(queue="emails", retries=5)``. The
        name is the function's own, unless given.
        """
        decorate = JobDecorator(self._make_job, name, options)
        return decorate if handler is None else decorate(handler)

    # A job is a callable too: what comes first decides.
    @overload
    def schedule(  # type: ignore[overload-overlap]
        self, name: str, handler: Job[P, Any]
    ) -> ScheduleBuilder[P]: ...
    @overload
    def schedule(  # type: ignore[overload-overlap]
        self, name: str, handler: Callable[Concatenate[RunContext, P], Any]
    ) -> JobBuilder[P]: ...
    @overload
    def schedule(  # type: ignore[overload-overlap]
        self, name: str, handler: Callable[P, Any]
    ) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: object = None) -> JobBuilder[...]: ...

    def schedule(self, name: str, handler: Any = None) -> Any:
        """Say what shall be done, and when, under a name.

        Given a function, a class or a path, the name is that of a job and of its schedule;
        given a job, that of one more schedule of it. Without a rule it is a job only.
        """
        checked_name("name", name, forbidden="=")
        if isinstance(handler, Job):
            entry = entry_for(name, None, job=handler.name)
            self.registry.add(entry)
            return ScheduleBuilder(self._bench, entry, handler)
        if isinstance(handler, JobBuilder):
            return self.schedule(name, handler.job)
        return self._builder(name, handler)

    def adhoc(self, name: str, handler: Callable[P, Any]) -> JobBuilder[P]:
        """A job that this process makes up as it goes: no other one can run it.

        Its runs wait for this process; when it ends, they stay pending and visible.
        """
        entry = entry_for(checked_name("name", name, forbidden="="), handler, is_adhoc=True)
        self.registry.replace(entry)
        return JobBuilder(self._bench, entry, Job(self._door, name, handler))

    def remote(self, name: str) -> JobBuilder[...]:
        """A job that another program defines. Its arguments are not checked here.

        What its definition says about queue, priority, limits and uniqueness is not known
        here: say it again, if it says anything.
        """
        entry = entry_for(checked_name("name", name, forbidden="="), _anything, is_adhoc=True)
        remote = Registry(size_max=self.settings.payload_max, redact=self.settings.redact)
        remote.add(entry)
        door = Door(lambda: self._services, remote)
        bench = Bench(
            registry=remote,
            clock=self._clock,
            timezone=self.settings.timezone,
            symbols=self.symbols,
        )
        return JobBuilder(bench, entry, Job(door, name, _anything))

    @classmethod
    def from_config(cls, path: str | PathLike[str] = CONFIG, **settings: Any) -> Self:
        """An application by a file: its settings, and the jobs and schedules it declares.

        What is said here, or in the environment, beats the file.

        Raises:
            ConfigError: With everything that is wrong with the file, each with its line.
        """
        document = _read(path)
        settings_in(document)
        # With faulty settings it is an app that nobody gets: the rest is looked at all the same.
        app = cls(**settings, config=None if document.fault_count else path)
        app._declare(document)
        return app

    def load_config(self, path: str | PathLike[str] | None = None) -> list[str]:
        """Declare the jobs and schedules of a file; return their names.

        Without a path it is the file that the application was made with, or
        ``tickwork.toml``. Handlers are imported here: load when they can be.

        Raises:
            ConfigError: With everything that is wrong with it, each with its line. Nothing of
                it was taken in.
            DuplicateDefinition: It says something else than code, or another file, does.
        """
        document = _read(path or self.settings.config or CONFIG)
        note_late_settings(document, self.settings)
        return self._declare(document)

    def handler(self, instance: R) -> R:
        """Register a handler for job types: ``supports(job_type)`` and ``handle(run)``."""
        self.registry.add_handler(instance)
        return instance

    # ------------------------------------------------------------ dispatching

    def dispatch(self, job: "str | Job[..., Any]", /, *args: Any, **kwargs: Any) -> RunHandle:
        """Add a run of a job, by its name, by the path of its handler, or itself.

        Raises:
            JobNotFound: There is no such job; the close name is suggested.
            HandlerNotAllowed: It is a path outside of ``handler_paths``.
            ArgumentError: The arguments do not fit. Nothing was stored.
        """
        return self.draft.dispatch(job, *args, **kwargs)

    @property
    def draft(self) -> OpenDraft:
        """A dispatch in the making, without a job yet."""
        return OpenDraft(self._door)

    def args(self, **args: Any) -> OpenDraft:
        """Arguments first, the job later: ``app.args(kind="daily").dispatch("report")``."""
        return self.draft.args(**args)

    @property
    def runs(self) -> Runs:
        """Runs by id."""
        return self._services.runs

    def get_run(self, run_id: str) -> RunHandle:
        """A handle on a run that somebody dispatched."""
        return self.runs.handle(RunId(run_id))

    # ------------------------------------------------------------ running

    def run(self, batch: int = 32) -> int:
        """One tick and one claim of at most ``batch``, executed here; return the attempts made.

        Failed ones are included. What it takes to be due again is the next call's.
        """
        if not 1 <= batch <= BATCH_MAX:
            raise InvalidOption("batch", batch, f"it lies between 1 and {BATCH_MAX}.")
        services = self._services
        services.catalog.refresh()
        services.known.look()
        with _kept_by(services.keeper):
            return attempts_in(services.once.run(batch))

    # ------------------------------------------------------------ the rest

    def install(self) -> int:
        """Create or upgrade the tables; return their version. Safe to run many at once."""
        return self._opened.install()

    def prune(self, days: float = 30, *, batch: int = PRUNE_BATCH) -> Pruned:
        """Remove finished runs, and definitions that no program has any more, that old."""
        before = self._clock.now() - as_duration(timedelta(days=days))
        total = Pruned(0, 0, 0)
        for _ in range(PRUNE_ROUNDS_MAX):
            gone = self._services.store.prune(before=before, limit=batch)
            total = Pruned(*(sum(pair) for pair in zip(total, gone, strict=True)))
            if not any(gone):
                break
        return total

    def lock(self, name: str, ttl: Length = 60) -> AbstractContextManager[Lock]:
        """Hold a named lock: one holder across all processes, renewed while it lives.

        Raises:
            LockHeld: Another process has it; the error names host and pid.
        """
        return self._services.locks.hold(name, as_duration(ttl))

    def on(self, kind: type[E]) -> Callable[[Callable[[E], R]], Callable[[E], R]]:
        """Subscribe to events: ``@app.on(RunFailed)``. Errors of subscribers reach no run."""

        def subscribe(subscriber: Callable[[E], R]) -> Callable[[E], R]:
            self.events.subscribe(kind, subscriber)
            return subscriber

        return subscribe

    def close(self) -> None:
        """Let go of all connections. What is used afterwards opens them again."""
        services = self.__dict__.pop("_services", None)
        if services is not None:
            services.engine.close()
        opened = self.__dict__.get("_opened")
        if opened is not None:
            opened.close()

    # ------------------------------------------------------------ wiring

    @cached_property
    def _opened(self) -> Store:
        if self._given_store is not None:
            return self._given_store
        return open_store(self.settings.url)

    @cached_property
    def _clock(self) -> Clock:
        if self._given_clock is not None:
            return self._given_clock
        return StoreClock(self._opened.database_time, base=SystemClock())

    @cached_property
    def _services(self) -> Services:
        store = self._opened
        if self.settings.is_installing:
            store.install()
        else:
            store.check_schema()
        return Services(self, store, self._clock)

    @cached_property
    def _door(self) -> "Door":
        return Door(lambda: self._services, self.registry)

    @cached_property
    def _bench(self) -> Bench:
        return Bench(
            registry=self.registry,
            clock=self._clock,
            timezone=self.settings.timezone,
            symbols=self.symbols,
        )

    def _make_job(self, name: str, handler: Callable[..., Any], options: JobOptions) -> Any:
        entry = entry_for(name, handler, options=options)
        self.registry.tried(entry)  # a fault shows here, and nothing is kept of it
        self.registry.add_whole(entry)
        return Job(self._door, name, handler)

    def _declare(self, document: "Document") -> list[str]:
        from tickwork._define.config import declared  # noqa: PLC0415  # as _read

        found = declared(
            document,
            registry=self.registry,
            symbols=self.symbols,
            timezone=self.settings.timezone,
        )
        document.raise_faults()
        self.registry.add_all(found.entries)
        self.symbols.update(found.symbols)
        return [entry.name for entry in found.entries]

    def _builder(self, name: str, handler: Any) -> JobBuilder[Any]:
        entry = entry_for(name, handler)
        self.registry.add(entry)
        function = handler if callable(handler) else _anything
        return JobBuilder(self._bench, entry, Job(self._door, name, function))


class Door:
    """Where dispatches of one application go."""

    def __init__(self, services: Callable[[], Services], registry: Registry) -> None:
        self._services = services
        self._registry = registry

    def define(self, name: str) -> Definition:
        """The job of this name, as this process knows it."""
        return self._registry.get(name)

    def dispatch_one(
        self,
        definition: Definition,
        order: Order,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> RunHandle:
        """Add one run."""
        return self._services().enqueuer.one(definition, order, args, kwargs)

    def dispatch_all(
        self, definition: Definition, order: Order, calls: Iterable[Mapping[str, Any]]
    ) -> list[RunHandle]:
        """Add many, in one transaction."""
        return self._services().enqueuer.many(definition, order, calls)


class _kept_by(AbstractContextManager[None]):  # noqa: N801  # reads as a sentence
    """What is logged inside is kept with its run."""

    def __init__(self, keeper: LogKeeper) -> None:
        self._keeper = keeper

    def __enter__(self) -> None:
        logging.getLogger().addHandler(self._keeper)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._keeper)


def _anything(**arguments: Any) -> None:
    raise NotImplementedError(f"This process does not define the job ({arguments}).")


def _read(path: str | PathLike[str]) -> "Document":
    # Whoever has no file need not load what reads one.
    from tickwork._define.document import Document  # noqa: PLC0415

    return Document.read(path)


def _settings_of(path: str | PathLike[str]) -> tuple[Mapping[str, Any], str]:
    document = _read(path)
    found = settings_in(document)
    document.raise_faults()
    return found, document.source


def _package_of_caller() -> str:
    """The package whose code makes the application."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # inspect.stack reads every file
    ours = name = __name__.partition(".")[0]
    while frame is not None and name == ours:
        named = frame.f_globals.get("__package__") or frame.f_globals.get("__name__", "__main__")
        name = str(named).partition(".")[0]
        frame = frame.f_back
    return name
