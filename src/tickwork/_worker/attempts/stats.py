"""Counts the attempts of a worker, for its summary and for status commands."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.transitions import Transition
from tickwork.errors import StoreUnavailable

LATE: Final = timedelta(seconds=1)
"""How late a firing may start before it counts as missed: more than a poll takes."""


class Stats:
    """Counters. Several threads write them, a batch at a time.

    ``missed`` is how many firings in a row started late. Firings that were due before ``since``,
    when this worker did not run, do not count.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.attempts: int = 0
        self.failures: int = 0
        self.lateness: timedelta = timedelta(0)
        self.since: datetime | None = None
        self.missed: int = 0
        self.lateness_last: timedelta = timedelta(0)
        self.is_stuck = False
        self.is_behind = False
        self.is_drained = False  # a request through the database has ended it
        self.is_used_up = False  # it reached runs_max or memory_max
        self.problem = ""  # which part of the worker could not work any more, and why
        self.unwritten: int = 0  # outcomes that a stopped worker could not write
        self.left_behind: int = 0  # attempts that still run though the worker has stopped
        self.fault: StoreUnavailable | None = None  # why the worker cannot use its store any more

    def add(self, transitions: Sequence[Transition]) -> None:
        late = [
            transition.started_at - transition.claim.due_at
            for transition in transitions
            if transition.started_at is not None
        ]
        failed = OutcomeKind.FAILED
        failures = [
            transition
            for transition in transitions
            if transition.outcome is failed and transition.started_at is not None
        ]
        fired = [
            transition for transition in transitions if transition.claim.nominal_at is not None
        ]
        with self._lock:
            self.attempts += len(late)
            self.failures += len(failures)
            self.lateness = max([self.lateness, *late])
            if self.since is not None:
                self._count_missed(fired, since=self.since)

    def _count_missed(self, fired: Iterable[Transition], *, since: datetime) -> None:
        for transition in fired:
            claim, started_at = transition.claim, transition.started_at
            if started_at is None or claim.nominal_at is None:
                continue
            if claim.nominal_at < since or claim.token > 1:
                continue
            self.lateness_last = started_at - claim.due_at
            self.missed = self.missed + 1 if self.lateness_last > LATE else 0
