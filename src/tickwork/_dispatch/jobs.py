"""Jobs and drafts: the objects with which a program dispatches runs."""

# ruff: noqa: SLF001  # jobs and drafts make each other of their own parts

import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

from tickwork._define.definition import Definition
from tickwork._dispatch.async_connections import is_async_connection
from tickwork._dispatch.dispatch import (
    Dispatcher,
    naming_runs,
    new_run,
    new_runs,
    trace_dispatch,
)
from tickwork._dispatch.dispatch_options import (
    NO_DISPATCH_OPTIONS,
    DispatchOptionMethods,
    DispatchOptions,
    DueOptionMethods,
)
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NewRun
from tickwork._handlers.handlers import line_of_caller
from tickwork._handlers.planned_run import NamedJob, PlannedRun
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import Store
from tickwork.errors import InvalidOption, JobNotFound, UndispatchedDraft

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
T = TypeVar("T")


# Described by their methods, so that type checkers need no driver to know them.
class SyncConnection(Protocol):
    """A connection of ``sqlite3``, psycopg or SQLAlchemy, or a session."""

    def commit(self) -> None:
        """Commit the open transaction."""
        ...


class CommittingConnection(Protocol):
    """An async connection that commits, such as psycopg's ``AsyncConnection``."""

    def commit(self) -> Coroutine[Any, Any, object]:
        """Commit the open transaction."""
        ...


class ReloadingConnection(Protocol):
    """asyncpg's connection, which commits through its transaction objects."""

    def reload_schema_state(self) -> Coroutine[Any, Any, object]:
        """Forget cached types."""
        ...


AsyncConnection: TypeAlias = CommittingConnection | ReloadingConnection


Calls: TypeAlias = Iterable[Mapping[str, Any]]
"""Sets of arguments, each by name, for one run each."""


class Dispatchable(DueOptionMethods["Draft[P, R]"], Generic[P, R]):
    """What jobs, builders and drafts have in common: ways to dispatch."""

    __slots__ = ()

    @property
    @abstractmethod
    def draft(self) -> "Draft[P, R]":
        """A dispatch to which options can be added."""

    def _draft_with(self, **changes: Any) -> "Draft[P, R]":
        draft = self.draft
        draft._is_used = True
        return Draft(draft._dispatcher, replace(draft._options, **changes), draft._job)

    @property
    def aio(self) -> "AsyncDraft[P, R]":
        """The same dispatch for coroutines: ``await job.aio.dispatch(...)``."""
        draft = self.draft
        draft._is_used = True
        if draft._options.connection is not None:
            raise _not_async(draft._options.connection)
        return AsyncDraft(draft._dispatcher, draft._options, draft._job)

    @overload
    def using(self, connection: AsyncConnection) -> "AsyncDraft[P, R]": ...
    @overload
    def using(self, connection: SyncConnection) -> "Draft[P, R]": ...

    def using(self, connection: Any) -> "Draft[P, R] | AsyncDraft[P, R]":
        """Add the run inside your own transaction: if you roll back, it never existed.

        Given an async connection, ``dispatch`` must be awaited.
        """
        draft = self._draft_with(connection=connection)
        if is_async_connection(connection):
            draft._is_used = True
            return AsyncDraft(draft._dispatcher, draft._options, draft._job)
        return draft

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> PlannedRun[R]:
        """Plan a run with these arguments, for ``ctx.call``, ``ctx.gather`` and ``ctx.then``."""
        if isinstance(self, Draft):
            self._is_used = True
        return PlannedRun(self, args, kwargs)

    def named(self, name: str) -> NamedJob[P, R]:
        """The job under a name, for ``ctx.call``: a run calls a job twice under two names."""
        return NamedJob(self.plan, name)

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Add a run with these arguments of the handler.

        Raises:
            ArgumentError: They do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
            WrongConnection: ``using`` was given a connection to another database.
        """
        return self.draft.dispatch(*args, **kwargs)


class DraftState(DispatchOptionMethods[D]):
    """What a draft consists of. Without a job, ``dispatch`` takes the job first."""

    __slots__ = ("_dispatcher", "_is_used", "_job", "_options", "_place")

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: DispatchOptions = NO_DISPATCH_OPTIONS,
        job: Callable[[], Definition] | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._options = options
        self._job = job
        # A draft without options, such as ``job.draft``, is what introspection finds.
        self._is_used = options is NO_DISPATCH_OPTIONS
        self._place = None if self._is_used else line_of_caller()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options}>"

    def __del__(self) -> None:
        # Without the attribute, the constructor has failed.
        if not getattr(self, "_is_used", True) and not sys.is_finalizing():
            assert self._place is not None, self
            warnings.warn_explicit(
                UndispatchedDraft(
                    "A draft was never dispatched, so no run was added. "
                    'Write job.delay("10s").dispatch(...).'
                ),
                UndispatchedDraft,
                *self._place,
            )

    def _split(self, args: tuple[Any, ...]) -> tuple[Definition, tuple[Any, ...]]:
        """The job to dispatch, and the arguments that are left for it."""
        self._is_used = True
        if self._options.queue is not None:
            self._dispatcher.registry.check_queue(self._options.queue)
        if self._job is not None:
            return self._job(), args
        if not args:
            raise TypeError("dispatch() needs a job: itself, its name, or the path of its handler.")
        try:
            return find_definition(args[0], self._dispatcher), args[1:]
        except JobNotFound as error:
            if not (args[1:] and callable(args[1])):
                raise
            raise JobNotFound(
                error.name,
                known=self._dispatcher.registry.definitions(),
                fix=f"To run a function once: app.adhoc({error.name!r}, function).dispatch().",
            ) from None


class Draft(Dispatchable[P, R], DraftState["Draft[P, R]"]):
    """A dispatch with options. Each option returns a new draft; the old one stays as it was.

    A draft of the application has no job yet, and ``dispatch`` takes the job first:

    >>> from tickwork import Tickwork
    >>> app = Tickwork("memory://")
    >>> @app.job
    ... def report(kind: str) -> None: ...
    >>> app.args(kind="daily").queue("slow").dispatch("report").read().queue
    'slow'
    """

    __slots__ = ()

    @property
    def draft(self) -> "Draft[P, R]":
        """This draft."""
        return self

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Add a run with these arguments of the handler.

        Raises:
            ArgumentError: They do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
            WrongConnection: ``using`` was given a connection to another database.
        """
        definition, rest = self._split(args)
        return self._dispatcher.dispatch(definition, self._options, rest, kwargs)

    @overload
    def dispatch_many(
        self: "OpenDraft", job: "JobOrName", calls: Calls, /
    ) -> list[RunHandle[Any]]: ...
    @overload
    def dispatch_many(self, calls: Calls, /) -> list[RunHandle[R]]: ...

    def dispatch_many(self, *job_and_calls: Any) -> list[RunHandle[R]]:
        """Add a run for each of these sets of arguments, in one transaction."""
        definition, (calls,) = self._split(job_and_calls)
        return self._dispatcher.dispatch_many(definition, self._options, calls)


