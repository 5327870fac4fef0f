"""The statuses of a run, for people, and its phases, for database indexes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """The status of a run.

    >>> RunStatus.FAILED.can_execute, RunStatus.FAILED_PERMANENT.is_final
    (True, True)
    >>> RunStatus.PENDING.can_transition_to(RunStatus.COMPLETED)
    False
    """

    PENDING = "pending"  # waits for its due time, then for a worker
    RUNNING = "running"  # a worker has claimed it and holds its lease
    FAILED = "failed"  # an attempt failed; it is retried when due
    COMPLETED = "completed"
    SKIPPED = "skipped"  # a filter or a policy skipped it; the reason is recorded
    CANCELED = "canceled"
    FAILED_PERMANENT = "failed_permanent"  # failed, and is not retried

    @property
    def can_execute(self) -> bool:
        """Whether a worker may claim it when it is due."""
        return self in CLAIMABLE

    @property
    def is_final(self) -> bool:
        return self in FINAL

    def can_transition_to(self, other: "RunStatus") -> bool:
        return other in NEXT[self]


CLAIMABLE: Final = frozenset({RunStatus.PENDING, RunStatus.FAILED})
FINAL: Final = frozenset(RunStatus) - CLAIMABLE - {RunStatus.RUNNING}

NEXT: Final[Mapping[RunStatus, frozenset[RunStatus]]] = {
    RunStatus.PENDING: frozenset(
        {RunStatus.RUNNING, RunStatus.CANCELED, RunStatus.SKIPPED, RunStatus.FAILED_PERMANENT}
    ),
    RunStatus.RUNNING: FINAL | CLAIMABLE,
    RunStatus.FAILED: frozenset(
        {RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELED, RunStatus.FAILED_PERMANENT}
    ),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.SKIPPED: frozenset(),
    RunStatus.CANCELED: frozenset(),
    RunStatus.FAILED_PERMANENT: frozenset(),  # `tickwork retry` adds a new run
}

# Every status must declare its transitions.
assert NEXT.keys() == set(RunStatus)


class Phase(StrEnum):
    """What an unfinished run waits for. Statuses are for people; indexes use the phase."""

    WAITING = "waiting"  # not due yet; not in the index of claimable runs
    READY = "ready"  # due, and a worker can claim it
    BLOCKED = "blocked"  # due, but a limit is reached
    RUNNING = "running"  # claimed


_BEFORE_A_CLAIM: Final = frozenset(Phase) - {Phase.RUNNING}

PHASES: Final[Mapping[RunStatus, frozenset[Phase]]] = {
    status: _BEFORE_A_CLAIM
    if status in CLAIMABLE
    else frozenset({Phase.RUNNING})
    if status is RunStatus.RUNNING
    else frozenset()  # finished runs are in the history table
    for status in RunStatus
}
"""The phases of each status. A test compares them with the CHECK of the table."""
