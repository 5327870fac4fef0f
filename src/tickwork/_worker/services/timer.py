"""Does what falls due: schedules fire, and runs that waited for a time become ready."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from tickwork._domain.job import JobSpec, ScheduleOrigin, ScheduleRow
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.tick import TickPlan, keys_wanted, plan_tick
from tickwork._kernel.clock import Clock
from tickwork._kernel.step_budget import STEPS_MAX
from tickwork._stores.contract import PendingWork, Store
from tickwork._worker.attempts.reporter import Reporter
from tickwork._worker.service import RepeatedService
from tickwork._worker.services.worker_stop import WorkerStop
from tickwork._worker.wakeup import Backoff, Wakeup
from tickwork.errors import RuleTooCostly

COSTLY_MAX: Final = 10_000
"""The most rules that are remembered because they took too many steps: memory has a bound."""


class StoredRules:
    """Parses the rules of rows. A rule that took too many steps is not computed again.

    Its schedule stays due, so each tick would take all those steps, and delay the others.
    """

    def __init__(self) -> None:
        self._costly: set[tuple[str, datetime | None]] = set()

    def rule_of(self, row: ScheduleRow) -> Rule:
        """The rule of a schedule.

        Raises:
            InvalidSchedule: This version cannot read it.
            RuleTooCostly: It took too many steps before.
        """
        if (row.spec.rule, row.next_due_at) in self._costly:
            raise RuleTooCostly(STEPS_MAX)
        return _parse(row.spec.rule)

    def remember_costly(self, due: Sequence[ScheduleRow], plan: TickPlan) -> None:
        """Remember the rules that a tick could not compute. A change of the row ends that."""
        costly = {
            each.schedule_id
            for each in plan.unfired
            if each.reason.startswith(RuleTooCostly.__name__)
        }
        if len(self._costly) > COSTLY_MAX:
            self._costly.clear()
        self._costly.update((row.spec.rule, row.next_due_at) for row in due if row.id in costly)


@lru_cache(maxsize=20_000)  # a rule takes about a kilobyte
def _parse(text: str) -> Rule:
    return from_text(text)


SCHEDULES_MAX: Final = 2_000
"""The most schedules that one transaction fires, so that its locks are short.

The others stay due for the next one, which follows at once.
"""

STAGE_MAX: Final = 5_000
"""The most runs that one statement makes ready, so that its locks are short.

The others stay due for the next step, which follows at once.
"""

STUCK_FIRST: Final = 0.01
"""Seconds to the next try when something is due that another worker fires, so it cannot."""

STUCK_LONG: Final = 0.1
"""For a wait of so many seconds it is worth while to read when other schedules are due."""

TURNS_MAX: Final = 500
TURN_PACE: Final = timedelta(seconds=0.01)
"""Runs that wait for a rate limit and follow each other faster than this become ready together.

