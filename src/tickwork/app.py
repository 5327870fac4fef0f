"""The application: settings in, wired services out."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import cached_property
from importlib import import_module
from os import PathLike
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from tickwork._client.control import Limits
from tickwork._client.jobs import Job, OpenDraft
from tickwork._client.locks import TTL_DEFAULT, Lock
from tickwork._client.runs import RunHandle, Runs
from tickwork._client.schedules import Schedules
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._define.handlers import Construct, construct_plainly
from tickwork._define.options import Length
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.schedules.pattern import SYMBOLS, Values
from tickwork._kernel.clock import Clock, StoreClock, SystemClock, is_manual
from tickwork._kernel.durations import as_duration
from tickwork._kernel.fork import reset_after_fork
from tickwork._kernel.instants import When
from tickwork._wiring.defining import CONFIG, Defining, read_document
from tickwork._wiring.services import Door, Services
from tickwork._wiring.version import VERSION
from tickwork._wiring.working import Working
from tickwork.errors import AlreadyStarted, SchemaMissing, SchemaOutdated, mask_url
from tickwork.events import Event
from tickwork.events.bus import EventBus
from tickwork.settings import Settings, read_settings, settings_in
from tickwork.stores import Store, open_store, would_wait_for
from tickwork.stores.contract import Pause, Pruned

if TYPE_CHECKING:
    import click

    from tickwork._client.asynchronous import AsyncApp
    from tickwork._domain.explain import Explanation
    from tickwork._domain.health import Check
    from tickwork._inspect.inspector import Inspector

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Event)

PRUNE_BATCH: Final = 1_000
PRUNE_ROUNDS_MAX: Final = 10_000


class Tickwork(Defining, Working):
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
        super().__init__()
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
        self.events: EventBus = EventBus()
        self.registry: Registry = Registry(
            handler_paths=self.settings.handler_paths,
            size_max=self.settings.payload_max,
            redact=self.settings.redact,
        )
        self._bridge = ThreadBridge(lambda: self._opened.connections_max)
        self._making = threading.RLock()
        self._given_clock = clock
        self._given_store = store
        self._is_elsewhere = False
        reset_after_fork(self)

    def __repr__(self) -> str:
        return f"<Tickwork {mask_url(self.settings.url)}>"

    def after_fork(self) -> None:
        """In a child process: its threads are gone, and so is its worker."""
        self._making = threading.RLock()
        self._forget_worker()
        services: Services | None = self.__dict__.pop("_services", None)
        if services is not None:
            services.after_fork()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def aio(self) -> "AsyncApp":
        """The same verbs for coroutines: ``await app.aio.dispatch("report")``."""
        # Whoever has no coroutines need not load what runs them.
        from tickwork._client.async_schedules import (  # noqa: PLC0415
            AsyncLimits,
            AsyncSchedules,
        )
        from tickwork._client.asynchronous import AsyncApp  # noqa: PLC0415

        return AsyncApp(
            self,
            self._bridge,
            run_until=lambda stop, batch: self._services.worker.run(batch, stop),
            schedules=AsyncSchedules(lambda: self.schedules, self._bridge),
            limits=AsyncLimits(lambda: self.limits, self._bridge),
        )

    @classmethod
    def from_config(cls, path: str | PathLike[str] = CONFIG, **settings: Any) -> Self:
        """An application by a file: its settings, and the jobs and schedules it declares.

        What is said here, or in the environment, beats the file.

        Raises:
            ConfigError: With everything that is wrong with the file, each with its line.
        """
        document = read_document(path)
        settings_in(document)
        # With faulty settings it is an app that nobody gets: the rest is looked at all the same.
        app = cls(**settings, config=None if document.problem_count else path)
        app._declare(document)
        return app

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

    # ------------------------------------------------------------ operating

    @property
    def schedules(self) -> Schedules:
        """Schedules at run time: make, change, pause, run and look at them."""
        return self._services.schedules

    @property
    def limits(self) -> Limits:
        """How many runs at a time: what an operator says beats code, until it is reset."""
        return self._services.limits

    def pause(
        self,
        *,
        queue: str | None = None,
        job: str | None = None,
        note: str = "",
        until: When | None = None,
    ) -> Pause:
        """Stop a queue or a job: its runs wait until it is resumed, or until an instant.

        Schedules go on to fire; to stop one of those, ``app.schedules.pause(name)``.

        Raises:
            JobNotFound: There is no such job; the close name is suggested.
            InvalidOption: ``until`` has passed, or not exactly one of both is named.
        """
        return self._services.pauses.pause(queue=queue, job=job, note=note, until=until)

    def resume(self, *, queue: str | None = None, job: str | None = None) -> bool:
        """Let a queue or a job go on; False when it was not paused."""
        return self._services.pauses.resume(queue=queue, job=job)

    def pauses(self) -> list[Pause]:
        """The queues and jobs that are paused now."""
        return self._services.pauses.list()

    # ------------------------------------------------------------ the rest

    @property
    def inspect(self) -> "Inspector":
        """Questions about everything: what runs, what comes, one run's whole story."""
        return self._services.inspector

    def explain(self, what: str, *, tenant: str = "") -> "Explanation":
        """Why a job, a schedule or a run has not run: by its name, or the beginning of an id.

        >>> app = Tickwork("memory://")
        >>> @app.job
        ... def report() -> None: ...
        >>> run = report.delay("1h").dispatch()
        >>> [cause.text for cause in app.explain(run.id).causes]
        ['It was dispatched for later.', 'No worker is up.']

        Raises:
            JobNotFound: Nothing has that name; the close one is suggested.
            RunNotFound: It looks like an id, and no run has it.
            AmbiguousRun: Several runs begin like that.
        """
        return self._services.inspector.explain(what, tenant=tenant)

    def examine(self) -> "list[Check]":
        """Whether all is well: connection, tables, clock, workers, leases, backlog."""
        # Who only dispatches, or works, need not load what looks.
        from tickwork._inspect.health import check_health  # noqa: PLC0415

        return check_health(
            self._opened,
            clock=self._clock,
            machine=SystemClock(),
            retire_after=self.settings.retire_after,
            version=VERSION,
        )

    def status(self) -> dict[str, Any]:
        """What there is: jobs, unfinished runs, schedules, workers."""
        return asdict(self.inspect.status())

    def cli(self) -> "click.Group":
        """The command line for this application, to mount in a program's own click command."""
        # By name: commands lie above applications, and a program without them loads none.
        command: click.Group = import_module("tickwork.cli.main").command_for(self)
        return command

    def schema_version(self) -> int:
        """The version of the tables that are there; 0 when there are none."""
        return self._opened.schema_version()

    def install(self) -> int:
        """Create or upgrade the tables; return their version. Safe to run many at once."""
        return self._opened.install()

    def prune(
        self,
        days: float = 30,
        *,
        batch: int = PRUNE_BATCH,
        on_batch: Callable[[Pruned], object] | None = None,
    ) -> Pruned:
        """Remove finished runs, and definitions that no program has any more, that old.

        ``on_batch`` is told after each batch how much is gone so far.
        """
        before = self._clock.now() - as_duration(timedelta(days=days))
        total = Pruned(0, 0, 0)
        with_definitions = False  # to find those takes a look at all there are: once, at the end
        for _ in range(PRUNE_ROUNDS_MAX):
            gone = self._services.store.prune(
                before=before, limit=batch, with_definitions=with_definitions
            )
            total = Pruned(*(sum(pair) for pair in zip(total, gone, strict=True)))
            if on_batch is not None:
                on_batch(total)
            if not any(gone) and with_definitions:
                break
            with_definitions = with_definitions or not any(gone)
        return total

    def cancel_orphans(self, days: float = 30) -> int:
        """Cancel waiting runs, that old, of jobs that no program has any more.

        A job is an orphan's when no live worker knows it, this program does not define it,
        and no program has for that long. Returns how many runs that were.
        """
        from tickwork._client.orphans import cancel_orphans  # noqa: PLC0415  # few need it

        now = self._clock.now()
        before = now - timedelta(days=days)
        return cancel_orphans(self._services.store, self.registry, before=before, now=now)

    def lock(self, name: str, ttl: Length = TTL_DEFAULT) -> AbstractContextManager[Lock]:
        """Hold a named lock: one holder across all processes, renewed while it lives.

        Raises:
            LockHeld: Another process has it; the error names host and pid.
        """
        return self._services.locks.hold(name, as_duration(ttl))

    def unlock(self, name: str) -> bool:
        """Free a named lock whose holder is known to be gone; False when nobody had it."""
        return self._services.locks.release(name)

    def on(self, kind: type[E]) -> Callable[[Callable[[E], R]], Callable[[E], R]]:
        """Subscribe to events: ``@app.on(RunFailed)``. Errors of subscribers reach no run."""

        def subscribe(subscriber: Callable[[E], R]) -> Callable[[E], R]:
            self.events.subscribe(kind, subscriber)
            return subscriber

        return subscribe

    def close(self) -> None:
        """Let go of all connections and threads. What is used afterwards makes them again."""
        self._bridge.close()
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
        if self._worker is not None:
            raise AlreadyStarted  # it would go on in the other store
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

    def _served(self) -> Services:
        return self._services

    @cached_property
    def _services(self) -> Services:
        with self._making:
            made: Services | None = self.__dict__.get("_services")
            if made is not None:
                return made  # by another thread, meanwhile
            store = self._opened
            # An installation takes a lock, and one in a caller's transaction would keep it.
            if self.settings.is_installing and not (self._is_elsewhere and _fits(store)):
                store.install()
            store.check_schema()
            # Leases end by themselves, unless time stands still or nobody else can see them.
            is_beating = not (self._is_elsewhere or is_manual(self._clock))
            made = Services(self, store, self._clock, self._bridge, is_beating=is_beating)
            self.__dict__["_services"] = made
            return made

    def _door_of(self, registry: Registry) -> Door:
        return Door(
            self._served_beside, registry, bridge=self._bridge, has_to_ask=lambda: self._has_to_ask
        )

    def _served_beside(self, connection: object) -> Services:
        """Services for a dispatch on this connection of the caller's, or on none."""
        is_first = "_services" not in self.__dict__
        if is_first and connection is not None and would_wait_for(connection, self._opened):
            raise SchemaMissing(self.settings.url, is_within=True)
        return self._services

    @property
    def _has_to_ask(self) -> bool:
        is_stale = isinstance(self._clock, StoreClock) and self._clock.is_stale
        return is_stale or "_services" not in self.__dict__


def _fits(store: Store) -> bool:
    try:
        store.check_schema()
    except (SchemaMissing, SchemaOutdated):
        return False
    return True


def _settings_of(path: str | PathLike[str]) -> tuple[Mapping[str, Any], str]:
    document = read_document(path)
    found = settings_in(document)
    document.raise_problems()
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
