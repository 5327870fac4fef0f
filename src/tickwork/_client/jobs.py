"""Jobs as a program holds them: callable as before, and ready to be dispatched."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

from tickwork._client.enqueue import PLAIN_ORDER, Order
from tickwork._client.runs import RunHandle
from tickwork._define.definition import Definition
from tickwork._define.options import Length, options_by_name
from tickwork._domain.names import checked_name
from tickwork._kernel.durations import as_delay, as_duration
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import InvalidOption

P = ParamSpec("P")
R = TypeVar("R")


class Door(Protocol):
    """Where dispatches go: the application."""

    def define(self, name: str) -> Definition:
        """The job of this name, as this process knows it."""
        ...

    def dispatch_one(
        self,
        definition: Definition,
        order: Order,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> RunHandle:
        """Add one run."""
        ...

    def dispatch_all(
        self, definition: Definition, order: Order, calls: Iterable[Mapping[str, Any]]
    ) -> list[RunHandle]:
        """Add many, in one transaction."""
        ...


def _nothing() -> Definition:
    raise AssertionError("A draft has a job.")


@dataclass(frozen=True, slots=True)
class OrderWords:
    """What can be said about a dispatch before its arguments. Each word gives a new draft."""

    _door: Door
    _order: Order = PLAIN_ORDER

    def _with(self, **changes: Any) -> Self:
        return replace(self, _order=replace(self._order, **changes))

    def at(self, when: When) -> Self:
        """Due at this instant; one in the past is due at once."""
        return self._with(at=as_instant(when), delay=None)

    def delay(self, length: Length) -> Self:
        """Due that long from now."""
        return self._with(delay=as_delay(length), at=None)

    def queue(self, name: str) -> Self:
        """In this queue instead of the job's."""
        return self._with(queue=checked_name("queue", name, forbidden="="))

    def priority(self, priority: int) -> Self:
        """With this priority instead of the job's: lower runs first."""
        return self._with(priority=options_by_name({"priority": priority}).priority)

    def unique(
        self,
        key: str | None = None,
        *,
        by: str | Iterable[str] = (),
        within: Length | None = None,
    ) -> Self:
        """At most one unfinished run of this key: otherwise the earlier one is the answer."""
        said = options_by_name({"unique": {"key": key, "by": by, "within": within}})
        return self._with(unique=said.unique)

    def expires(self, after: Length) -> Self:
        """Skipped if it could not start within this time of when it was due."""
        return self._with(expires=options_by_name({"expires": as_duration(after)}).expires)

    def tags(self, *tags: str) -> Self:
        """With these words too, by which people find it."""
        return self._with(tags=(*self._order.tags, *tags))

    def tenant(self, tenant: str) -> Self:
        """On behalf of this tenant: part of its unique keys."""
        return self._with(tenant=checked_name("tenant", tenant) if tenant else "")

    def target(self, target: str) -> Self:
        """About this thing of yours: an id that the run carries."""
        return self._with(target=checked_name("target", target))

    def args(self, **args: Any) -> Self:
        """With these arguments; those of dispatch() override them key by key."""
        return self._with(args={**self._order.args, **args})

    def using(self, connection: object) -> Self:
        """In the transaction of this connection of yours: rolled back means never seen."""
        return self._with(connection=connection)


@dataclass(frozen=True, slots=True)
class Draft(OrderWords, Generic[P]):
    """A dispatch in the making. A value: nothing said here leaks into the next one."""

    _job: Callable[[], Definition] = _nothing

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Add a run with these arguments of the handler.

        Raises:
            ArgumentError: They do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
        """
        return self._door.dispatch_one(self._job(), self._order, args, kwargs)

    def dispatch_many(self, calls: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Add a run for each of these sets of arguments, in one transaction."""
        return self._door.dispatch_all(self._job(), self._order, _mappings(calls))


@dataclass(frozen=True, slots=True)
class OpenDraft(OrderWords):
    """A draft that does not know its job yet: ``app.args(kind="daily").dispatch("report")``."""

    def dispatch(self, job: Any, /, *args: Any, **kwargs: Any) -> RunHandle:
        """Add a run of this job: its name, the path of its handler, or itself."""
        return self._door.dispatch_one(self._named(job), self._order, args, kwargs)

    def dispatch_many(self, job: Any, /, calls: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Add a run of this job for each of these sets of arguments, in one transaction."""
        return self._door.dispatch_all(self._named(job), self._order, _mappings(calls))

    def _named(self, job: Any) -> Definition:
        if isinstance(job, str):
            return self._door.define(job)
        name = getattr(job, "name", None)
        if not isinstance(name, str):
            raise InvalidOption(
                "job", job, "it is neither a job nor a name.", fix="Define it: @app.job."
            )
        return self._door.define(name)


class Job(Generic[P, R]):
    """A job: still the function that it was, with ways to dispatch it.

    Everything but the handler's own arguments is said before ``dispatch``::

        send_email.delay(10).queue("slow").dispatch(to="ann@example.org")
    """

    __name__: str

    def __init__(self, door: Door, name: str, function: Callable[P, R]) -> None:
        self.name = name
        self._door = door
        self._function = function
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler here and now, as if it were no job."""
        return self._function(*args, **kwargs)

    @property
    def definition(self) -> Definition:
        """Everything that was said about it, checked."""
        return self._door.define(self.name)

    @property
    def draft(self) -> Draft[P]:
        """A dispatch in the making, with nothing said yet."""
        return Draft(self._door, _job=lambda: self.definition)

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Add a run with these arguments of the handler.

        Raises:
            ArgumentError: They do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
        """
        return self._door.dispatch_one(self.definition, PLAIN_ORDER, args, kwargs)

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
        """At most one unfinished run of this key: otherwise the earlier one is the answer."""
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

    def using(self, connection: object) -> Draft[P]:
        """In the transaction of this connection of yours: rolled back means never seen."""
        return self.draft.using(connection)


def _mappings(calls: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    for call in calls:
        if not isinstance(call, Mapping):
            raise InvalidOption(
                "dispatch_many",
                call,
                "each set of arguments is a mapping.",
                fix='Say dispatch_many([{"to": "ann"}, {"to": "bob"}]).',
            )
        yield call
