"""How long finished runs and their results are kept."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.ranges import Range

HISTORY_DEFAULT: Final = timedelta(days=30)
HISTORY_MIN: Final = timedelta(minutes=1)
HISTORY_MAX: Final = timedelta(days=36_500)
HISTORY_RANGE: Final = Range(
    HISTORY_MIN, HISTORY_MAX, fix='To keep runs until you prune them, write history="forever".'
)
RESULT_EXPIRED: Final = "The result has expired."


class Keep(StrEnum):
    """Which finished runs are kept for longer than the history."""

    NOTHING = "nothing"
    FAILURES = "failures"  # runs that failed, until a person prunes them


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the finished runs of a job are kept. None: until a person prunes them.

    ``results`` is how long a result is kept; None: as long as its run.
    """

    history: timedelta | None = HISTORY_DEFAULT
    results: timedelta | None = None
    keep: Keep = Keep.NOTHING

    def __post_init__(self) -> None:
        for name in ("history", "results"):
            length = getattr(self, name)
            if length is not None:
                HISTORY_RANGE.check(name, length)

    @property
    def lengths(self) -> frozenset[timedelta]:
        """The ages at which a run, or its result, is deleted."""
        return frozenset(each for each in (self.history, self.results) if each is not None)


class EndedRun(NamedTuple):
    """The facts about a finished run that decide whether it is pruned."""

    id: RunId
    job: str
    has_failed: bool
    ended_at: datetime
    has_result: bool


class HistoryCursor(NamedTuple):
    """The last finished run of a page: the next page begins after it."""

    ended_at: datetime
    run_id: RunId


class PrunePlan(NamedTuple):
    """The runs to delete, and those whose result is cleared."""

    delete: list[RunId]
    clear: list[RunId]


def plan_prune(
    runs: Iterable[EndedRun],
    retention_of: Callable[[str], Retention | None],
    *,
    now: datetime,
) -> PrunePlan:
    """Decide which of these runs are pruned. Runs of a job without a retention are kept."""
    plan = PrunePlan([], [])
    for run in runs:
        retention = retention_of(run.job)
        if retention is None:
            continue
        age = now - run.ended_at
        is_kept = retention.keep is Keep.FAILURES and run.has_failed
        if retention.history is not None and age > retention.history and not is_kept:
            plan.delete.append(run.id)
        elif run.has_result and retention.results is not None and age > retention.results:
            plan.clear.append(run.id)
    return plan


RETENTION_DEFAULT: Final = Retention()
