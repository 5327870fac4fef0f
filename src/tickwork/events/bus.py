"""Subscribe and emit. A subscriber's error never reaches a run."""

import logging
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeVar

from tickwork.events import Event

E = TypeVar("E", bound=Event)
Subscriber = Callable[[E], object]

_log: Final = logging.getLogger("tickwork.events")


class EventBus:
    """Calls those who asked for a kind of event, in the thread in which it happened.

    Keep subscribers short: the worker waits for them.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscribers: tuple[tuple[type[Event], Callable[..., object]], ...] = ()

    @property
    def is_listened_to(self) -> bool:
        """Whether anybody subscribed: events that nobody hears are not even made."""
        return bool(self._subscribers)

    def subscribe(self, kind: type[E], subscriber: Subscriber[E]) -> Callable[[], None]:
        """Tell this one about events of a kind, and of kinds derived from it.

        The answer ends it again when called.
        """
        pair = (kind, subscriber)
        with self._lock:
            self._subscribers = (*self._subscribers, pair)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(other for other in self._subscribers if other is not pair)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Tell everybody who asked. What goes wrong with one of them is logged, and theirs."""
        for kind, subscriber in self._subscribers:
            if isinstance(event, kind):
                try:
                    subscriber(event)
                except Exception:  # noqa: BLE001  # whatever it is, it is theirs
                    _log.exception("A subscriber to %s failed.", type(event).__name__)
