"""What is said about a dispatch before its arguments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, Self

from tickwork._client.enqueue import PLAIN_ORDER, Enqueuer, Order
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._define.definition import Definition
from tickwork._define.options import Length
from tickwork._domain.job import check_expires, check_priority, check_tags
from tickwork._domain.limits import Unique
from tickwork._domain.names import check_name
from tickwork._kernel.durations import as_delay, as_duration
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import InvalidOption


class Door(Protocol):
    """Where dispatches go: the application."""

    @property
    def bridge(self) -> ThreadBridge:
        """The threads through which coroutines reach the store."""
        ...

    @property
    def enqueuer(self) -> Enqueuer:
        """Adds runs. Whoever asks first waits until the database is open."""
        ...

    def enqueuer_beside(self, connection: object) -> Enqueuer:
        """The same for runs in a transaction of this connection, on which nobody may wait."""
        ...

    @property
    def has_to_ask(self) -> bool:
        """Whether :meth:`look` would wait for the database."""
        ...

    def look(self, connection: object) -> tuple[Enqueuer, datetime]:
        """Who adds runs beside this connection, and what time it is for the database."""
        ...

    def define(self, name: str) -> Definition:
        """The job of this name, as this process knows it."""
        ...


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
        return self._with(queue=check_name("queue", name, forbidden="="))

    def priority(self, priority: int) -> Self:
        """With this priority instead of the job's: lower runs first."""
        return self._with(priority=check_priority(priority))

    def unique(
        self,
        key: str | None = None,
        *,
        by: str | Iterable[str] = (),
        within: Length | None = None,
    ) -> Self:
        """At most one unfinished run of this key: otherwise the earlier one is the answer.

        The key is the one given, or the arguments named in ``by``, or all arguments. With
        ``within``, there is none for that long after the first one, finished or not.
        """
        made = Unique(
            key=key,
            by=(by,) if isinstance(by, str) else tuple(by),
            within=None if within is None else as_duration(within),
        )
        return self._with(unique=made)

    def expires(self, after: Length) -> Self:
        """Skipped if it could not start within this time of when it was due."""
        return self._with(expires=check_expires(as_duration(after)))

    def tags(self, *tags: str) -> Self:
        """With these words too, by which people find it."""
        return self._with(tags=check_tags(tuple(dict.fromkeys((*self._order.tags, *tags)))))

    def tenant(self, tenant: str) -> Self:
        """On behalf of this tenant: part of its unique keys."""
        return self._with(tenant=check_name("tenant", tenant) if tenant else "")

    def target(self, target: str) -> Self:
        """About this thing of yours: an id that the run carries."""
        return self._with(target=check_name("target", target))

    def args(self, **args: Any) -> Self:
        """With these arguments; those of dispatch() override them key by key."""
        return self._with(args={**self._order.args, **args})

    @property
    def _enqueuer(self) -> Enqueuer:
        connection = self._order.connection
        door = self._door
        return door.enqueuer if connection is None else door.enqueuer_beside(connection)

    @property
    def _bridge(self) -> ThreadBridge:
        if self._order.connection is not None:
            raise InvalidOption(
                "using",
                self._order.connection,
                "must be an async connection for an async dispatch",
                fix="Call dispatch() on the job itself, or pass an async connection.",
            )
        return self._door.bridge


def no_job(*_: object) -> Definition:
    """Stands where a draft's job must be said."""
    raise AssertionError("A draft has a job.")


def mappings(calls: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    """Sets of arguments, each of them by name."""
    for call in calls:
        if not isinstance(call, Mapping):
            raise InvalidOption(
                "dispatch_many",
                call,
                "takes mappings of argument names to values",
                fix='Write dispatch_many([{"to": "ann"}, {"to": "bob"}]).',
            )
        yield call
