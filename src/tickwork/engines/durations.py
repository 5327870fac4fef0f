"""Recent durations of attempts.

They decide how many runs a worker claims in advance, and where their attempts are made.
"""

from typing import Final

WEIGHT: Final = 0.05
"""The weight of one attempt in the moving averages: about the last twenty count."""

FIRST: Final = 8
"""The first attempts of a job include the start of threads, so the shortest of them counts."""

QUICK: Final = 0.0002
"""Seconds that an attempt of a quick job takes."""

QUICK_TOTAL: Final = 0.1
QUICK_WINDOW: Final = 64
"""This many attempts that assistants make may take this long in all; else the job is slow."""

SLOW_REST: Final = 0.5
"""Seconds for which a job counts as slow after that."""

SIMILAR_FACTOR: Final = 4
SIMILAR_EVERY: Final = 0.02


class JobDurations:
    """The durations of one job."""

    __slots__ = ("first", "mean", "slow_until", "typical", "window_count", "window_seconds")

    def __init__(self, seconds: float) -> None:
        self.first = FIRST
        self.mean = seconds
        self.typical = seconds  # an estimate of the median: other threads disturb the mean
        self.window_seconds = 0.0
        self.window_count = 0
        self.slow_until = 0.0

    def is_quick(self, now: float) -> bool:
        """Whether attempts are so short that a thread of their own gains nothing."""
        return self.typical < QUICK and now >= self.slow_until


class DurationEstimate:
    """Moving averages of the durations of attempts, over all jobs and for each job.

    Several threads write it without a lock. A lost update does no harm.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._by_job: dict[str, JobDurations] = {}
        self._similar: frozenset[str] = frozenset()
        self._similar_at = -SIMILAR_EVERY

    def of(self, job: str) -> JobDurations | None:
        return self._by_job.get(job)

    def add(self, job: str, seconds: float) -> JobDurations:
        before = self.seconds
        own = self._by_job.get(job)
        if own is None:
            own = self._by_job[job] = JobDurations(seconds)
            self._similar_at = -SIMILAR_EVERY
        if own.first:
            own.first -= 1
            own.mean = own.typical = min(own.typical, seconds)
            if len(self._by_job) == 1:
                self.seconds = own.mean
                return own
        self.seconds = before + WEIGHT * (seconds - before)
        if own.first:
            return own
        own.mean += WEIGHT * (seconds - own.mean)
        own.typical *= 1 + WEIGHT if seconds > own.typical else 1 - WEIGHT
        return own

    def add_assisted(self, job: str, seconds: float, *, now: float) -> None:
        """Add an attempt that an assistant made, which had other work to do."""
        own = self.add(job, seconds)
        own.window_seconds += seconds
        own.window_count += 1
        if own.window_seconds > QUICK_TOTAL:
            own.slow_until = now + SLOW_REST
        if own.window_seconds > QUICK_TOTAL or own.window_count >= QUICK_WINDOW:
            own.window_seconds, own.window_count = 0.0, 0

    def mean_of(self, job: str) -> float | None:
        """Return how long attempts of this job take; None if none was measured."""
        own = self._by_job.get(job)
        return None if own is None else own.mean

    def is_quick(self, job: str, *, now: float) -> bool:
        own = self._by_job.get(job)
        return own is not None and own.is_quick(now)

    def similar_jobs(self, now: float) -> frozenset[str]:
        """Return the jobs whose attempts are not much longer than the average attempt.

        The number of runs to claim in advance is computed from the overall average. A slow or
        unknown job would make that number wrong, so its runs are not claimed in advance.
        """
        if now - self._similar_at >= SIMILAR_EVERY:
            self._similar_at = now
            limit = SIMILAR_FACTOR * self.seconds
            self._similar = frozenset(
                job for job, own in list(self._by_job.items()) if own.mean <= limit
            )
        return self._similar
