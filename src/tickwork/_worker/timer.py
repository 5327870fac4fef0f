"""What happens at its time: schedules fire, and runs that waited for theirs become ready."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from tickwork._domain.tick import TickPlan
from tickwork._kernel.clock import Clock
from tickwork._worker.reporting import Reporter
from tickwork.stores.contract import Store

STAGE_MAX: Final = 5_000


class Timer:
    """Fires and stages what is due, and knows when the next is."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tick: Callable[[], TickPlan],
        next_firing_at: Callable[[], datetime | None],
        reporter: Reporter,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tick = tick
        self._next_firing_at = next_firing_at
        self._reporter = reporter

    def step(self) -> bool:
        """Do what is due; whether runs became ready."""
        plan = self._tick()
        self._reporter.fired(plan, at=self._clock.now())
        staged = self._store.stage(now=self._clock.now(), limit=STAGE_MAX)
        return bool(plan.runs or staged)

    def seconds_left(self, longest: float) -> float:
        """How long until the next is due, at most ``longest``."""
        now = self._clock.now()
        found = [self._next_firing_at(), self._store.next_due_at()]
        due = [moment for moment in found if moment is not None]
        if not due:
            return longest
        return min(max((min(due) - now).total_seconds(), 0.0), longest)
