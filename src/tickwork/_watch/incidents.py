"""Incidents: one alert when something is wrong, and one when that is over.

An incident is a lock in the database, so that several watchers raise it once. Its owner names the
instant at which it began. Until the alert is delivered the lock has a short lease: if its watcher
dies, another one delivers the alert. The same holds for the end of an incident, with a second
lock.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.processes import ThisProcess
from tickwork._stores.contract import LockRow, Store
from tickwork.alerts.contract import AlertMessage, AlertTarget
from tickwork.events import Event
from tickwork.events.bus import EventBus

LEASE: Final = timedelta(minutes=2)
KEPT: Final = timedelta(days=3660)
"""How long the lock of an incident is held: until its alert is delivered, and after that.

A worker that dies during a delivery delays it by the first; the second means for good.
"""

RETRY_FIRST: Final = 1.0
RETRY_LONGEST: Final = 300.0
TRIES_MAX: Final = 20
"""How often the delivery to a target is tried: for more than an hour, because targets restart."""

_PREFIX: Final = "incident:"
_log: Final = get_logger("tickwork.watch")

Hook = Callable[..., Any]
Raised = tuple[AlertMessage, Event]
"""An alert, and the event of the same fact."""


@dataclass(slots=True)
class Delivery:
    """An alert, and the targets to which it was not delivered yet."""

    alert: AlertMessage
    lock: LockRow
    left: list[AlertTarget]
    tries: int = 0
    next_at: float = 0.0  # monotonic


class Incidents:
    """Opens and closes incidents by their names, and delivers the alerts."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: EventBus,
        targets: Callable[[], Sequence[AlertTarget]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._targets = targets
        self._owner = new_id(clock.now())
        self._deliveries: dict[str, Delivery] = {}

    def is_open(self, name: str) -> bool:
        """Whether an incident is open, or its end was not delivered yet."""
        return self._store.get_lock(_PREFIX + name) is not None

    def open(
        self,
        name: str,
        began_at: datetime,
        describe: Callable[[datetime], Raised],
        *,
        hooks: Iterable[Hook] = (),
        now: datetime,
    ) -> None:
        """Open an incident, unless it is open. ``describe`` gets the instant at which it began."""
        name = _PREFIX + name
        lock = self._store.get_lock(name)
        if name in self._deliveries or (lock is not None and lock.until > now):
            return
        # An alert that its watcher did not deliver keeps its instant.
        began_at = began_at if lock is None else _began_at(lock)
        lock = self._lock(name, f"{began_at.isoformat()} {self._owner}", now)
        if self._store.acquire_lock(lock, now=now) is not None:
            return
        alert, event = describe(began_at)
        _log.error("%s", alert.text)
        self._bus.emit(event)
        for hook in hooks:
            try:
                hook(event)
            except Exception:  # noqa: BLE001  # a hook may raise anything
                _log.exception("A hook for the alert %r failed.", alert.title)
        self._begin_delivery(alert, lock)

    def close(self, name: str, describe: Callable[[datetime], Raised], *, now: datetime) -> bool:
        """Close an incident; True if it is not open."""
        name = _PREFIX + name
        if self._store.get_lock(name) is None:
            return True
        lock = self._lock(f"{name}:over", self._owner, now)
        is_ours = lock.name not in self._deliveries
        if not is_ours or self._store.acquire_lock(lock, now=now) is not None:
            return False
        # Another watcher may have closed it before this one got the lock.
        incident = self._store.get_lock(name)
        if incident is None:
            self._store.release_lock(lock.name, lock.owner)
            return True
        self._deliveries.pop(name, None)
        alert, event = describe(_began_at(incident))
        _log.info("%s", alert.text)
        self._bus.emit(event)
        self._begin_delivery(alert, lock)
        return False

    def deliver(self) -> None:
        """Deliver the alerts whose next try is due."""
        for delivery in list(self._deliveries.values()):
            if delivery.next_at <= self._clock.monotonic():
                self._deliver(delivery)

    def waits(self) -> list[float]:
        """Return the seconds until the next try of each delivery."""
        now = self._clock.monotonic()
        return [delivery.next_at - now for delivery in self._deliveries.values()]

    def _lock(self, name: str, owner: str, now: datetime) -> LockRow:
        me = ThisProcess.current()
        return LockRow(name, owner, me.host, me.pid, now, now + LEASE)

    def _begin_delivery(self, alert: AlertMessage, lock: LockRow) -> None:
        delivery = Delivery(alert, lock, list(self._targets()))
        self._deliveries[lock.name] = delivery
        self._deliver(delivery)

    def _deliver(self, delivery: Delivery) -> None:
        for target in list(delivery.left):
            try:
                target.send(delivery.alert)
            except Exception as error:  # noqa: BLE001  # whatever a server or a network does
                _log.warning("Sending an alert to %s failed: %s", target.name, error)
            else:
                delivery.left.remove(target)
        delivery.tries += 1
        now, lock = self._clock.now(), delivery.lock
        if delivery.left and delivery.tries < TRIES_MAX:
            wait = min(RETRY_FIRST * 2 ** (delivery.tries - 1), RETRY_LONGEST)
            delivery.next_at = self._clock.monotonic() + wait
            self._keep(lock, now, now + LEASE + timedelta(seconds=wait))
            return
        for target in delivery.left:
            _log.error(
                "An alert could not be delivered to %s, and is not sent again: %s",
                target.name,
                delivery.alert.text,
            )
        del self._deliveries[lock.name]
        if delivery.alert.is_over:
            self._store.release_lock(lock.name.removesuffix(":over"))
            self._store.release_lock(lock.name, lock.owner)
        else:
            self._keep(lock, now, now + KEPT)

    def _keep(self, lock: LockRow, now: datetime, until: datetime) -> None:
        # Acquired, not renewed: if this process was suspended, the lock may have expired.
        self._store.acquire_lock(lock._replace(until=until), now=now)


def _began_at(incident: LockRow) -> datetime:
    try:
        began_at = datetime.fromisoformat(incident.owner.partition(" ")[0])
    except ValueError:  # the row was edited
        return incident.acquired_at
    return began_at if began_at.tzinfo is not None else incident.acquired_at
