"""Runs in: one, many, and inside the caller's own transaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._client.insert import RunInserter
from tickwork._client.runs import RunHandle, Runs
from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork._domain.limits import Unique
from tickwork._domain.run import NO_ARGS, NewRun
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import later
from tickwork._kernel.ids import new_id, new_ids
from tickwork.stores.contract import AsyncRuns, Enqueued, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is said about a dispatch before its arguments. None: as the job says."""

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
        """When the run is due: a time in the past is due at once."""
        if self.at is not None:
            return max(self.at, now)
        return now if self.delay is None else later(now, self.delay)


PLAIN_ORDER: Final = Order()


class Enqueuer:
    """Makes runs of definitions and adds them to the store.

    Runs that take part in a transaction of the caller's are not told to anybody: whether
    they come to be is decided at its end, which we do not see.
    """

    def __init__(self, *, store: Store, clock: Clock, runs: Runs, inserter: RunInserter) -> None:
        self._store = store
        self._clock = clock
        self._runs = runs
        self._inserter = inserter

    def one(
        self,
        definition: Definition,
        order: Order,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> RunHandle:
        """Add one run.

        Raises:
            ArgumentError: The arguments do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
        """
        runs = [self.made(definition, order, args, kwargs, now=self._clock.now())]
        return self.handles(self._added(runs, order), order)[0]

    def many(
        self, definition: Definition, order: Order, calls: Iterable[Mapping[str, Any]]
    ) -> list[RunHandle]:
        """Add many, in one transaction: all of them or none."""
        runs = self.made_of(definition, order, calls, now=self._clock.now())
        return self.handles(self._added(runs, order), order)

    # ------------------------------------------------------------ without a colour

    def made(
        self,
        definition: Definition,
        order: Order,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        now: datetime,
    ) -> NewRun:
        """The run that is ordered."""
        return _new_run(definition, order, RunId(new_id(now)), args, kwargs, now=now)

    def made_of(
        self,
        definition: Definition,
        order: Order,
        calls: Iterable[Mapping[str, Any]],
        *,
        now: datetime,
    ) -> list[NewRun]:
        """The runs that are ordered."""
        given = list(calls)
        if order is PLAIN_ORDER and given and not definition.spec.has_keys:
            return _alike(definition, given, now=now)
        return [
            _new_run(definition, order, RunId(run_id), (), kwargs, now=now)
            for run_id, kwargs in zip(new_ids(now, len(given)), given, strict=True)
        ]

    def on_async(self, connection: object) -> AsyncRuns:
        """Where runs are added on the caller's own async connection."""
        return self._store.using_async(connection)

    def handles(self, answers: Iterable[Enqueued], order: Order) -> list[RunHandle]:
        """What the caller gets for runs that were added."""
        is_open = order.connection is not None
        return [
            self._runs.handle(answer.run_id, is_new=answer.is_new, is_uncommitted=is_open)
            for answer in answers
        ]

    def _added(self, runs: Sequence[NewRun], order: Order) -> list[Enqueued]:
        if order.connection is None:
            return self._inserter.add(runs)
        return self._store.using(order.connection).enqueue(runs)


def _alike(
    definition: Definition, given: Sequence[Mapping[str, Any]], *, now: datetime
) -> list[NewRun]:
    """Many runs of which only ids and arguments differ: all of them are made like the first."""
    ids = new_ids(now, len(given))
    args_of = definition.args_of
    first = definition.spec.new_run(RunId(ids[0]), now=now, due_at=now, args=NO_ARGS)
    place = NewRun._fields.index("args")
    before, after = first[1:place], first[place + 1 :]
    make = NewRun._make
    return [
        make((run_id, *before, args_of((), kwargs), *after))
        for run_id, kwargs in zip(ids, given, strict=True)
    ]


def _new_run(
    definition: Definition,
    order: Order,
    run_id: RunId,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    now: datetime,
) -> NewRun:
    if order is PLAIN_ORDER:
        stored = definition.args_of(args, kwargs)
        return definition.spec.new_run(run_id, now=now, due_at=now, args=stored)
    if order.args:
        kwargs = {**order.args, **definition.parameters.bind(definition.name, args, kwargs)}
        args = ()
    spec = definition.spec
    if order.unique is not None:
        definition.check_unique(order.unique)
        spec = replace(spec, unique=order.unique)
    return spec.new_run(
        run_id,
        now=now,
        due_at=order.due_at(now),
        args=definition.args_of(args, kwargs),
        tenant=order.tenant,
        queue=order.queue,
        priority=order.priority,
        expires=order.expires,
        tags=order.tags,
        target=order.target,
    )
