"""Stores events, for which runs wait."""

from typing import Any, Final, NamedTuple

from tickwork import events
from tickwork._define.registry import Registry
from tickwork._dispatch.async_connections import is_async_connection
from tickwork._domain.runs.stored_events import KEPT, NAME_MAX, EventName, NewEvent
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import Store
from tickwork.errors import InvalidOption, OutcomeUnknown
from tickwork.events.bus import EventBus

TRIES_MAX: Final = 3
"""How often an event is sent whose answer was lost: it is stored once."""

BATCH: Final = 100


class Emitted(NamedTuple):
    """The result of ``app.emit``. Only the first event of a name and key is stored."""

    is_new: bool


class Emitter:
    """``app.emit`` and ``run.signal``."""

    def __init__(self, *, store: Store, bus: EventBus, clock: Clock, registry: Registry) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._registry = registry

    def emit(self, event: str, *, key: str, data: Any, tenant: str, using: object) -> Emitted:
        """Store an event, and wake the runs that wait for it."""
        if using is not None and is_async_connection(using):
            raise InvalidOption(
                "using",
                using,
                "must not be an async connection here",
                fix="Write: await app.aio.emit(..., using=connection)",
            )
        new = self.build(event, key=key, data=data, tenant=tenant)
        if using is not None:
            return Emitted(self._store.using(using).emit(new))
        is_new = self._emit(new)
        if is_new:
            self._publish(new)
            # A worker would find it a moment later.
            self._store.work_outbox(now=self._clock.now(), limit=BATCH)
        return Emitted(is_new)

    async def emit_using(self, connection: object, new: NewEvent) -> Emitted:
        """Store an event in the transaction of a caller's async connection."""
        if not is_async_connection(connection):
            raise InvalidOption(
                "using",
                connection,
                "must be an async connection for app.aio.emit",
                fix="Call app.emit(..., using=connection), or pass an async connection.",
            )
        return Emitted(await self._store.using_async(connection).emit(new))

    def build(self, event: str, *, key: str, data: Any, tenant: str) -> NewEvent:
        """Check and encode an event.

        Raises:
            InvalidOption: The name or the key is no text of the allowed length.
            PayloadError: The data cannot be stored.
        """
        for option, text in (("event", event), ("key", key)):
            if not (type(text) is str and 0 < len(text) <= NAME_MAX and text.isprintable()):
                raise InvalidOption(
                    option, text, f"must be a printable text of 1 to {NAME_MAX} characters"
                )
        now = self._clock.now()
        text = self._registry.encode_data(data)
        return NewEvent(new_id(now), EventName(tenant, event, key), text, now, now + KEPT)

    def _publish(self, new: NewEvent) -> None:
        if self._bus.has_subscribers and self._store.caller_transaction is None:
            tenant, event, key = new.name
            self._bus.emit(events.EventEmitted(at=new.at, event=event, key=key, tenant=tenant))

    def _emit(self, new: NewEvent) -> bool:
        for _ in range(TRIES_MAX - 1):
            try:
                return self._store.emit(new)
            except OutcomeUnknown:
                continue
        return self._store.emit(new)
