"""Dispatching: the options of one dispatch, and how runs are made from them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, Never, Protocol, TypeVar

from tickwork._client.insert import DispatchTracer, RunInserter
from tickwork._client.runs import RunHandle, Runs
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._define.definition import Definition
from tickwork._define.options import Length
from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.job import check_expires, check_priority, check_tags
from tickwork._domain.limits import Unique
from tickwork._domain.names import check_name
from tickwork._domain.run import NO_ARGS, NewRun
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_delay, as_duration, later
from tickwork._kernel.ids import new_id, new_ids
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import InvalidOption
from tickwork.stores.contract import Enqueued, Store

D = TypeVar("D")


_MISSING: Final[Any] = None
"""For type checkers, a length is required. Without one, the error shows what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """The options of one dispatch. None: the job's own option applies."""

    at: datetime | None = None
    delay: timedelta | None = None
    queue: str | None = None
    priority: int | None = None
    unique: Unique | None = None
    expires: timedelta | None = None
    tags: tuple[str, ...] = ()
    tenant: str = ""
    target: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    connection: object = None

    def due_at(self, now: datetime) -> datetime:
        """When the run is due. A time in the past means now."""
        if self.at is not None:
            return max(self.at, now)
        return now if self.delay is None else later(now, self.delay)


NO_DISPATCH_OPTIONS: Final = DispatchOptions()


class DueOptionMethods(ABC, Generic[D]):
    """The options that a dispatch has and a job does not. ``D`` is the draft they return."""

    __slots__ = ()

    @abstractmethod
    def _draft_with(self, **changes: Any) -> D:
        """Return a draft with these options changed."""

    def at(self, when: When) -> D:
        """Run at this instant. One in the past is due at once."""
        return self._draft_with(at=as_instant(when), delay=None)

    def delay(self, length: Length = _MISSING, *args: Never, **kwargs: Never) -> D:
        """Run this long after the dispatch. The arguments of the handler go to ``dispatch``."""
        if length is _MISSING or args or kwargs:
            named: Mapping[str, object] = kwargs
            given = [*map(repr, args), *(f"{name}={value!r}" for name, value in named.items())]
            raise InvalidOption(
                "delay",
                ", ".join(given) or None,
                "must be a length of time, and nothing else",
                fix=f'Write .delay("10s").dispatch({", ".join(given)}).',
            )
        return self._draft_with(delay=as_delay(length), at=None)

    def tenant(self, tenant: str) -> D:
        """Dispatch for this tenant. Unique keys apply within one tenant."""
        return self._draft_with(tenant=check_name("tenant", tenant) if tenant else "")


class DispatchOptionMethods(DueOptionMethods[D]):
    """Every option of a dispatch. Each method returns a new draft."""

    __slots__ = ()

    _options: DispatchOptions = NO_DISPATCH_OPTIONS

    def queue(self, name: str) -> D:
        """Use this queue instead of the job's."""
        return self._draft_with(queue=check_name("queue", name, forbidden="="))

    def priority(self, priority: int) -> D:
        """Use this priority instead of the job's. Lower numbers run first."""
        return self._draft_with(priority=check_priority(priority))

    def unique(
        self,
        key: str | None = None,
        *,
        by: str | Iterable[str] = (),
        within: Length | None = None,
    ) -> D:
        """Add no second run while one with the same key is unfinished.

        ``dispatch`` then returns the earlier run, with ``is_new`` False. The key is ``key``,
        or the arguments named in ``by``, or all arguments. With ``within``, no second run is
        added for that long after the first one, whether it has finished or not.
        """
        made = Unique(
            key=key,
            by=(by,) if isinstance(by, str) else tuple(by),
            within=None if within is None else as_duration(within),
        )
        return self._draft_with(unique=made)

    def expires(self, after: Length) -> D:
        """Skip the run if it has not started this long after it was due."""
        return self._draft_with(expires=check_expires(as_duration(after)))

    def tags(self, *tags: str) -> D:
        """Add these tags to the job's. ``tickwork runs --tag`` finds runs by them."""
        return self._draft_with(tags=check_tags(tuple(dict.fromkeys((*self._options.tags, *tags)))))

    def target(self, target: str) -> D:
        """Store an id of your own with the run, such as an order's."""
        return self._draft_with(target=check_name("target", target))

    def args(self, **args: Any) -> D:
        """Set arguments of the handler. Those passed to ``dispatch`` override them."""
        return self._draft_with(args={**self._options.args, **args})


class DispatchServices(Protocol):
    """The services of an application that a dispatch uses.

    The first use of ``store`` waits for the database and checks the tables. ``would_block``
    tells whether the next dispatch has to wait for that, or for the time of the database.
    """

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def inserter(self) -> RunInserter: ...
    @property
    def bridge(self) -> ThreadBridge: ...
    @property
    def would_block(self) -> bool: ...
    @property
    def tracer(self) -> DispatchTracer | None: ...

    def check_connection(self, connection: object) -> None:
        """Raise an error if creating the tables would wait for this connection of the caller."""
        ...


