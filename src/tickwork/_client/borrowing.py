"""Dispatches on an async connection of the caller's own: natively, without a thread."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from tickwork._client.asynchronous import call_in_thread
from tickwork._client.enqueue import Enqueuer, Order
from tickwork._client.runs import RunHandle
from tickwork._client.words import Door, OrderWords, mappings, no_job
from tickwork._define.definition import Definition

if TYPE_CHECKING:
    from tickwork._client.jobs import Job

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class AsyncDraft(OrderWords, Generic[P]):
    """A dispatch in a transaction of your async connection: ``await`` it. No thread is used."""

    _job: Callable[[], Definition] = no_job

    async def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """As :meth:`Draft.dispatch`."""
        return await _one(self._door, self._job(), self._order, args, kwargs)

    async def dispatch_many(self, calls: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """As :meth:`Draft.dispatch_many`."""
        return await _many(self._door, self._job(), self._order, mappings(calls))


@dataclass(frozen=True, slots=True)
class AsyncOpenDraft(OrderWords):
    """The same for a job that comes last."""

    _named: Callable[[object], Definition] = no_job

    async def dispatch(self, job: "str | Job[..., Any]", /, *args: Any, **kwargs: Any) -> RunHandle:
        """As :meth:`OpenDraft.dispatch`."""
        return await _one(self._door, self._named(job), self._order, args, kwargs)

    async def dispatch_many(
        self, job: "str | Job[..., Any]", /, calls: Iterable[Mapping[str, Any]]
    ) -> list[RunHandle]:
        """As :meth:`OpenDraft.dispatch_many`."""
        return await _many(self._door, self._named(job), self._order, mappings(calls))


async def _one(
    door: Door,
    definition: Definition,
    order: Order,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> RunHandle:
    enqueuer, now = await _look(door, order.connection)
    run = enqueuer.made(definition, order, args, kwargs, now=now)
    return enqueuer.handles(await enqueuer.on_async(order.connection).enqueue([run]), order)[0]


async def _many(
    door: Door, definition: Definition, order: Order, calls: Iterable[Mapping[str, Any]]
) -> list[RunHandle]:
    enqueuer, now = await _look(door, order.connection)
    runs = enqueuer.made_of(definition, order, calls, now=now)
    return enqueuer.handles(await enqueuer.on_async(order.connection).enqueue(runs), order)


async def _look(door: Door, connection: object) -> tuple[Enqueuer, datetime]:
    # Now and then the database is asked what time it is, and a loop must not wait for that.
    if door.has_to_ask:
        return await call_in_thread(door.bridge, partial(door.look, connection))
    return door.look(connection)
