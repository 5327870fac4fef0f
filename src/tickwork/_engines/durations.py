"""Recent durations of attempts.

They decide how many runs a worker claims in advance, and where their attempts are made.
"""

from typing import Final

WEIGHT: Final = 0.05
"""The weight of one attempt in the moving averages: about the last twenty count.

More would forget a slow attempt too soon, fewer would notice a change of the load too late.
"""

LONGER: Final = 1 + WEIGHT
SHORTER: Final = 1 - WEIGHT

FIRST: Final = 8
"""The first attempts of a job include the start of threads, so the shortest of them counts."""

QUICK: Final = 0.0002
"""Seconds that an attempt of a quick job takes: handing it to a thread would cost more.

A run took 24 µs of processor time with a thread, and 13 to 15 µs without (ADR 17).
"""

QUICK_TOTAL: Final = 0.1
QUICK_WINDOW: Final = 64
"""In the thread of a pump, so many attempts may take this long in all; else the job is slow.

With 25 ms, two pumps that wait for the interpreter made a quick job look slow (ADR 17).
"""

SLOW_SECONDS: Final = 0.5
"""Seconds for which a job counts as slow after that: at most a sixth of a pump is lost to it."""

SIMILAR_FACTOR: Final = 4
"""Jobs up to so many times slower than the average may be claimed in advance with the others.

A much slower one would keep the others waiting that were claimed behind it.
"""

SIMILAR_EVERY: Final = 0.02
"""Seconds for which the list of those jobs holds: making it takes longer than a claim's turn."""


class JobDurations:
    """The durations of one job."""

    __slots__ = (
        "_overall",
        "first",
        "mean",
        "slow_until",
        "typical",
        "window_count",
        "window_seconds",
    )

    def __init__(self, seconds: float, overall: "DurationEstimate") -> None:
        self._overall = overall
        self.first = FIRST
        self.mean = seconds
        self.typical = seconds  # an estimate of the median: other threads disturb the mean
        self.window_seconds = 0.0
        self.window_count = 0
        self.slow_until = 0.0

    def is_quick(self, now: float) -> bool:
        """Whether attempts are so short that a thread of their own gains nothing."""
        return self.typical < QUICK and now >= self.slow_until

    def add(self, seconds: float) -> None:
        """Add an attempt to the averages of this job, and to the one over all jobs."""
        overall = self._overall
        if self.first:
            self.first -= 1
            self.mean = self.typical = min(self.typical, seconds)
            if overall.has_one_job:
                overall.seconds = self.mean
                return
        overall.seconds += WEIGHT * (seconds - overall.seconds)
        if self.first:
            return
        self.mean += WEIGHT * (seconds - self.mean)
        self.typical *= LONGER if seconds > self.typical else SHORTER

    def add_quick(self, seconds: float, now: float) -> bool:
        """Add an attempt that a thread of a pump made.

        Return whether the job is still quick. This is called for most runs of a busy worker, so
        it calls nothing else for them.

        The average over all jobs must change together with the mean of the job. If the mean is
        several times longer, also for a moment, no runs of the job are claimed in advance.
        """
        if self.first:
            self.add(seconds)
        else:
            overall = self._overall
            overall.seconds += WEIGHT * (seconds - overall.seconds)
            self.mean += WEIGHT * (seconds - self.mean)
            self.typical *= LONGER if seconds > self.typical else SHORTER
        self.window_seconds += seconds
        self.window_count += 1
        if self.window_seconds > QUICK_TOTAL:
            self.slow_until = now + SLOW_SECONDS
            self.window_seconds, self.window_count = 0.0, 0
        elif self.window_count >= QUICK_WINDOW:
            self.window_seconds, self.window_count = 0.0, 0
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

    @property
    def has_one_job(self) -> bool:
        return len(self._by_job) == 1

    def add(self, job: str, seconds: float) -> None:
        """Add an attempt that a thread or a task of the engine made."""
        own = self._by_job.get(job)
        if own is None:
            own = self._by_job[job] = JobDurations(seconds, self)
            self._similar_at = -SIMILAR_EVERY
        own.add(seconds)

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
