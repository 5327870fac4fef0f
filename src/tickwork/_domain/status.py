"""The statuses of a run, for people, and its phases, for indexes. Both are tables."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """Where a run stands.

    >>> RunStatus.FAILED.can_execute, RunStatus.FAILED_PERMANENT.is_final
    (True, True)
    >>> RunStatus.PENDING.can_transition_to(RunStatus.COMPLETED)
    False
    """

    PENDING = "pending"  # waits for its due time, then for a worker
    RUNNING = "running"  # claimed: a lease says by whom, and until when
    FAILED = "failed"  # failed, and will be tried again when due
    COMPLETED = "completed"
    SKIPPED = "skipped"  # a filter or a policy held it back; the reason is recorded
    CANCELED = "canceled"
    FAILED_PERMANENT = "failed_permanent"  # for the last time; a person decides what follows

    @property
    def can_execute(self) -> bool:
        """Whether a worker may claim it when it is due."""
        return self in CLAIMABLE

    @property
    def is_final(self) -> bool:
        """Whether nothing follows any more."""
        return self in FINAL

    def can_transition_to(self, other: "RunStatus") -> bool:
        """Whether there is a step from this status to that one."""
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
    RunStatus.FAILED_PERMANENT: frozenset(),  # `tickwork retry` makes a new run
}

# A status added without deciding its way out must not survive an import.
assert NEXT.keys() == set(RunStatus)


class Phase(StrEnum):
    """Where an unfinished run waits. Statuses are for people; this drives the indexes."""

    WAITING = "waiting"  # not due yet; outside the index that claims read
    READY = "ready"  # due, and nothing is in its way
    BLOCKED = "blocked"  # due, but a limit that it needs is full
    RUNNING = "running"  # claimed


_BEFORE_A_CLAIM: Final = frozenset(Phase) - {Phase.RUNNING}

PHASES: Final[Mapping[RunStatus, frozenset[Phase]]] = {
    status: _BEFORE_A_CLAIM
    if status in CLAIMABLE
    else frozenset({Phase.RUNNING})
    if status is RunStatus.RUNNING
    else frozenset()  # finished runs have left the table of the living
    for status in RunStatus
}
"""Which phases go with which status; the table's CHECK is tested against it."""
