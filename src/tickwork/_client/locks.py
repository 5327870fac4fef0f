"""Named locks: one holder across all processes, for as long as it lives."""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

from tickwork._domain.names import check_name
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import later
from tickwork._kernel.ids import new_id
from tickwork.errors import InvalidOption, LockHeld, OutcomeUnknown, StoreError
from tickwork.stores.contract import ControlStore, LockRow

TTL_DEFAULT: Final = timedelta(seconds=60)
TTL_MIN: Final = timedelta(seconds=1)
PACE_MAX: Final = 3600.0
"""Seconds between two renewals, at most; otherwise a third of the lock's time to live."""

_log: Final = logging.getLogger("tickwork.locks")


class Lock:
    """A lock that is held: renewed in the background, lost when the database says so."""

    def __init__(
        self, row: LockRow, *, ttl: timedelta, store: ControlStore, clock: Clock, asked_at: float
    ) -> None:
        self.name = row.name
        self.owner = row.owner
        self._ttl = ttl
        self._store = store
        self._clock = clock
        self._extended_at = asked_at  # monotonic, before the request was sent
        self._lost = threading.Event()

    @property
    def is_lost(self) -> bool:
        """Whether somebody else may hold it by now: stop what it protects."""
        return self._lost.is_set()

    @property
    def pace(self) -> float:
        """Seconds between two renewals."""
        return min(self._ttl.total_seconds() / 3, PACE_MAX)

    def renew(self) -> None:
        """Hold it for longer, or find that it is lost. A thread does so again and again."""
        asked_at, now = self._clock.monotonic(), self._clock.now()
        with suppress(StoreError):  # the next one may get through
            until = later(now, self._ttl)
            if not self._store.renew_lock(self.name, self.owner, until=until, now=now):
                self._lost.set()
                return
            self._extended_at = asked_at
        if self._clock.monotonic() - self._extended_at >= self._ttl.total_seconds():
            self._lost.set()


class Locks:
    """Takes and releases named locks."""

    def __init__(self, *, store: ControlStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @contextmanager
    def hold(self, name: str, ttl: timedelta) -> Iterator[Lock]:
        """Hold a lock for as long as the block runs.

        Raises:
            LockHeld: Another process has it; the error names host and pid.
        """
        check_name("lock", name)
        if ttl < TTL_MIN:
            raise InvalidOption("ttl", ttl, f"must be at least {TTL_MIN.total_seconds():g}s")
        asked_at, now = self._clock.monotonic(), self._clock.now()
        row = LockRow(name, new_id(now), socket.gethostname(), os.getpid(), now, later(now, ttl))
        try:
            holder = self._store.acquire_lock(row, now=now)
        except OutcomeUnknown:
            holder = self._store.acquire_lock(row, now=now)  # if it landed, it is ours
        if holder is not None:
            raise LockHeld(name, host=holder.host, pid=holder.pid, until=holder.until)
        lock = Lock(row, ttl=ttl, store=self._store, clock=self._clock, asked_at=asked_at)
        done = threading.Event()
        keeper = threading.Thread(
            target=_keep, args=(lock, done), name=f"tickwork-lock-{name}", daemon=True
        )
        keeper.start()
        try:
            yield lock
        finally:
            done.set()
            keeper.join()
            self._give_up(row, ttl)

    def release(self, name: str) -> bool:
        """Take a lock from whoever holds it; False when nobody does."""
        return self._store.release_lock(name)

    def _give_up(self, row: LockRow, ttl: timedelta) -> None:
        try:
            self._store.release_lock(row.name, row.owner)
        except StoreError as fault:
            # What was done under it is done. Without us it ends by itself.
            _log.warning(
                "The lock %r could not be released, and ends after %s: %s",
                row.name,
                ttl,
                fault.what,
            )


def _keep(lock: Lock, done: threading.Event) -> None:
    # It ends when the lock is given up or lost.
    while not (lock.is_lost or done.wait(lock.pace)):
        lock.renew()
