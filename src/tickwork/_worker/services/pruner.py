"""Deletes finished runs after the time that their jobs keep them, in small batches."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import Final

from tickwork._domain.job import JobSpec
from tickwork._domain.runs.retention import (
    RESULT_EXPIRED,
    HistoryCursor,
    Retention,
    plan_prune,
)
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._kernel.processes import ThisProcess
from tickwork._stores.contract import LockRow, Store

BATCH: Final = 500
BATCHES_MAX: Final = 8
"""Rows of one batch, and batches of one step: more would delay the other maintenance tasks."""

PRUNE_EVERY: Final = 60.0
"""Seconds between two rounds: a table that ages by days gains nothing from shorter ones."""

RESCAN_EVERY: Final = 86_400.0
"""Seconds after which a round begins at the oldest run again, because outcomes can be late."""

ALERTS_KEPT: Final = timedelta(days=365)
"""Ended alerts are kept as long as the audit log, so that both tell the same story."""

LOCK_TTL: Final = timedelta(minutes=5)
"""How long one worker prunes alone. It is renewed; if the worker dies, another one goes on."""

_DAY: Final = timedelta(days=1)
"""Unique keys stay so long after their window: another machine's clock may be behind."""


class Pruner:
    """Deletes finished runs and results that have outlived the retention of their job.

    A worker prunes the runs of the jobs that it knows. It does not touch the runs of jobs that
    only other programs define, or defined recently, because those may keep runs for longer. All
    other jobs have the default retention of the application. Of the workers with the same jobs,
    one prunes at a time.

    There is one cursor for each retention time, so each run is read once for each of them.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        specs: Callable[[], Mapping[str, JobSpec]],
        default: Retention,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._specs = specs
        self._default = default
        self._retire_after = retire_after
        self._owner = new_id(clock.now())
        self._known: Mapping[str, Retention] = {}
        self._others: frozenset[str] = frozenset()
        self._cursors: dict[timedelta, HistoryCursor] = {}
        self._lengths: list[timedelta] = []  # what is left of the current round
        self._next_at = 0.0
        self._rescan_at = 0.0

    def step(self) -> bool:
        """Prune a few batches, if a round is due; True if the round is not finished."""
        if self._clock.monotonic() < self._next_at:
            return False
        if (self._lengths or self._begin(LOCK_TTL)) and self._prune_batches(BATCHES_MAX):
            return True
        self._next_at = self._clock.monotonic() + PRUNE_EVERY
        return False

    def run_once(self, *, every: timedelta, batches_max: int) -> None:
        """Make one round, unless another process has made one within this time."""
        if self._begin(every):
            self._prune_batches(batches_max)

    def _begin(self, ttl: timedelta) -> bool:
        """Begin a round; False if another worker is pruning."""
        self._known = {name: spec.retention for name, spec in self._specs().items()}
        if not self._acquire(ttl):
            return False
        if self._clock.monotonic() >= self._rescan_at:
            self._cursors.clear()
            self._rescan_at = self._clock.monotonic() + RESCAN_EVERY
        seen_after = self._clock.now() - self._retire_after
        jobs = self._store.list_jobs()
        seen = {row.name for row in jobs if row.seen_at is not None and row.seen_at >= seen_after}
        working = {job for worker in self._store.list_workers() for job in worker.jobs}
        self._others = frozenset((seen | working) - self._known.keys())
        retentions = {self._default, *self._known.values()}
        self._lengths = sorted({length for each in retentions for length in each.lengths})
        return True

    def _acquire(self, ttl: timedelta) -> bool:
        # Workers with other jobs, or other retentions, must not wait for this one.
        known_text = repr(sorted(self._known.items(), key=str))
        digest = blake2b(known_text.encode(), digest_size=8).hexdigest()
        now, me = self._clock.now(), ThisProcess.current()
        lock = LockRow(f"prune:{digest}", self._owner, me.host, me.pid, now, now + ttl)
        return self._store.acquire_lock(lock, now=now) is None

    def _prune_batches(self, count: int) -> bool:
        """Prune this many batches; True if more may be left."""
        for _ in range(count):
            if not self._lengths:
                now = self._clock.now()
                self._store.prune_keys(before=now - _DAY, limit=BATCH)
                self._store.prune_alerts(before=now - ALERTS_KEPT, limit=BATCH)
                return False
            if self._prune_batch(self._lengths[-1]) < BATCH:
                self._lengths.pop()
        return True

    def _prune_batch(self, length: timedelta) -> int:
        """Prune among the next runs of this age; return how many were read."""
        now = self._clock.now()
        page = self._store.list_ended(
            after=self._cursors.get(length), before=now - length, limit=BATCH
        )
        plan = plan_prune(page, self._retention_of, now=now)
        if plan.delete:
            self._store.delete_runs(plan.delete)
        if plan.clear:
            self._store.clear_results(plan.clear, reason=RESULT_EXPIRED)
        if page:
            self._cursors[length] = HistoryCursor(page[-1].ended_at, page[-1].id)
        return len(page)

    def _retention_of(self, job: str) -> Retention | None:
        if job in self._others:
            return None
        return self._known.get(job, self._default)
