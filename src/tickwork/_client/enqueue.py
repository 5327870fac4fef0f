"""Runs in: one, many, and inside the caller's own transaction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._client.runs import RunHandle, Runs
from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork._domain.limits import Unique
from tickwork._domain.run import NewRun
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import later
from tickwork._kernel.ids import new_id, new_ids
from tickwork.errors import OutcomeUnknown
from tickwork.events import RunDispatched
from tickwork.events.bus import EventBus
from tickwork.stores.contract import AsyncRuns, Enqueued, Store

REPEATS_MAX: Final = 3
"""How often an insert whose answer was lost is repeated before the caller is told."""


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
    """Makes runs of definitions and adds them to the store."""

    def __init__(self, *, store: Store, clock: Clock, runs: Runs, bus: EventBus) -> None:
        self._store = store
        self._clock = clock
        self._runs = runs
        self._bus = bus
        self.on_enqueued: Callable[[Sequence[NewRun]], None] | None = None

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
        now = self._clock.now()
        run = _new_run(definition, order, RunId(new_id(now)), args, kwargs, now=now)
        if order.connection is None:
            [answer] = self._added([run])
        else:
            [answer] = self._store.using(order.connection).enqueue([run])
        return self._handed([run], [answer], order)[0]

    def many(
        self, definition: Definition, order: Order, calls: Iterable[Mapping[str, Any]]
    ) -> list[RunHandle]:
        """Add many, in one transaction: all of them or none."""
        now = self._clock.now()
        calls = list(calls)
        runs = [
            _new_run(definition, order, RunId(run_id), (), kwargs, now=now)
            for run_id, kwargs in zip(new_ids(now, len(calls)), calls, strict=True)
        ]
        if order.connection is None:
            answers = self._added(runs)
        else:
            answers = self._store.using(order.connection).enqueue(runs)
        return self._handed(runs, answers, order)

    async def one_on(
        self,
        store: AsyncRuns,
        definition: Definition,
        order: Order,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> RunHandle:
        """Add one run on the caller's own async connection."""
        now = self._clock.now()
        run = _new_run(definition, order, RunId(new_id(now)), args, kwargs, now=now)
        return self._handed([run], await store.enqueue([run]), order)[0]

    async def many_on(
        self,
        store: AsyncRuns,
        definition: Definition,
        order: Order,
        calls: Iterable[Mapping[str, Any]],
    ) -> list[RunHandle]:
        """Add many on the caller's own async connection."""
        now = self._clock.now()
        calls = list(calls)
        runs = [
            _new_run(definition, order, RunId(run_id), (), kwargs, now=now)
            for run_id, kwargs in zip(new_ids(now, len(calls)), calls, strict=True)
        ]
        return self._handed(runs, await store.enqueue(runs), order)

    def add(self, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[RunHandle]:
        """Add runs that were made elsewhere; with ``is_repeat`` only those not here yet."""
        return self._handed(runs, self._added(runs, is_repeat=is_repeat), PLAIN_ORDER)

    def _added(self, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[Enqueued]:
        try:
            return self._store.enqueue(runs, is_repeat=is_repeat)
        except OutcomeUnknown:
            # The ids are ours: repeating it cannot add a run twice.
            for _ in range(REPEATS_MAX - 1):
                try:
                    return self._store.enqueue(runs, is_repeat=True)
                except OutcomeUnknown:
                    continue
            return self._store.enqueue(runs, is_repeat=True)

    def _handed(
        self, runs: Sequence[NewRun], answers: Sequence[Enqueued], order: Order
    ) -> list[RunHandle]:
        is_open = order.connection is not None
        handles = [
            self._runs.handle(answer.run_id, is_new=answer.is_new, is_uncommitted=is_open)
            for answer in answers
        ]
        if self._bus.is_listened_to:
            for run, answer in zip(runs, answers, strict=True):
                if answer.is_new:
                    self._bus.emit(_dispatched(run))
        if self.on_enqueued is not None and not is_open:
            self.on_enqueued(runs)
        return handles


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


def _dispatched(run: NewRun) -> RunDispatched:
    return RunDispatched(
        at=run.created_at,
        run_id=run.id,
        job=run.job,
        tenant=run.tenant,
        queue=run.queue,
        due_at=run.due_at,
    )
