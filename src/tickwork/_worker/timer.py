"""What happens at its time: schedules fire, and runs that waited for theirs become ready."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.tick import TickPlan
from tickwork._kernel.clock import Clock
from tickwork._worker.once import NextFiring
from tickwork._worker.reporting import Reporter
from tickwork._worker.wake import Backoff
from tickwork.stores.contract import Store

STAGE_MAX: Final = 5_000
STUCK_FIRST: Final = 0.01
"""Seconds to the next look when something is due that cannot be fired: another ticker has it."""

STUCK_LONG: Final = 0.1

TURNS_MAX: Final = 500
TURN_PACE: Final = timedelta(seconds=0.01)
"""Turns of rates that follow each other faster than this are taken together."""


class Timer:
    """Fires and stages what is due, and knows when the next is."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tick: Callable[[], TickPlan],
        next_firing_at: NextFiring,
        reporter: Reporter,
        longest: float = 1.0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tick = tick
        self._next_firing_at = next_firing_at
        self._reporter = reporter
        self._is_moving = True
        self._turn_at: datetime | None = None  # when a run that waits for a rate has its turn
        self._stuck = Backoff(STUCK_FIRST, longest)

    def step(self) -> bool:
        """Do what is due; whether runs became ready."""
        plan = self._tick()
        self._reporter.fired(plan, at=self._clock.now())
        now = self._clock.now()
        staged = self._store.stage(now=now, limit=STAGE_MAX)
        if self._turn_at is not None and self._turn_at <= now:
            staged += self._store.unblock_rated(now=now, limit=TURNS_MAX)
        self._is_moving = bool(plan.moves or staged)
        return bool(plan.runs or staged)

    def is_due(self) -> bool:
        """Whether anything is, be it nothing that we could fire."""
        found = [self._next_at(), self._turn_at]
        now = self._clock.now()
        return any(moment is not None and moment <= now for moment in found)

    def seconds_left(self, longest: float) -> float:
        """How long until the next is due, at most ``longest``.

        What is due already and did not move in the last step is another's, or nobody can
        fire it: it must neither keep us busy nor hide what comes after it.
        """
        due_at, now = self._next_at(), self._clock.now()
        if self._turn_at is not None:
            turn_at = max(self._turn_at, now + TURN_PACE)
            due_at = turn_at if due_at is None else min(due_at, turn_at)
        if due_at is None or due_at > now:
            self._stuck.reset()
            return _between(now, due_at, longest)
        if self._is_moving:
            self._stuck.reset()
            return 0.0
        seconds = self._stuck.seconds()
        if seconds < STUCK_LONG:
            return seconds
        # This looks at every schedule there is, and need not be done for a moment's wait.
        return min(seconds, _between(now, self._next_firing_at(after=now), longest))

    def _next_at(self) -> datetime | None:
        """When the next fires or falls due; when the next has its turn is noted."""
        ahead = self._store.look_ahead()
        self._turn_at = ahead.turn_at
        found = [self._next_firing_at(), ahead.due_at]
        return min((moment for moment in found if moment is not None), default=None)


def _between(now: datetime, then: datetime | None, longest: float) -> float:
    return longest if then is None else min((then - now).total_seconds(), longest)
