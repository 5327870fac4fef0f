"""The application: settings in, wired services out."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, overload

from tickwork._client.adding import Inlet
from tickwork._client.builder import Bench, JobBuilder, ScheduleBuilder
from tickwork._client.catalog import Catalog
from tickwork._client.decorator import JobDecorator
from tickwork._client.enqueue import Enqueuer
from tickwork._client.hops import Hops
from tickwork._client.jobs import Job, OpenDraft
from tickwork._client.locks import TTL_DEFAULT, Lock, Locks
from tickwork._client.runs import RunHandle, Runs
from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.options import JobOptions, Length
from tickwork._define.registry import Registry, entry_for
from tickwork._define.resolve import Construct, construct_plainly
from tickwork._domain.identity import RunId
from tickwork._domain.names import checked_name
from tickwork._domain.schedules.pattern import SYMBOLS, Values
from tickwork._kernel.clock import Clock, StoreClock, SystemClock, is_manual
from tickwork._kernel.codec import SIZE_MAX
from tickwork._kernel.durations import as_duration
from tickwork._kernel.forks import begins_anew_after_fork
from tickwork._kernel.loop import Loop
from tickwork._kernel.origins import place_of
from tickwork._kernel.processes import ThisProcess
from tickwork._kernel.signals import stopping_on_signals
from tickwork._ticker.ticker import Ticker
from tickwork._upkeep.reaper import Reaper
from tickwork._worker.attempts import Attempts
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
from tickwork.errors import AlreadyStarted, InvalidOption, TickworkError, masked
from tickwork.events import Event
from tickwork.events.bus import EventBus
from tickwork.settings import RETIRE_AFTER, Settings, read_settings
from tickwork.stores import Store, open_store
from tickwork.stores.contract import Pruned

if TYPE_CHECKING:
    from tickwork._client.asynchronous import AsyncApp

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
        self, app: "Tickwork", store: Store, clock: Clock, hops: Hops, *, is_beating: bool = True
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
        self.inlet = Inlet(store=store, bus=app.events)
        self.runs = Runs(store=store, clock=clock, inlet=self.inlet, hops=hops)
        self.enqueuer = Enqueuer(store=store, clock=clock, runs=self.runs, inlet=self.inlet)
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
            store=store, clock=clock, crashes_max=self.known.crashes_max, me=ThisProcess.look()
        )
        self._app = app

    def seconds_to_next(self, longest: float) -> float:
        """How long until something falls due."""
        return self.timer.seconds_left(longest)

    def worker(self, options: WorkerOptions) -> Worker:
        """A worker that is ready to start."""
        # Who only dispatches need not load what works.
        from tickwork._wiring import assembled  # noqa: PLC0415

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

    def passes(self, batch: int, *, stop: threading.Event | None = None) -> Passed:
        """One pass, with what was said anew written down first."""
        self.catalog.refresh()
        with self.keeper.listening():
            return self.once.run(batch, stop=stop)

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
        self._hops = Hops(lambda: self._opened.connections_max)
        self._making = threading.RLock()
        self._given_clock = clock
        self._given_store = store
        self._starting = threading.Lock()
        self._worker: Worker | None = None
        self._is_elsewhere = False
        self.path = ""  # module:attribute, where somebody loaded it by that
        begins_anew_after_fork(self)

    def __repr__(self) -> str:
        return f"<Tickwork {masked(self.settings.url)}>"

    def after_fork(self) -> None:
        """In a child process: its threads are gone, and so is its worker."""
        self._making, self._starting, self._worker = threading.RLock(), threading.Lock(), None
        services: Services | None = self.__dict__.pop("_services", None)
        if services is not None:
            services.keeper.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def aio(self) -> "AsyncApp":
        """The same verbs for coroutines: ``await app.aio.dispatch("report")``."""
        # Whoever has no coroutines need not load what runs them.
        from tickwork._client.asynchronous import AsyncApp  # noqa: PLC0415

        return AsyncApp(self, self._hops, run_until=self._run_until)

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
        door = self._door_of(remote)
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
        return self._run_until(threading.Event(), batch)

    def start(self, options: WorkerOptions | None = None, **said: Any) -> None:
        """Start a worker in the background of this process.

        What a worker can be told is said by name: ``app.start(threads=4, drain="5s")``.

        Raises:
            AlreadyStarted: There is one.
        """
        with self._starting:
            if self._worker is not None:
                raise AlreadyStarted
            if Here.is_child:
                raise TickworkError(
                    "This is a child process of a worker: it starts none itself.",
                    why="The module of the application starts a worker when it is imported.",
                    fix='Put the start below `if __name__ == "__main__":`.',
                )
            services = self._services
            services.catalog.refresh()
            services.known.look()
            worker = services.worker(options or worker_options(**said))
            self._worker = worker  # before it starts: somebody may stop it meanwhile
            services.keeper.listen()
            try:
                worker.start()
            except BaseException:
                self._worker = None
                services.keeper.listen(is_on=False)
                raise

    def stop(self) -> None:
        """Let the worker take no new work. Returns at once; what runs may end."""
        worker = self._worker
        if worker is not None:
            worker.stop()

    def join(self) -> int:
        """Wait until the worker was stopped and has ended.

        Returns how many attempts go on all the same: threads that nothing can end. Their
        runs were given back.
        """
        with self._starting:
            worker = self._worker
        if worker is None:
            return 0
        worker.join()
        with self._starting:
            if self._worker is worker:
                self._worker = None
                self._services.keeper.listen(is_on=False)
        return worker.left_behind

    def forever(self, poll: Length = 0.2, **options: Any) -> None:
        """Work until :meth:`stop` is called, from a handler, a signal or another thread.

        In the main thread SIGTERM and SIGINT stop it; the second one ends the process.
        """
        with stopping_on_signals(self.stop):
            self.start(poll=poll, **options)
            self.join()

    @contextmanager
    def running(self, options: WorkerOptions | None = None, **said: Any) -> Iterator[Self]:
        """A worker in the background for as long as the block runs."""
        self.start(options, **said)
        try:
            yield self
        finally:
            self.stop()
            self.join()

    def collect(
        self, length: Length = 0, *, batch: int = 32, stop: threading.Event | None = None
    ) -> int:
        """Run what is due until nothing is, for at least this long; return how many failed.

        With a length, what falls due meanwhile runs on time. Once ``stop`` is set it ends with
        the attempt that is being made, and gives back what it had claimed.
        """
        stop = stop or threading.Event()
        services = self._services
        until = self._clock.monotonic() + as_duration(length).total_seconds()
        before = services.stats.failures
        # It ends at the given moment, once nothing is due.
        while True:
            if self._run_until(stop, batch) and not stop.is_set():
                continue
            left = until - self._clock.monotonic()
            if left <= 0 or stop.is_set():
                return services.stats.failures - before
            stop.wait(min(left, services.seconds_to_next(0.2)))

    @property
    def desk(self) -> StoreDesk:
        """Where handlers that run in a process of their own leave their words."""
        return StoreDesk(store=self._services.store, clock=self._services.clock)

    @property
    def origin(self) -> Origin:
        """Where other processes find this application.

        Raises:
            InvalidOption: No module has it under a name.
        """
        if self.path:
            module, _, attribute = self.path.partition(":")
            return Origin(module, attribute or "app", "", tuple(sys.path))
        place = place_of(self)
        if place is None:
            raise InvalidOption(
                "engine",
                "process",
                "no other process could find this application: no module has it under a name.",
                fix="Keep it in a module: app = Tickwork(...) at its top.",
            )
        return Origin(place.module, place.attribute, place.file, tuple(sys.path))

    @property
    def stats(self) -> Stats:
        """How this process has done so far."""
        return self._services.stats

    def status(self) -> dict[str, Any]:
        """What there is: unfinished runs, schedules, workers."""
        store, now = self._services.store, self._clock.now()
        counts = store.count_runs()
        return {
            "now": now,
            "runs": {phase.value: count for phase, count in counts.by_phase.items()},
            "schedules": [
                {
                    "tenant": row.spec.tenant,
                    "name": row.spec.name,
                    "job": row.spec.job,
                    "next_due_at": row.next_due_at,
                    "last_fired_at": row.last_fired_at,
                    "is_paused": row.is_paused,
                }
                for row in store.list_schedules()
            ],
            "workers": [
                {
                    "id": worker.id,
                    "host": worker.host,
                    "pid": worker.pid,
                    "beat_at": worker.beat_at,
                    "running": worker.running,
                }
                for worker in store.list_workers()
            ],
        }

    def release_dead(self, pid: int) -> int:
        """End the leases of a worker process of this machine that is known to be dead."""
        return self._services.reaper.release_process(pid)

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

    def lock(self, name: str, ttl: Length = TTL_DEFAULT) -> AbstractContextManager[Lock]:
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
        """Let go of all connections and threads. What is used afterwards makes them again."""
        self._hops.close()
        services = self.__dict__.pop("_services", None)
        if services is not None:
            services.close()
        opened = self.__dict__.get("_opened")
        if opened is not None:
            opened.close()

    # ------------------------------------------------------------ wiring

    def _run_until(self, stop: threading.Event, batch: int) -> int:
        if not 1 <= batch <= BATCH_MAX:
            raise InvalidOption("batch", batch, f"it lies between 1 and {BATCH_MAX}.")
        return attempts_in(self._services.passes(batch, stop=stop).steps)

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
        with self._making:
            made: Services | None = self.__dict__.get("_services")
            if made is not None:
                return made  # by another thread, meanwhile
            store = self._opened
            if self.settings.is_installing:
                store.install()
            else:
                store.check_schema()
            # Leases end by themselves, unless time stands still or nobody else can see them.
            is_beating = not (self._is_elsewhere or is_manual(self._clock))
            made = Services(self, store, self._clock, self._hops, is_beating=is_beating)
            self.__dict__["_services"] = made
            return made

    @cached_property
    def _door(self) -> "Door":
        return self._door_of(self.registry)

    def _door_of(self, registry: Registry) -> "Door":
        return Door(
            lambda: self._services, registry, hops=self._hops, has_to_ask=lambda: self._has_to_ask
        )

    @property
    def _has_to_ask(self) -> bool:
        is_stale = isinstance(self._clock, StoreClock) and self._clock.is_stale
        return is_stale or "_services" not in self.__dict__

    @cached_property
    def _bench(self) -> Bench:
        return Bench(
            registry=self.registry,
            now=self._now,
            timezone=self.settings.timezone,
            symbols=self.symbols,
        )

    def _make_job(self, name: str, handler: Callable[..., Any], options: JobOptions) -> Any:
        entry = entry_for(name, handler, options=options)
        self.registry.tried(entry)  # a fault shows here, and nothing is kept of it
        self.registry.add_whole(entry)
        return Job(self._door, name, handler)

    def _builder(self, name: str, handler: Any) -> JobBuilder[Any]:
        entry = entry_for(name, handler)
        self.registry.add(entry)
        function = handler if callable(handler) else _anything
        return JobBuilder(self._bench, entry, Job(self._door, name, function))


class Door:
    """Where dispatches of one application go."""

    def __init__(
        self,
        services: Callable[[], Services],
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
        return self._services().enqueuer

    @property
    def has_to_ask(self) -> bool:
        """Whether the next look would wait for the database."""
        return self._has_to_ask()

    def look(self) -> tuple[Enqueuer, datetime]:
        """Who adds runs, and what time it is for the database."""
        services = self._services()
        return services.enqueuer, services.clock.now()

    def define(self, name: str) -> Definition:
        """The job of this name, as this process knows it."""
        return self._registry.get(name)


def _anything(**arguments: Any) -> None:
    raise NotImplementedError(f"This process does not define the job ({arguments}).")


def _package_of_caller() -> str:
    frame = sys._getframe(2)  # noqa: SLF001  # two up: past __init__
    name: str = frame.f_globals.get("__package__") or frame.f_globals.get("__name__", "__main__")
    return name.partition(".")[0]
