"""Publishes events to subscribers. An error of a subscriber never affects a run."""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from tickwork._kernel.loggers import get_logger

if TYPE_CHECKING:
    from tickwork.events import Event

E = TypeVar("E", bound="Event")
Subscriber = Callable[[E], object]

_log: Final = get_logger("tickwork.events")


class EventBus:
    """Calls the subscribers of an event in the thread that publishes it.

    The worker waits for its subscribers, so they should be fast.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscribers: tuple[tuple[type[Event], Callable[..., object]], ...] = ()
        # Callers check this first, to build no events that have no subscribers.
        self.has_subscribers: bool = False

    def subscribe(self, kind: type[E], subscriber: Subscriber[E]) -> Callable[[], None]:
        """Call ``subscriber`` for events of this class and its subclasses.

        Returns a function that ends the subscription.
        """
        pair = (kind, subscriber)
        with self._lock:
            self._subscribers = (*self._subscribers, pair)
            self.has_subscribers = True

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(other for other in self._subscribers if other is not pair)
                self.has_subscribers = bool(self._subscribers)

        return unsubscribe

    def emit(self, event: "Event") -> None:
        """Call every subscriber of this event. Errors of subscribers are logged."""
        for kind, subscriber in self._subscribers:
            if isinstance(event, kind):
                try:
                    subscriber(event)
                except Exception:  # noqa: BLE001  # a subscriber may raise anything
                    _log.exception("A subscriber to %s failed.", type(event).__name__)