class AsyncDraft(DraftState["AsyncDraft[P, R]"], Generic[P, R]):
    """A dispatch with options, for coroutines: ``await job.aio.delay(10).dispatch(...)``.

    With an async connection of yours, the run is added on it directly. Otherwise one of
    tickwork's own threads adds it.
    """

    __slots__ = ()

    def _draft_with(self, **changes: Any) -> "AsyncDraft[P, R]":
        self._is_used = True
        return AsyncDraft(self._dispatcher, replace(self._options, **changes), self._job)

    def using(self, connection: AsyncConnection) -> "AsyncDraft[P, R]":
        """Add the run inside your own transaction: if you roll back, it never existed."""
        if not is_async_connection(connection):
            raise _not_async(connection)
        return self._draft_with(connection=connection)

    async def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """As :meth:`Draft.dispatch`."""
        if self._options.connection is None:
            return await self._in_thread(Draft.dispatch, *args, **kwargs)
        definition, rest = self._split(args)
        store, now, definition = await self._dispatcher.prepare(definition, self._options)
        run = new_run(definition, self._options, RunId(new_id(now)), rest, kwargs, now=now)
        [handle] = await self._add(store, [run])
        return handle

    @overload
    async def dispatch_many(
        self: "AsyncOpenDraft", job: "JobOrName", calls: Calls, /
    ) -> list[RunHandle[Any]]: ...
    @overload
    async def dispatch_many(self, calls: Calls, /) -> list[RunHandle[R]]: ...

    async def dispatch_many(self, *job_and_calls: Any) -> list[RunHandle[R]]:
        """As :meth:`Draft.dispatch_many`."""
        *job, calls = job_and_calls
        calls = list(calls)  # a generator may be bound to this thread
        if self._options.connection is None:
            return await self._in_thread(Draft.dispatch_many, *job, calls)
        definition, _ = self._split((*job, calls))
        store, now, definition = await self._dispatcher.prepare(definition, self._options)
        return await self._add(store, new_runs(definition, self._options, calls, now=now))

    async def _in_thread(self, dispatch: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        self._is_used = True
        draft: Draft[P, R] = Draft(self._dispatcher, self._options, self._job)
        return await self._dispatcher.services.bridge.call(dispatch, draft, *args, **kwargs)

    async def _add(self, store: Store, runs: Sequence[NewRun]) -> list[RunHandle[R]]:
        borrowed = store.using_async(self._options.connection)
        tracer = self._dispatcher.services.tracer
        with naming_runs(runs), trace_dispatch(tracer, runs) as traced:
            added = await borrowed.add_runs(traced)
        return self._dispatcher.handles(added, self._options)


class Job(Dispatchable[P, R], DispatchOptionMethods["Draft[P, R]"], Generic[P, R]):
    """A job: still the function that it was, with ways to dispatch it.

    Options of a dispatch come before ``dispatch``, which takes only the handler's arguments:

    >>> from tickwork import Tickwork
    >>> app = Tickwork("memory://")
    >>> @app.job
    ... def send_email(to: str) -> None: ...
    >>> run = send_email.delay(10).queue("slow").dispatch(to="ann@example.org")
    >>> run.read().queue
    'slow'
    """

    __name__: str

    def __init__(
        self,
        dispatcher: Dispatcher,
        name: str,
        function: Callable[..., R],
        wrapped: object = None,
    ) -> None:
        # Attributes of the function are not copied: one of them could be called `name`.
        update_wrapper(self, wrapped or function, updated=())  # type: ignore[arg-type]
        self.name = name
        self._dispatcher = dispatcher
        self._function = function

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler directly, here and now. Nothing is stored.

        A handler class is instantiated as for a run. A handler that takes a context gets the
        one of the current run, or one without a run.
        """
        return self._function(*args, **kwargs)

    @property
    def definition(self) -> Definition:
        """The job's options and handler, checked."""
        return self._dispatcher.registry.get(self.name)

    @property
    def draft(self) -> Draft[P, R]:
        """A dispatch to which options can be added."""
        return Draft(self._dispatcher, NO_DISPATCH_OPTIONS, lambda: self.definition)

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Add a run with these arguments of the handler.

        Raises:
            ArgumentError: They do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
        """
        dispatcher = self._dispatcher
        registry = dispatcher.registry
        definition = registry.current.get(self.name) or registry.get(self.name)
        return dispatcher.dispatch(definition, NO_DISPATCH_OPTIONS, args, kwargs)

    def dispatch_many(self, calls: Calls, /) -> list[RunHandle[R]]:
        """Add a run for each of these sets of arguments, in one transaction."""
        return self._dispatcher.dispatch_many(self.definition, NO_DISPATCH_OPTIONS, calls)


JobOrName: TypeAlias = str | type | Job[..., Any]
"""A job, its name, the path of its handler, or its class."""

OpenDraft: TypeAlias = Draft[Concatenate[JobOrName, ...], Any]
AsyncOpenDraft: TypeAlias = AsyncDraft[Concatenate[JobOrName, ...], Any]


def plan_run(
    dispatcher: Dispatcher, job: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> NewRun:
    """Make a run of a job or of a draft, without adding it.

    Raises:
        ArgumentError: The arguments do not fit the handler.
        InvalidOption: The draft has a connection: the run is added on another one.
    """
    options = NO_DISPATCH_OPTIONS
    if isinstance(job, Dispatchable):
        job = job.draft  # a builder may have options for this dispatch
    if isinstance(job, Draft | AsyncDraft):
        definition, args = job._split(args)
        options = job._options
    else:
        definition = find_definition(job, dispatcher)
    if options.connection is not None:
        raise InvalidOption(
            "then",
            options.connection,
            "must be a draft without using()",
            fix="Pass the draft without using(): its run is added with the success of this one.",
        )
    now = dispatcher.services.clock.now()
    if definition.is_remote:
        definition = dispatcher.add_stored_limits(definition, options)
    run = new_run(definition, options, RunId(new_id(now)), args, kwargs, now=now)
    with trace_dispatch(dispatcher.services.tracer, [run]) as [traced]:
        return traced


def find_definition(job: object, dispatcher: Dispatcher) -> Definition:
    """The definition of a job that is given by its name, path or class, or as it is."""
    if isinstance(job, str):
        return dispatcher.registry.get(job)
    if isinstance(job, type):
        return dispatcher.registry.get_by_class(job)
    definition = getattr(job, "job", job)  # a builder has one
    if not isinstance(definition, Job):
        raise InvalidOption(
            "job", type(job), "must be a job or the name of one", fix="Define it with @app.job."
        )
    return definition.definition


def _not_async(connection: object) -> InvalidOption:
    return InvalidOption(
        "using",
        connection,
        "must be an async connection for an async dispatch",
        fix="Call dispatch() on the job itself, or pass an async connection.",
    )
