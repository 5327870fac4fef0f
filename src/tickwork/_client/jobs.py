"""Jobs as a program holds them: callable as before, and ready to be dispatched."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from tickwork._client.enqueue import PLAIN_ORDER
from tickwork._client.runs import RunHandle
from tickwork._client.words import Door, OrderWords, mappings, no_job
from tickwork._define.definition import Definition
from tickwork._define.options import Length
from tickwork._kernel.instants import When
from tickwork.errors import InvalidOption
from tickwork.stores import is_async_connection

if TYPE_CHECKING:
    from tickwork._client.asynchronous import AsyncDispatch, AsyncOpenDispatch
    from tickwork._client.borrowing import AsyncDraft, AsyncOpenDraft

P = ParamSpec("P")
R = TypeVar("R")


# By what they do, so that type checkers need no driver to know them.
class PlainConnection(Protocol):
    """A connection as ``sqlite3``, psycopg and SQLAlchemy have it, or a session."""

    def commit(self) -> None:
        """Commit what is open."""
        ...


class CommittingConnection(Protocol):
    """A connection whose verbs are awaited, such as psycopg's ``AsyncConnection``."""

    def commit(self) -> Coroutine[Any, Any, object]:
        """Commit what is open."""
        ...


class ReloadingConnection(Protocol):
    """asyncpg's connection, which leaves committing to its transactions."""

    def reload_schema_state(self) -> Coroutine[Any, Any, object]:
        """Forget what is known of types."""
        ...


AsyncConnection: TypeAlias = CommittingConnection | ReloadingConnection


@dataclass(frozen=True, slots=True)
class Draft(OrderWords, Generic[P]):
    """A dispatch in the making. A value: nothing said here leaks into the next one."""

    _job: Callable[[], Definition] = no_job

    @overload
    def using(self, connection: AsyncConnection) -> "AsyncDraft[P]": ...
    @overload
    def using(self, connection: PlainConnection) -> "Draft[P]": ...

    def using(self, connection: Any) -> "Draft[P] | AsyncDraft[P]":
        """In the transaction of this connection of yours: rolled back means never seen.

        Given an async connection, ``dispatch`` is to be awaited.
        """
        if not is_async_connection(connection):
            return self._with(connection=connection)
        # Whoever has no coroutines need not load what runs them.
        from tickwork._client.borrowing import AsyncDraft  # noqa: PLC0415

        return AsyncDraft(self._door, replace(self._order, connection=connection), self._job)

    @property
    def aio(self) -> "AsyncDispatch[P]":
        """The same dispatch for coroutines: ``await draft.aio.dispatch(...)``."""
        # Whoever has no coroutines need not load what runs them.
        from tickwork._client.asynchronous import AsyncDispatch  # noqa: PLC0415

        return AsyncDispatch(self, self._bridge)

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Add a run with these arguments of the handler.

        Raises:
            ArgumentError: They do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
            WrongConnection: ``using`` was given one that leads elsewhere.
        """
        return self._enqueuer.one(self._job(), self._order, args, kwargs)

    def dispatch_many(self, calls: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Add a run for each of these sets of arguments, in one transaction."""
        return self._enqueuer.many(self._job(), self._order, mappings(calls))


@dataclass(frozen=True, slots=True)
class OpenDraft(OrderWords):
    """A draft that does not know its job yet: ``app.args(kind="daily").dispatch("report")``."""

    @overload
    def using(self, connection: AsyncConnection) -> "AsyncOpenDraft": ...
    @overload
    def using(self, connection: PlainConnection) -> "OpenDraft": ...

    def using(self, connection: Any) -> "OpenDraft | AsyncOpenDraft":
        """In the transaction of this connection of yours: rolled back means never seen.

        Given an async connection, ``dispatch`` is to be awaited.
        """
        if not is_async_connection(connection):
            return self._with(connection=connection)
        from tickwork._client.borrowing import AsyncOpenDraft  # noqa: PLC0415  # as above

        return AsyncOpenDraft(self._door, replace(self._order, connection=connection), self._named)

    @property
    def aio(self) -> "AsyncOpenDispatch":
        """The same dispatch for coroutines: ``await draft.aio.dispatch("report")``."""
        # Whoever has no coroutines need not load what runs them.
        from tickwork._client.asynchronous import AsyncOpenDispatch  # noqa: PLC0415

        return AsyncOpenDispatch(self, self._bridge)

    def dispatch(self, job: "str | Job[..., Any]", /, *args: Any, **kwargs: Any) -> RunHandle:
        """Add a run of this job: its name, the path of its handler, or itself."""
        return self._enqueuer.one(self._named(job), self._order, args, kwargs)

    def dispatch_many(
        self, job: "str | Job[..., Any]", /, calls: Iterable[Mapping[str, Any]]
    ) -> list[RunHandle]:
        """Add a run of this job for each of these sets of arguments, in one transaction."""
        return self._enqueuer.many(self._named(job), self._order, mappings(calls))

    def _named(self, job: object) -> Definition:
        return definition_of(self._door, job)


