"""Named locks: one holder across all processes, renewed while the holder lives."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.names import check_name
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import later
from tickwork._kernel.ids import new_id
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.processes import ThisProcess, has_ended
from tickwork._stores.contract import ControlStore, LockRow
from tickwork.errors import InvalidOption, LockHeld, OutcomeUnknown, StoreError

TTL_MIN: Final = timedelta(seconds=1)
PACE_MAX: Final = 3600.0
"""Seconds between two renewals, at most; otherwise a third of the lock's time to live."""

_log: Final = get_logger("tickwork.locks")


class Lock:
    """A lock that this process holds. A thread renews it; ``is_lost`` is true if that failed."""

    def __init__(
        self,
        row: LockRow,
        *,
        ttl: timedelta,
        store: ControlStore,
        clock: Clock,
        requested_at: float,
    ) -> None:
        self.name = row.name
        self.owner = row.owner
        self._ttl = ttl
        self._store = store
        self._clock = clock
        self._extended_at = requested_at  # monotonic, before the request was sent
        self._lost = threading.Event()

    @property
    def is_lost(self) -> bool:
        """Whether another process may hold the lock by now: stop the work that it protects."""
        return self._lost.is_set()

    @property
    def pace(self) -> float:
        """Seconds between two renewals."""
        return min(self._ttl.total_seconds() / 3, PACE_MAX)

    def renew(self) -> None:
        """Extend the lock, or find that it is lost. A thread calls this repeatedly."""
        requested_at, now = self._clock.monotonic(), self._clock.now()
        with suppress(StoreError):  # the next renewal may succeed
            until = later(now, self._ttl)
            if not self._store.renew_lock(self.name, self.owner, until=until, now=now):
                self._lost.set()
                return
            self._extended_at = requested_at
        if self._clock.monotonic() - self._extended_at >= self._ttl.total_seconds():
            self._lost.set()


class Locks:
    """Acquires and releases named locks."""

    def __init__(self, *, store: ControlStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @contextmanager
    def hold(self, name: str, ttl: timedelta) -> Iterator[Lock]:
        """Hold a lock while the block runs.

        Raises:
            LockHeld: Another process holds it; the error names its host and pid.
        """
        check_name("lock", name)
        if ttl < TTL_MIN:
            raise InvalidOption("ttl", ttl, f"must be at least {TTL_MIN.total_seconds():g}s")
        requested_at, now = self._clock.monotonic(), self._clock.now()
        me = ThisProcess.current()
        # The owner tells other processes of this machine whether the holder is alive.
        owner = f"{new_id(now)}|{me.boot_id}|{me.started}"
        row = LockRow(name, owner, me.host, me.pid, now, later(now, ttl))
        holder = self._acquire(row, now)
        if holder is not None and _is_dead(holder, me):
            self._store.release_lock(name, holder.owner)
            holder = self._acquire(row, now)
        if holder is not None:
            raise LockHeld(name, host=holder.host, pid=holder.pid, until=holder.until)
        lock = Lock(row, ttl=ttl, store=self._store, clock=self._clock, requested_at=requested_at)
        done = threading.Event()
        renewer = threading.Thread(
            target=_renew, args=(lock, done), name=f"tickwork-lock-{name}", daemon=True
        )
        renewer.start()
        try:
            yield lock
        finally:
            done.set()
            renewer.join()
            self._release(row, ttl)

    def release(self, name: str) -> bool:
        """Release a lock, whichever process holds it; False if it was free."""
        return self._store.release_lock(name)

    def _acquire(self, row: LockRow, now: datetime) -> LockRow | None:
        try:
            return self._store.acquire_lock(row, now=now)
        except OutcomeUnknown:
            return self._store.acquire_lock(row, now=now)  # the same owner may repeat it

    def _release(self, row: LockRow, ttl: timedelta) -> None:
        try:
            self._store.release_lock(row.name, row.owner)
        except StoreError as fault:
            # The protected work is done. Without renewals the lock expires by itself.
            _log.warning(
                "The lock %r could not be released. It expires after %s: %s",
                row.name,
                ttl,
                fault.what,
            )


def _is_dead(holder: LockRow, me: ThisProcess) -> bool:
    """Whether the holder was a process of this machine that has ended. In doubt, False."""
    _, boot_id, started = (*holder.owner.split("|"), "", "")[:3]
    is_here = bool(me.boot_id) and (holder.host, boot_id) == (me.host, me.boot_id)
    return is_here and has_ended(holder.pid, started)


def _renew(lock: Lock, done: threading.Event) -> None:
    # It ends when the lock is released or lost.
    while not (lock.is_lost or done.wait(lock.pace)):
        lock.renew()
