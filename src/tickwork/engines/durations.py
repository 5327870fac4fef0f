"""Recent durations of attempts, which decide how many runs a worker claims in advance."""

from typing import Final

WEIGHT: Final = 0.05
"""The weight of one attempt in the moving average: about the last twenty count."""

QUICK_MEAN: Final = 0.0002
QUICK_LONGEST: Final = 0.05
LONGEST_DECAY: Final = 0.999
"""An attempt of ten seconds is forgotten after about five thousand quick ones."""

SIMILAR_FACTOR: Final = 4
SIMILAR_EVERY: Final = 0.02


class DurationEstimate:
    """Moving averages of the durations of attempts, over all jobs and for each job.

    Several threads write it without a lock. A lost update does no harm.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0
        self._seconds_by_job: dict[str, float] = {}
        self._similar: frozenset[str] = frozenset()
        self._similar_at = -SIMILAR_EVERY

    def add(self, job: str, seconds: float) -> None:
        before = self.seconds
        self.seconds = seconds if not before else before + WEIGHT * (seconds - before)
        self.longest = seconds if seconds > self.longest else self.longest * LONGEST_DECAY
        by_job = self._seconds_by_job
        before = by_job.get(job, seconds)
        by_job[job] = before + WEIGHT * (seconds - before)

    @property
    def is_quick(self) -> bool:
        """Whether all recent attempts were so short that a second thread gains nothing."""
        return 0 < self.seconds < QUICK_MEAN and self.longest < QUICK_LONGEST

    def similar_jobs(self, now: float) -> frozenset[str]:
        """Return the jobs whose attempts are not much longer than the average attempt.

        The number of runs to claim in advance is computed from the overall average. A slow or
        unknown job would make that number wrong, so its runs are not claimed in advance.
        """
        if now - self._similar_at >= SIMILAR_EVERY:
            self._similar_at = now
            limit = SIMILAR_FACTOR * self.seconds
            self._similar = frozenset(
                job for job, seconds in list(self._seconds_by_job.items()) if seconds <= limit
            )
        return self._similar