def definition_of(door: Door, job: object) -> Definition:
    """The definition of a job that is given by its name, by a path, or as it is."""
    if isinstance(job, str):
        return door.define(job)
    found = getattr(job, "job", job)  # a builder has one
    if not isinstance(found, Job):
        raise InvalidOption(
            "job", job, "must be a job or the name of one", fix="Define it with @app.job."
        )
    return found.definition


class Job(Generic[P, R]):
    """A job: still the function that it was, with ways to dispatch it.

    Everything but the handler's own arguments is said before ``dispatch``::

        send_email.delay(10).queue("slow").dispatch(to="ann@example.org")
    """

    __name__: str

    def __init__(
        self, door: Door, name: str, function: Callable[..., R], looks_like: object = None
    ) -> None:
        # What the function has of its own is not taken over: it may have a name, too.
        update_wrapper(self, looks_like or function, updated=())  # type: ignore[arg-type]
        self.name = name
        self._door = door
        self._function = function

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler here and now, as if it were no job.

        A class is made an instance of, as for a run. Who asks for the context gets that of
        the run in which this happens, or else one that belongs to no run.
        """
        return self._function(*args, **kwargs)

    @property
    def definition(self) -> Definition:
        """Everything that was said about it, checked."""
        return self._door.define(self.name)

    @property
    def draft(self) -> Draft[P]:
        """A dispatch in the making, with nothing said yet."""
        return Draft(self._door, _job=lambda: self.definition)

    @property
    def aio(self) -> "AsyncDispatch[P]":
        """Dispatch for coroutines: ``await job.aio.dispatch(...)``."""
        return self.draft.aio

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Add a run with these arguments of the handler.

        Raises:
            ArgumentError: They do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
        """
        return self._door.enqueuer.one(self.definition, PLAIN_ORDER, args, kwargs)

    def dispatch_many(self, calls: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Add a run for each of these sets of arguments, in one transaction."""
        return self.draft.dispatch_many(calls)

    def at(self, when: When) -> Draft[P]:
        """Due at this instant; one in the past is due at once."""
        return self.draft.at(when)

    def delay(self, length: Length) -> Draft[P]:
        """Due that long from now."""
        return self.draft.delay(length)

    def queue(self, name: str) -> Draft[P]:
        """In this queue instead of the job's."""
        return self.draft.queue(name)

    def priority(self, priority: int) -> Draft[P]:
        """With this priority instead of the job's: lower runs first."""
        return self.draft.priority(priority)

    def unique(
        self,
        key: str | None = None,
        *,
        by: str | Iterable[str] = (),
        within: Length | None = None,
    ) -> Draft[P]:
        """At most one unfinished run of this key: otherwise the earlier one is the answer.

        The key is the one given, or the arguments named in ``by``, or all arguments. With
        ``within``, there is none for that long after the first one, finished or not.
        """
        return self.draft.unique(key, by=by, within=within)

    def expires(self, after: Length) -> Draft[P]:
        """Skipped if it could not start within this time of when it was due."""
        return self.draft.expires(after)

    def tags(self, *tags: str) -> Draft[P]:
        """With these words too, by which people find it."""
        return self.draft.tags(*tags)

    def tenant(self, tenant: str) -> Draft[P]:
        """On behalf of this tenant: part of its unique keys."""
        return self.draft.tenant(tenant)

    def target(self, target: str) -> Draft[P]:
        """About this thing of yours: an id that the run carries."""
        return self.draft.target(target)

    def args(self, **args: Any) -> Draft[P]:
        """With these arguments; those of dispatch() override them key by key."""
        return self.draft.args(**args)

    @overload
    def using(self, connection: AsyncConnection) -> "AsyncDraft[P]": ...
    @overload
    def using(self, connection: PlainConnection) -> Draft[P]: ...

    def using(self, connection: Any) -> "Draft[P] | AsyncDraft[P]":
        """In the transaction of this connection of yours: rolled back means never seen.

        Given an async connection, ``dispatch`` is to be awaited.
        """
        draft: Draft[P] | AsyncDraft[P] = self.draft.using(connection)
        return draft