One by one they would cost a transaction each, a hundred a second.
"""

OUTBOX_MAX: Final = 100
"""The most rows of the outbox that one transaction works off, so that its locks are short."""

OUTBOX_BATCHES: Final = 20

LONGEST: Final = 1.0
"""Seconds after which the timer looks again. A notification that was lost costs at most so much."""

PAUSE: Final = 0.01
"""Seconds between two steps when notifications arrive all the time, so that a step finds many."""

_UNSEEN: Final = datetime.min.replace(tzinfo=UTC)


class Timer:
    """Fires the due schedules of jobs that this process knows. Any number of timers may run."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        specs: Callable[[], Mapping[str, JobSpec]],
        reporter: Reporter,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._specs = specs
        self._reporter = reporter
        self._retire_after = retire_after
        self._rules = StoredRules()
        self._is_moving = True
        self._next_start_at: datetime | None = None  # when a rate limit admits the next run
        self._has_outbox = False  # committed transactions have left work
        self._seen: datetime | None = _UNSEEN  # what is_due() has read, for seconds_left()
        self._stuck = Backoff(STUCK_FIRST, LONGEST)

    def step(self) -> bool:
        """Do what is due; True when runs became ready."""
        self._seen = _UNSEEN
        plan = self.fire()
        now = self._clock.now()
        staged = self._store.stage(now=now, limit=STAGE_MAX)
        if self._next_start_at is not None and self._next_start_at <= now:
            staged += self._store.unblock_rated(now=now, limit=TURNS_MAX)
        if self._has_outbox:
            staged += work_outbox(self._store, self._clock)
        self._is_moving = bool(plan.moves or staged)
        return bool(plan.runs or staged)

    def fire(self) -> TickPlan:
        """Fire at most :data:`SCHEDULES_MAX` due schedules, in one transaction."""
        jobs = self._specs()
        now = self._clock.now()

        def keys_of(due: Sequence[ScheduleRow]) -> Collection[str]:
            return keys_wanted(due, now=now, jobs=jobs)

        def plan(due: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            rules = self._rules
            made = plan_tick(due, now=now, jobs=jobs, rule_of=rules.rule_of, taken=taken)
            rules.remember_costly(due, made)
            return made

        fired = self._store.fire(
            now=now,
            limit=SCHEDULES_MAX,
            jobs=jobs.keys(),
            keys_of=keys_of,
            plan=plan,
            seen_after=now - self._retire_after,
        )
        self._reporter.report_tick(fired, at=self._clock.now())
        return fired

    def stage(self, pending: PendingWork) -> int:
        """Make runs ready whose time has come, as the store showed it; return how many."""
        now, staged = self._clock.now(), 0
        if pending.due_at is not None and pending.due_at <= now:
            staged += self._store.stage(now=now, limit=STAGE_MAX)
        if pending.next_start_at is not None and pending.next_start_at <= now:
            staged += self._store.unblock_rated(now=now, limit=TURNS_MAX)
        if pending.has_outbox:
            staged += work_outbox(self._store, self._clock)
        return staged

    def next_firing_at(self, *, after: datetime | None = None) -> datetime | None:
        """Return when the next schedule of a known job is due.

        With ``after``, schedules that are due earlier do not count: the caller could not fire
        them. All schedules are read then.
        """
        jobs, seen_after = self._specs().keys(), self._clock.now() - self._retire_after
        if after is None:
            return self._store.next_firing_at(jobs=jobs, seen_after=seen_after)
        moments: list[datetime] = []
        last: tuple[str, str] | None = None
        rows = self._store.list_schedules(limit=SCHEDULES_MAX)
        while rows:
            moments += [
                row.next_due_at
                for row in rows
                if row.spec.job in jobs
                and row.next_due_at is not None
                and row.next_due_at > after
                and (not row.is_paused or row.paused_until is not None)
                and (row.spec.origin is not ScheduleOrigin.CODE or _is_seen(row, since=seen_after))
            ]
            if len(rows) < SCHEDULES_MAX:
                break  # without another query: a last name that is not Unicode is no cursor
            last = rows[-1].spec.tenant, rows[-1].spec.name
            rows = self._store.list_schedules(after=last, limit=SCHEDULES_MAX)
        return min(moments, default=None)

    def is_due(self) -> bool:
        """Whether anything is due, even if this process cannot fire it."""
        self._seen = due_at = self._next_at()
        moments, now = [due_at, self._next_start_at], self._clock.now()
        if self._has_outbox or any(each is not None and each <= now for each in moments):
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
        if self._next_start_at is not None:
            next_start_at = max(self._next_start_at, now + TURN_PACE)
            due_at = next_start_at if due_at is None else min(due_at, next_start_at)
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
        return min(seconds, _seconds_between(now, self.next_firing_at(after=now), longest))

    def _next_at(self) -> datetime | None:
        """Return when the next schedule fires or run is due; remember the next rate slot."""
        upcoming = self._store.next_due(now=self._clock.now())
        self._next_start_at = upcoming.next_start_at
        self._has_outbox = upcoming.has_outbox
        moments = [self.next_firing_at(), upcoming.due_at]
        return min((moment for moment in moments if moment is not None), default=None)


def work_outbox(store: Store, clock: Clock) -> int:
    """Do the work that committed transactions have left, a few batches of it.

    A run that is canceled may have called others, which are canceled by the next batch.
    """
    total = 0
    for _ in range(OUTBOX_BATCHES):
        done = store.work_outbox(now=clock.now(), limit=OUTBOX_MAX)
        total += done
        if not done:
            break
    return total


class TimerService(RepeatedService):
    """Repeats the steps of a timer until the worker is stopped."""

    name = "timer"
    activity = "Firing schedules"

    def __init__(
        self, timer: Timer, *, clock: Clock, stop: WorkerStop, wakeup: Wakeup, own_wakeup: Wakeup
    ) -> None:
        super().__init__(clock)
        self._timer = timer
        self._stop = stop
        self._pump_wakeup = wakeup
        self._wakeup = own_wakeup
        self._since = own_wakeup.count  # the notifications before the last step
        self._is_notified = False

    @property
    def is_over(self) -> bool:
        return super().is_over or self._stop.is_requested

    def wait(self, seconds: float) -> None:
        self._is_notified = self._wakeup.wait(self._since, seconds)
        if self._is_notified:
            # A busy database notifies all the time: handle those notifications together.
            self._stop.wait(min(seconds, PAUSE))

    def step(self) -> float:
        self._since = self._wakeup.count
        # A notification may be about anything: check before doing a whole step.
        if (not self._is_notified or self._timer.is_due()) and self._timer.step():
            self._pump_wakeup.notify_new_work()
        return self._timer.seconds_left(LONGEST)


def _seconds_between(now: datetime, then: datetime | None, longest: float) -> float:
    return longest if then is None else min((then - now).total_seconds(), longest)


def _is_seen(row: ScheduleRow, *, since: datetime) -> bool:
    return row.seen_at is not None and row.seen_at >= since
