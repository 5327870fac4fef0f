"""``app.alerts``: the targets of an application."""

from collections.abc import Callable

from tickwork.alerts.contract import AlertTarget
from tickwork.alerts.pinger import Pinger
from tickwork.errors import InvalidOption
from tickwork.events import Event
from tickwork.events.bus import EventBus


class Alerts:
    """``app.alerts``: where alerts and pings of an application go. The log gets all alerts."""

    def __init__(self, bus: EventBus, *, on_stop: Callable[[Callable[[], None]], object]) -> None:
        self._bus = bus
        self._on_stop = on_stop
        self.targets: tuple[AlertTarget, ...] = ()

    def add(self, target: AlertTarget) -> None:
        """Send all alerts to this target, too.

        Raises:
            InvalidOption: It has no method ``send``.
        """
        if not callable(getattr(target, "send", None)):
            raise InvalidOption(
                "target", target, "must have the methods of AlertTarget", fix="Use Webhook(url)."
            )
        self.targets = (*self.targets, target)

    def ping(self, url: str, *, job: str) -> None:
        """Ping a URL when runs of this job start (``/start``), succeed and fail (``/fail``).

        Raises:
            InvalidOption: It is not a URL of HTTP.
        """
        pinger = Pinger(url, job=job)
        self._bus.subscribe(Event, pinger.on_event)
        self._on_stop(pinger.flush)
