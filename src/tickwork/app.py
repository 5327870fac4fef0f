"""The application: settings in, wired services out."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, overload

from tickwork._client.builder import Bench, JobBuilder, ScheduleBuilder
from tickwork._client.catalog import Catalog
from tickwork._client.decorator import JobDecorator
from tickwork._client.enqueue import Enqueuer, Order
from tickwork._client.jobs import Job, OpenDraft
from tickwork._client.locks import Lock, Locks
from tickwork._client.runs import RunHandle, Runs
from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.options import NOTHING_SAID, JobOptions, Length
from tickwork._define.registry import Registry, entry_for
from tickwork._define.resolve import Construct, construct_plainly
from tickwork._domain.identity import RunId
from tickwork._domain.names import checked_name
from tickwork._domain.schedules.pattern import SYMBOLS, Values
from tickwork._kernel.clock import Clock, StoreClock, SystemClock, is_manual
from tickwork._kernel.codec import SIZE_MAX
from tickwork._kernel.durations import as_duration
from tickwork._kernel.loop import Loop
from tickwork._ticker.ticker import Ticker
from tickwork._worker.attempts import Attempts
from tickwork._worker.desk import StoreDesk
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork._worker.keeping import LogKeeper
from tickwork._worker.known import KnownJobs
from tickwork._worker.once import OnePass, Passed, attempts_in
from tickwork._worker.reporting import Reporter
from tickwork.engines.inline import InlineEngine
from tickwork.errors import InvalidOption, masked
from tickwork.events import Event
from tickwork.events.bus import EventBus
from tickwork.settings import RETIRE_AFTER, Settings, read_settings
from tickwork.stores import Store, open_store
from tickwork.stores.contract import Ahead, Pruned

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Event)

BATCH_MAX: Final = 500
PRUNE_BATCH: Final = 1_000
PRUNE_ROUNDS_MAX: Final = 10_000


class Services:
    """Everything behind the face, made when it is first needed.

    ``is_beating`` says that a handler that takes long needs a thread that beats for it.
    """

    def __init__(
        self, app: "Tickwork", store: Store, clock: Clock, *, is_beating: bool = True
    ) -> None:
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
                engine=self.engine,
            ),
            reporter=Reporter(bus=app.events),
            keeper=self.keeper,
            held=self.held,
            heartbeat=self.heartbeat,
            keep_alive=self.beating.start if is_beating else lambda: None,
        )

    def keeping(self) -> AbstractContextManager[None]:
        """What is logged in passes inside this block is kept with its run."""
        return _kept_by(self.keeper)

    def passes(self, batch: int, *, ahead: Ahead | None = None) -> Passed:
        """One pass, with what was said anew written down first."""
        self.catalog.refresh()
        return self.once.run(batch, ahead=ahead)

    def close(self) -> None:
        """End what runs in the background."""
        self.beating.stop()
        self.engine.close()


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
        timezone: str = "UTC",
        install: bool | None = None,
        handler_paths: Iterable[str] | None = None,
        redact: Iterable[str] = (),
        payload_max: int = SIZE_MAX,
        retire_after: Length = RETIRE_AFTER,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        self.settings: Settings = read_settings(
            url=url,
            timezone=timezone,
            install=install,
            handler_paths=[_package_of_caller()] if handler_paths is None else handler_paths,
            redact=redact,
            payload_max=payload_max,
            retire_after=retire_after,
        )
        self.construct: Construct = construct_plainly
        self.symbols: dict[str, Mapping[str, Values]] = dict(SYMBOLS)
        self.events = EventBus()
        self.registry = Registry(
            handler_paths=self.settings.handler_paths,
            size_max=payload_max,
            redact=self.settings.redact,
        )
        self._given_clock = clock
        self._given_store = store
        self._is_elsewhere = False

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
            now=self._now,
            timezone=self.settings.timezone,
            symbols=self.symbols,
        )
        return JobBuilder(bench, entry, Job(door, name, _anything))

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
        with services.keeping():
            return attempts_in(services.passes(batch).steps)

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
            services.close()
        opened = self.__dict__.get("_opened")
        if opened is not None:
            opened.close()

    # ------------------------------------------------------------ wiring

    @property
    def clock(self) -> Clock:
        """What time it is for this application: by default, that of its database."""
        return self._clock

    def _now(self) -> datetime:
        return self._clock.now()

    @contextmanager
    def _on(self, store: Store, clock: Clock | None = None) -> Iterator[None]:
        """For a block: this store, and this clock, instead of its own. Definitions stay."""
        wired = ("_services", "_opened", "_clock")
        kept = {name: self.__dict__.pop(name) for name in wired if name in self.__dict__}
        given = self._given_store, self._given_clock, self._is_elsewhere
        self._given_store, self._is_elsewhere = store, True
        if clock is not None:
            self._given_clock = clock
        try:
            yield
        finally:
            self.close()
            self._given_store, self._given_clock, self._is_elsewhere = given
            for name in wired:
                self.__dict__.pop(name, None)
            self.__dict__.update(kept)

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
        # Leases end by themselves, unless time stands still or nobody else can see them.
        is_beating = not (self._is_elsewhere or is_manual(self._clock))
        return Services(self, store, self._clock, is_beating=is_beating)

    @cached_property
    def _door(self) -> "Door":
        return Door(lambda: self._services, self.registry)

    @cached_property
    def _bench(self) -> Bench:
        return Bench(
            registry=self.registry,
            now=self._now,
            timezone=self.settings.timezone,
            symbols=self.symbols,
        )

    def _make_job(self, name: str, handler: Callable[..., Any], options: JobOptions) -> Any:
        builder = self._builder(name, handler, options)
        self.registry.get(name)  # a fault shows here, not at the first dispatch
        return builder.job

    def _builder(
        self, name: str, handler: Any, options: JobOptions = NOTHING_SAID
    ) -> JobBuilder[Any]:
        entry = entry_for(name, handler, options=options)
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


def _package_of_caller() -> str:
    frame = sys._getframe(2)  # noqa: SLF001  # two up: past __init__
    name: str = frame.f_globals.get("__package__") or frame.f_globals.get("__name__", "__main__")
    return name.partition(".")[0]
