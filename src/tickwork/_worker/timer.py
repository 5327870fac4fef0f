"""Does what falls due: schedules fire, and runs that waited for a time become ready."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from tickwork._domain.tick import TickPlan
from tickwork._kernel.clock import Clock
from tickwork._worker.reporter import Reporter
from tickwork._worker.wakeup import Backoff
from tickwork.stores.contract import PendingWork, Store

STAGE_MAX: Final = 5_000
STUCK_FIRST: Final = 0.01
"""Seconds to the next try when something is due that cannot be fired: another ticker has it."""

STUCK_LONG: Final = 0.1

TURNS_MAX: Final = 500
TURN_PACE: Final = timedelta(seconds=0.01)
"""Runs that wait for a rate limit and follow each other faster than this become ready together."""


_UNSEEN: Final = datetime.min.replace(tzinfo=UTC)


class NextFiring(Protocol):
    def __call__(self, *, after: datetime | None = None) -> datetime | None:
        """Return when the next schedule fires; strictly after an instant, if one is given."""
        ...


class Timer:
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
        self._turn_at: datetime | None = None  # when a rate limit admits the next run
        self._seen: datetime | None = _UNSEEN  # what is_due() has read, for seconds_left()
        self._stuck = Backoff(STUCK_FIRST, longest)

    def step(self) -> bool:
        """Do what is due; True when runs became ready."""
        self._seen = _UNSEEN
        plan = self.fire()
        now = self._clock.now()
        staged = self._store.stage(now=now, limit=STAGE_MAX)
        if self._turn_at is not None and self._turn_at <= now:
            staged += self._store.unblock_rated(now=now, limit=TURNS_MAX)
        self._is_moving = bool(plan.moves or staged)
        return bool(plan.runs or staged)

    def fire(self) -> TickPlan:
        """Fire the schedules that are due."""
        plan = self._tick()
        self._reporter.report_tick(plan, at=self._clock.now())
        return plan

    def stage(self, pending: PendingWork) -> int:
        """Make runs ready whose time has come, as the store showed it; return how many."""
        now, staged = self._clock.now(), 0
        if pending.due_at is not None and pending.due_at <= now:
            staged += self._store.stage(now=now, limit=STAGE_MAX)
        if pending.turn_at is not None and pending.turn_at <= now:
            staged += self._store.unblock_rated(now=now, limit=TURNS_MAX)
        return staged

    def is_due(self) -> bool:
        """Whether anything is due, even if this process cannot fire it."""
        self._seen = due_at = self._next_at()
        moments, now = [due_at, self._turn_at], self._clock.now()
        if any(moment is not None and moment <= now for moment in moments):
            self._seen = _UNSEEN
            return True
        return False

    def seconds_left(self, longest: float) -> float:
        """Return the seconds until something is due, at most ``longest``.

        A schedule that is due and did not move in the last step is being fired by another
        process, or cannot be fired. It must neither keep this thread busy nor hide later ones.
        """
        due_at, self._seen = self._seen, _UNSEEN
        if due_at is _UNSEEN:
            due_at = self._next_at()
        now = self._clock.now()
        if self._turn_at is not None:
            turn_at = max(self._turn_at, now + TURN_PACE)
            due_at = turn_at if due_at is None else min(due_at, turn_at)
        if due_at is None or due_at > now:
            self._stuck.reset()
            return _seconds_between(now, due_at, longest)
        if self._is_moving:
            self._stuck.reset()
            return 0.0
        seconds = self._stuck.seconds()
        if seconds < STUCK_LONG:
            return seconds
        # This reads all schedules, so it is not worth it for a short wait.
        return min(seconds, _seconds_between(now, self._next_firing_at(after=now), longest))

    def _next_at(self) -> datetime | None:
        """Return when the next schedule fires or run is due; remember the next rate slot."""
        pending = self._store.pending_work()
        self._turn_at = pending.turn_at
        moments = [self._next_firing_at(), pending.due_at]
        return min((moment for moment in moments if moment is not None), default=None)


def _seconds_between(now: datetime, then: datetime | None, longest: float) -> float:
    return longest if then is None else min((then - now).total_seconds(), longest)
