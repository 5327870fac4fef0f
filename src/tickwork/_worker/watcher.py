"""Watches expectations: raises one alert when a schedule is late, and one when that is over.

An incident is a lock in the database, so that several watchers raise it once. Its owner names the
firing that was missed first. Until the alert is delivered the lock has a short lease: if its
watcher dies, another one delivers the alert. The same holds for the end of an incident, with a
second lock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from tickwork import events
from tickwork._domain.expectations import (
    MissedExpectation,
    is_watched,
    last_expected,
    next_deadline,
)
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleRow
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.processes import ThisProcess
from tickwork._worker.expectations import (
    SCHEDULES_MAX,
    ExpectationStore,
    read_missed,
    read_rule,
)
from tickwork.alerts.contract import AlertTarget, MissedRunAlert
from tickwork.errors import StoreError
from tickwork.events.bus import EventBus
from tickwork.stores.contract import LockRow

WATCH_EVERY: Final = 10.0
RECHECK_EVERY: Final = 1.0
"""Seconds between two checks: normally, and while an incident is open."""

SHORTEST: Final = 0.1
LEASE: Final = timedelta(minutes=2)
KEPT: Final = timedelta(days=3660)
"""How long the lock of an incident is held: until its alert is delivered, and after that."""

RETRY_FIRST: Final = 1.0
RETRY_LONGEST: Final = 300.0
TRIES_MAX: Final = 20
"""How often the delivery to a target is tried: for more than an hour."""

_PREFIX: Final = "incident:"
_log: Final = get_logger("tickwork.watch")


class WatchStore(ExpectationStore, Protocol):
    """What a watcher needs of a store."""

    def acquire_lock(self, lock: LockRow, *, now: datetime) -> LockRow | None:
        """Take a lock."""

    def get_lock(self, name: str) -> LockRow | None:
        """Read a lock."""

    def release_lock(self, name: str, owner: str | None = None) -> bool:
        """Release a lock."""


@dataclass(slots=True)
class Delivery:
    """An alert, and the targets to which it was not delivered yet."""

    alert: MissedRunAlert
    lock: LockRow
    left: list[AlertTarget]
    tries: int = 0
    next_at: float = 0.0  # monotonic


class Watcher:
    """Finds missed expectations. Call :meth:`step` again after :meth:`pace` seconds."""

    def __init__(
        self,
        *,
        store: WatchStore,
        clock: Clock,
        bus: EventBus,
        targets: Callable[[], Sequence[AlertTarget]],
        hooks_of: Callable[[str, str], Sequence[Callable[..., Any]]],
        retire_after: timedelta,
        every: float = WATCH_EVERY,
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._targets = targets
        self._hooks_of = hooks_of
        self._retire_after = retire_after
        self.every = every
        self._owner = new_id(clock.now())
        self._met: dict[ScheduleId, datetime] = {}  # the last firing that met its expectation
        self._deliveries: dict[str, Delivery] = {}
        self._deadline: datetime | None = None
        self.missed: list[MissedExpectation] = []

    def step(self) -> None:
        """Check once: open and close incidents, and deliver the alerts that are due."""
        now = self._clock.now()
        rows = self._store.list_expected_schedules(limit=SCHEDULES_MAX)
        self.missed = []
        deadlines: list[datetime] = []
        for row in rows:
            deadline = self._check(row, now)
            deadlines += [] if deadline is None else [deadline]
        self._met = {row.id: self._met[row.id] for row in rows if row.id in self._met}
        self._deadline = min(deadlines, default=None)
        for delivery in list(self._deliveries.values()):
            if delivery.next_at <= self._clock.monotonic():
                self._deliver(delivery)

    def try_step(self) -> None:
        """As :meth:`step`, for loops: if the database is unreachable, the next step tries again."""
        try:
            self.step()
        except StoreError as error:
            _log.warning("The schedules cannot be watched: %s", error.what)
            self._deadline = None

    def pace(self) -> float:
        """Return the seconds until the next check."""
        waits = [self.every]
        if self._deadline is not None:
            waits.append((self._deadline - self._clock.now()).total_seconds() + SHORTEST)
        if self.missed:
            waits.append(RECHECK_EVERY)
        waits += [each.next_at - self._clock.monotonic() for each in self._deliveries.values()]
        return max(min(waits), SHORTEST)

    def _check(self, row: ScheduleRow, now: datetime) -> datetime | None:
        """Check one schedule; return its next deadline."""
        if not is_watched(row, now=now, seen_after=now - self._retire_after):
            what = "paused" if row.is_paused_at(now) else "retired"
            self._close(row, f"The schedule is {what}.", now)
            return None
        rule = read_rule(row)
        if rule is None:
            return None
        due_at = last_expected(row, rule, now=now)
        if due_at is not None and self._met.get(row.id) != due_at:
            missed = read_missed(self._store, row, due_at, now=now)
            if missed is not None:
                self.missed.append(missed)
                self._open(row, missed, now)
            elif self._close(row, "A run has completed.", now):
                self._met[row.id] = due_at
        return next_deadline(row, rule, now=now)

    # ------------------------------------------------------------ incidents

    def _open(self, row: ScheduleRow, missed: MissedExpectation, now: datetime) -> None:
        self._met.pop(row.id, None)
        name = f"{_PREFIX}{row.id}"
        found = self._store.get_lock(name)
        if name in self._deliveries or (found is not None and found.until > now):
            return
        # An alert that its watcher did not deliver keeps its firing.
        due_at = missed.due_at if found is None else _due_at(found)
        lock = self._lock(name, f"{due_at.isoformat()} {self._owner}", now)
        if self._store.acquire_lock(lock, now=now) is not None:
            return
        event = events.ExpectationMissed(
            at=now,
            schedule=missed.schedule,
            tenant=missed.tenant,
            job=missed.job,
            due_at=due_at,
            expected_by=missed.expected_by,
            reason=missed.reason,
        )
        alert = self._alert(row, due_at, missed.reason, now, is_over=False)
        _log.error("%s", alert.text)
        self._bus.emit(event)
        for hook in self._hooks_of(missed.tenant, missed.schedule):
            try:
                hook(event)
            except Exception:  # noqa: BLE001  # a hook may raise anything
                _log.exception("A hook for missed firings of %r failed.", missed.schedule)
        self._begin_delivery(alert, lock)

    def _close(self, row: ScheduleRow, reason: str, now: datetime) -> bool:
        """Close the incident of a schedule; True if there is none."""
        name = f"{_PREFIX}{row.id}"
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
        due_at = _due_at(incident)
        alert = self._alert(row, due_at, reason, now, is_over=True)
        _log.info("%s", alert.text)
        self._bus.emit(
            events.ExpectationMet(
                at=now,
                schedule=row.spec.name,
                tenant=row.spec.tenant,
                job=row.spec.job,
                due_at=due_at,
                reason=reason,
            )
        )
        self._begin_delivery(alert, lock)
        return False

    def _lock(self, name: str, owner: str, now: datetime) -> LockRow:
        me = ThisProcess.current()
        return LockRow(name, owner, me.host, me.pid, now, now + LEASE)

    def _alert(
        self, row: ScheduleRow, due_at: datetime, reason: str, now: datetime, *, is_over: bool
    ) -> MissedRunAlert:
        return MissedRunAlert(
            id=f"{row.id}:{due_at:%Y%m%dT%H%M%S}:{'over' if is_over else 'missed'}",
            is_over=is_over,
            schedule=row.spec.name,
            tenant=row.spec.tenant,
            job=row.spec.job,
            due_at=due_at,
            at=now,
            reason=reason,
        )

    # ------------------------------------------------------------ delivery

    def _begin_delivery(self, alert: MissedRunAlert, lock: LockRow) -> None:
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


def _due_at(incident: LockRow) -> datetime:
    try:
        due_at = datetime.fromisoformat(incident.owner.partition(" ")[0])
    except ValueError:  # the row was edited
        return incident.acquired_at
    return due_at if due_at.tzinfo is not None else incident.acquired_at
