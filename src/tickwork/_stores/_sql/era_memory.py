"""What a store remembers about eras, and when it looks again: see ADR 26."""

from time import monotonic
from typing import Final

from tickwork._domain.eras import NOTHING_KNOWN, EraMap

DEAD_MAX: Final = 128
"""A claim may read so many dead index entries, or :data:`DEAD_FACTOR` for each of its runs."""

DEAD_FACTOR: Final = 4

CHECK_ROWS: Final = 8192
CHECK_SECONDS: Final = 0.25
"""How often dead index entries are counted: after so many rows, or so many seconds."""

LOOK_SECONDS: Final = 0.02
"""How often a claim looks again while runs are in old eras."""

RENEW_SECONDS: Final = 60.0
"""After which a claim looks from the beginning, whatever is remembered: other programs may have
changed rows, and a pooler may have changed the server."""

BEGINNING: Final = -(2**63)
"""Of an index of times."""

FLOOR_MARGIN: Final = 5_000_000
"""Microseconds by which clocks may differ, and for which a transaction may be open."""

FULL_SECONDS_MAX: Final = 10.0
FULL_ENTRIES: Final = 20_000
"""An index of times is read from its beginning after a second for each so many dead entries."""


KEYS_MAX: Final = 10_000
"""Keys of limits whose first slot is remembered."""


class TimeFloor:
    """From where on an index of times is read, while it begins with many dead entries.

    All that an index before the floor has is found when it is read from its beginning again.
    """

    def __init__(self) -> None:
        self._floor: int | None = None
        self._full_at = 0.0

    @property
    def lowest(self) -> int:
        """The first time to read; :data:`BEGINNING` when it is time to read everything."""
        if self._floor is None or monotonic() >= self._full_at:
            return BEGINNING
        return self._floor

    def learn(self, first: int, *, dead: int) -> None:
        """Remember the first time that an index has, after it was read from its beginning."""
        self._floor = first - FLOOR_MARGIN if dead > DEAD_MAX else None
        self._full_at = monotonic() + min(1 + dead / FULL_ENTRIES, FULL_SECONDS_MAX)


class EraMemory:
    """What is known about the eras of one database. Threads share it.

    There is no lock: what follows from an older look stays true, so any of two maps may win.
    """

    def __init__(self) -> None:
        self.dead_max = DEAD_MAX
        self.check_seconds = CHECK_SECONDS
        self.look_seconds = LOOK_SECONDS
        self.renew_seconds = RENEW_SECONDS
        self.moves = 0  # of the boundary, by this store
        self._rows = 0
        self._last_check = monotonic()
        self.waiting = TimeFloor()
        self.leases = TimeFloor()
        self.forget()

    def forget(self) -> None:
        """Begin anew: a new connection may be one to another server."""
        self.map: EraMap = NOTHING_KNOWN
        self._last_look = self._last_renewal = monotonic()
        self._is_look_due = True
        self._was_dirty = False
        self.large: frozenset[int] = frozenset()  # eras with too many runs to gather
        self.first_slots: dict[str, int] = {}  # by the key of a limit: no live slot is below

    def note_first_slot(self, key: str, number: int) -> None:
        """Remember the first slot of a key, read while its gate was locked."""
        if len(self.first_slots) >= KEYS_MAX:
            self.first_slots = {}
        self.first_slots[key] = number

    def should_look(self) -> bool:
        now = monotonic()
        if now - self._last_renewal >= self.renew_seconds:
            self.forget()
        return self._is_look_due or (
            not self.map.is_simple and now - self._last_look >= self.look_seconds
        )

    def remember(self, known: EraMap, learned: EraMap) -> None:
        """Replace what was known, unless that has changed meanwhile."""
        if self.map is known:
            self.map = learned
            self._last_look = monotonic()
            self._is_look_due = False

    def should_check(self) -> bool:
        now = monotonic()
        if self._rows < CHECK_ROWS and now - self._last_check < self.check_seconds:
            return False
        self._rows, self._last_check = 0, now
        return True

    def count_rows(self, count: int) -> None:
        self._rows += count

    def should_move(self, *, dead: int, rows: int) -> bool:
        """Whether the boundary should move up, after a claim that read ``dead`` entries.

        Where runs are left in old eras, a look finds where they begin now, and that may be enough.
        """
        is_dirty = dead > max(self.dead_max, DEAD_FACTOR * rows)
        should_move = is_dirty and (self._was_dirty or not self.map.rest)
        self._was_dirty = is_dirty and not should_move
        self._is_look_due = self._is_look_due or is_dirty
        self.moves += should_move
        return should_move