class Dispatcher:
    """Makes runs of the jobs of one registry, and adds them to the store.

    Runs that are added on a connection of the caller emit no event: the caller's transaction
    may still roll back.
    """

    def __init__(self, services: DispatchServices, registry: Registry) -> None:
        self.services = services
        self.registry = registry

    def dispatch(
        self,
        definition: Definition,
        options: DispatchOptions,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> RunHandle[Any]:
        """Add one run.

        Raises:
            ArgumentError: The arguments do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
        """
        store, now = self._prepare(options.connection)
        run = new_run(definition, options, RunId(new_id(now)), args, kwargs, now=now)
        [answer] = self._add([run], options)
        is_open = options.connection is not None or store.caller_transaction is not None
        return RunHandle(
            self.services.runs, answer.run_id, is_new=answer.is_new, is_uncommitted=is_open
        )

    def dispatch_many(
        self,
        definition: Definition,
        options: DispatchOptions,
        calls: Iterable[Mapping[str, Any]],
    ) -> list[RunHandle[Any]]:
        """Add many runs in one transaction: all of them or none."""
        _, now = self._prepare(options.connection)
        runs = new_runs(definition, options, calls, now=now)
        return self.handles(self._add(runs, options), options)

    async def prepare(self, connection: object) -> tuple[Store, datetime]:
        """The store and the time, for a dispatch on an async connection of the caller."""
        # Opening the store and reading its time wait for the database, and the loop must not.
        if self.services.would_block:
            return await self.services.bridge.call(self._prepare, connection)
        return self._prepare(connection)

    def handles(
        self, answers: Iterable[Enqueued], options: DispatchOptions
    ) -> list[RunHandle[Any]]:
        """Handles on runs that were added."""
        runs, store = self.services.runs, self.services.store
        is_open = options.connection is not None or store.caller_transaction is not None
        return [
            RunHandle(runs, answer.run_id, is_new=answer.is_new, is_uncommitted=is_open)
            for answer in answers
        ]

    def _prepare(self, connection: object) -> tuple[Store, datetime]:
        # The first use of the store may create its tables.
        if connection is not None:
            self.services.check_connection(connection)
        return self.services.store, self.services.clock.now()

    def _add(self, runs: Sequence[NewRun], options: DispatchOptions) -> list[Enqueued]:
        if options.connection is None:
            return self.services.inserter.add(runs)
        store = self.services.store.using(options.connection)
        tracer = self.services.tracer
        if tracer is None:
            return store.enqueue(runs)
        with tracer.dispatching(runs) as traced:
            return store.enqueue(traced)


def new_run(
    definition: Definition,
    options: DispatchOptions,
    run_id: RunId,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    now: datetime,
) -> NewRun:
    """One run of a job, with its arguments checked and encoded."""
    if options is NO_DISPATCH_OPTIONS:
        stored = definition.payload.encode_call(args, kwargs)
        return definition.spec.new_run(run_id, now=now, due_at=now, args=stored)
    if options.args:
        kwargs = {**options.args, **definition.parameters.bind(definition.name, args, kwargs)}
        args = ()
    spec = definition.spec
    if options.unique is not None:
        definition.check_unique(options.unique)
        spec = replace(spec, unique=options.unique)
    return spec.new_run(
        run_id,
        now=now,
        due_at=options.due_at(now),
        args=definition.payload.encode_call(args, kwargs),
        tenant=options.tenant,
        queue=options.queue,
        priority=options.priority,
        expires=options.expires,
        tags=options.tags,
        target=options.target,
    )


def new_runs(
    definition: Definition,
    options: DispatchOptions,
    calls: Iterable[Mapping[str, Any]],
    *,
    now: datetime,
) -> list[NewRun]:
    """One run for each set of arguments."""
    given = list(calls)
    _check_calls(given)
    ids = new_ids(now, len(given))
    if options is NO_DISPATCH_OPTIONS and given and not definition.spec.has_keys:
        return _copies(definition, ids, given, now=now)
    return [
        new_run(definition, options, RunId(run_id), (), kwargs, now=now)
        for run_id, kwargs in zip(ids, given, strict=True)
    ]


def _copies(
    definition: Definition,
    ids: Sequence[str],
    calls: Sequence[Mapping[str, Any]],
    *,
    now: datetime,
) -> list[NewRun]:
    """Copies of one run that differ only in their ids and arguments: faster than new_run."""
    first = definition.spec.new_run(RunId(ids[0]), now=now, due_at=now, args=NO_ARGS)
    place = NewRun._fields.index("args")
    before, after = first[1:place], first[place + 1 :]
    make = partial(tuple.__new__, NewRun)  # _make() takes three times as long
    return [
        make((run_id, *before, args, *after))
        for run_id, args in zip(ids, definition.payload.encode_calls(calls), strict=True)
    ]


def _check_calls(calls: Sequence[Any]) -> None:
    for call in calls:
        # The check of a plain dictionary is the fast one: there may be thousands.
        if type(call) is not dict and not isinstance(call, Mapping):
            raise InvalidOption(
                "dispatch_many",
                call,
                "takes mappings of argument names to values",
                fix='Write dispatch_many([{"to": "ann"}, {"to": "bob"}]).',
            )
