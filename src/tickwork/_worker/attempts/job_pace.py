"""Decides when the rows of jobs are written: not with each batch of outcomes."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from threading import Lock
from typing import Final, TypeAlias

from tickwork._domain.runs.transitions import Transition
from tickwork._kernel.clock import Clock

JOB_PACE: Final = 1.0
"""Seconds between two updates of the row of a job. Each leaves a dead version, and while another
transaction is held, all updates read all of them."""

_JobKey: TypeAlias = tuple[str, str]  # tenant and name

LatestByJob: TypeAlias = dict[_JobKey, Transition]


class JobPace:
    """Remembers the latest successes of jobs whose rows were written a moment ago.

    A failure is written at once, after the successes before it. So an idle worker, and every
    other process, sees figures that are at most two seconds old.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._written_at: dict[_JobKey, float] = {}
        self._deferred: dict[_JobKey, Transition] = {}

    def should_write(self, by_job: LatestByJob) -> bool:
        """Whether the rows of the jobs are written with a batch of successes."""
        latest = self._clock.monotonic() - JOB_PACE
        return any(self._written_at.get(key, latest) <= latest for key in by_job)

    def defer(self, by_job: LatestByJob) -> None:
        """Remember successes that were recorded without the rows of their jobs."""
        with self._lock:
            for key, each in by_job.items():
                earlier = self._deferred.get(key)
                if earlier is None or earlier.ended_at <= each.ended_at:
                    self._deferred[key] = each

    def note_written(self, by_job: LatestByJob) -> None:
        """The rows of these jobs were written, with the latest outcome."""
        now = self._clock.monotonic()
        with self._lock:
            for key in by_job:
                self._written_at[key] = now
                self._deferred.pop(key, None)

    def take_before(self, failures: Sequence[Transition]) -> list[Transition]:
        """Take the successes that must be written before these failures."""
        return self._take(latest_by_job(failures))

    def take_due(self, *, is_ending: bool = False) -> list[Transition]:
        """Take the successes whose jobs may be written again, or all when the worker ends."""
        latest = self._clock.monotonic() - JOB_PACE
        with self._lock:
            due = {key for key in self._deferred if is_ending or self._written_at[key] <= latest}
        return self._take(due)

    def put_back(self, transitions: Sequence[Transition]) -> None:
        """Keep what could not be written for the next try."""
        self.defer(latest_by_job(transitions))

    def _take(self, keys: Iterable[_JobKey]) -> list[Transition]:
        with self._lock:
            return [self._deferred.pop(key) for key in keys if key in self._deferred]


def latest_by_job(transitions: Sequence[Transition]) -> LatestByJob:
    """The last transition of each job, in the order of their ends."""
    if len(transitions) > 1:
        transitions = sorted(transitions, key=_ended_at)
    return {(each.claim.tenant, each.claim.job): each for each in transitions}


_ended_at: Final = attrgetter("ended_at")
