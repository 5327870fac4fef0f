"""Merges the counts of ended attempts, so that their number does not grow with the runs."""

from typing import Final

from tickwork._kernel.clock import Clock
from tickwork._stores.contract import Store

COMPACT_EVERY: Final = 10.0
"""Seconds between two rounds: a page reads at most as many rows as batches were written since."""

ROWS_MAX: Final = 1_000
"""The most rows of each level that one transaction merges, because it holds their locks.

It takes about 20 ms on PostgreSQL.
"""

ROUND_MAX: Final = 20
"""Transactions of one round: more would delay the other maintenance tasks."""

ENDED_MAX: Final = 500
"""A single pass merges after so many attempts: it may be the only process that does."""


class RollupCompactor:
    """Merges counts in small transactions. Several workers may do it at the same time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._next_at = 0.0
        self._ended = 0

    def step(self) -> None:
        """Merge what is there, if a round is due."""
        if self._clock.monotonic() >= self._next_at:
            self.compact()
            self._next_at = self._clock.monotonic() + COMPACT_EVERY

    def add_ended(self, count: int) -> None:
        """Count attempts of this process; merge when there were many."""
        self._ended += count
        if self._ended >= ENDED_MAX:
            self.compact()

    def compact(self) -> None:
        """Merge what is there, at most a fixed number of rows."""
        self._ended = 0
        for _ in range(ROUND_MAX):
            if self._store.compact_rollups(now=self._clock.now(), limit=ROWS_MAX) < ROWS_MAX:
                return
