"""What has to be done now and then, by any worker: small parts, none in the way of another."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tickwork._kernel.clock import Clock
from tickwork.errors import StoreBusy, StoreUnavailable

_log: Final = logging.getLogger("tickwork.upkeep")


class Part(NamedTuple):
    """One thing to do; it says whether runs may have become ready."""

    name: str
    act: Callable[[], object]
    every: float = 0.0  # seconds between two of them; 0: each time


class Upkeep:
    """Does each part in its turn. One that fails is told of, and the others are done."""

    def __init__(self, parts: Sequence[Part], *, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._due = dict.fromkeys((part.name for part in parts), 0.0)

    def step(self) -> bool:
        """Do what is due; whether runs may have become ready.

        Raises:
            StoreUnavailable: The database is away: the rest would only find out as well.
        """
        is_moving = False
        for part in self._parts:
            if self._clock.monotonic() < self._due[part.name]:
                continue
            try:
                is_moving = bool(part.act()) or is_moving
            except (StoreUnavailable, StoreBusy):
                raise
            except Exception:  # noqa: BLE001  # a part must not stop the others
                _log.exception("%s failed; the rest of the upkeep goes on.", part.name)
            self._due[part.name] = self._clock.monotonic() + part.every
        return is_moving
