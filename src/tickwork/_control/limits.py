"""Concurrency limits at run time: an operator's override of the limits in code."""

from typing import NamedTuple, TypeAlias

from tickwork._define.registry import Registry
from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import SLOTS_MAX
from tickwork._domain.schedules.interval import is_whole
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import LimitRow, Store
from tickwork.errors import InvalidOption, suggest

# Inside the class, ``list`` is a method.
LimitRows: TypeAlias = list[LimitRow]


class LimitHolders(NamedTuple):
    """The taken slots of a limit, and some of the runs that hold them."""

    taken: int
    runs: list[RunId]


class Limits:
    """``app.limits``: change limits while programs run.

    The limit in code is the default. An override applies until it is reset, also when
    programs restart.
    """

    def __init__(self, *, store: Store, clock: Clock, registry: Registry) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry

    def change(self, name: str, slots: int) -> LimitRow:
        """Allow this many runs at a time, from the next claim on; 0 means no limit.

        Names are those of :meth:`list`: ``job:send_email``, ``queue:emails``,
        ``account_id:send_email``. Runs that have started go on.

        Raises:
            InvalidOption: There is no such limit, or ``slots`` is out of range.
        """
        if not is_whole(slots) or not 0 <= slots <= SLOTS_MAX:
            raise InvalidOption("slots", slots, f"must be between 0 and {SLOTS_MAX:,}")
        return self._override(name, slots)

    def reset(self, name: str) -> LimitRow:
        """Remove the override: the limit in code applies again.

        Raises:
            InvalidOption: There is no such limit.
        """
        return self._override(name, None)

    def list(self) -> LimitRows:
        """All limits: the one in code, the override, and the one in force."""
        return self._store.list_limits()

    def holders(self, name: str, *, limit: int = 5) -> LimitHolders:
        """Return how many slots of a limit are taken, and the runs that hold the first ones."""
        taken = self._store.count_taken([name]).get(name, 0)
        return LimitHolders(taken, self._store.slot_holders(name, limit=limit))

    def _override(self, name: str, slots: int | None) -> LimitRow:
        # Limits of this program may not have been written to the database yet.
        definitions = self._registry.definitions().values()
        known = {name for each in definitions for name in each.spec.slots_by_limit()}
        known.update(row.name for row in self._store.list_limits())
        if name not in known:
            raise InvalidOption(
                "limit",
                name,
                "must be the name of a limit",
                fix=suggest(name, known)
                or f"The limits are: {', '.join(sorted(known)) or 'none'}.",
            )
        self._store.change_limit(name, slots, now=self._clock.now())
        return next(row for row in self._store.list_limits() if row.name == name)
