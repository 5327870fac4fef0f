"""A run: before it is stored, as a claim, and as it is read."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.limits.debounce import ReplaceRule
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.links import SUSPENDED
from tickwork._domain.runs.status import PHASES, Phase, RunStatus
from tickwork.errors import NaiveDatetime

QUEUE_DEFAULT: Final = "default"
PRIORITY_DEFAULT: Final = 100  # lower runs first
PRIORITY_LIMIT: Final = 32_767  # what a small integer column can hold
CRASHES_MAX: Final = 3  # a run that crashed three workers is not tried again
NO_ARGS: Final = "{}"


class NewRun(NamedTuple):
    """A run that is not stored yet.

    ``args`` is JSON text. A run of a schedule has the name of the schedule and its nominal time;
    jitter can make ``due_at`` later.

    It is a tuple, because one is built for every run. ``JobSpec.new_run`` checks it.
    """

    id: RunId
    job: str
    created_at: datetime
    due_at: datetime
    tenant: str = ""
    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    expires_at: datetime | None = None
    args: str = NO_ARGS
    tags: tuple[str, ...] = ()
    attempts_max: int = 1
    overlap_key: str | None = None
    limit_keys: tuple[str, ...] = ()
    unique: UniqueKey | None = None
    schedule: str | None = None
    nominal_at: datetime | None = None
    target: str | None = None
    retry_of: RunId | None = None
    trace: str | None = None
    replaces: ReplaceRule | None = None  # the run that waits with its overlap key

    @property
    def phase(self) -> Phase:
        """The first phase: ready if the run is due already."""
        return Phase.READY if self.due_at <= self.created_at else Phase.WAITING


class Claim(NamedTuple):
    """The right to attempt one run, until the lease expires.

    ``token`` grows with every claim of the same run. A worker that lost its lease has an old
    token, so the store rejects its writes. ``attempt`` is the number of this attempt, from 1.

    It is a tuple, because one is built for every run. :func:`check_claim` checks it.
    """

    run_id: RunId
    job: str
    tenant: str
    queue: str
    args: str
    attempt: int
    attempts_max: int
    crashes: int
    token: int
    due_at: datetime
    lease_until: datetime
    postponements: int = 0  # how often `when` has postponed it
    expires_at: datetime | None = None
    schedule: str | None = None
    nominal_at: datetime | None = None
    limit_keys: tuple[str, ...] = ()
    target: str | None = None
    trace: str | None = None
    checkpoint: str | None = None
    links: int = 0

    @property
    def has_resumed(self) -> bool:
        """Whether the run was suspended before: this attempt continues it."""
        return bool(self.links & SUSPENDED)

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.attempts_max

    @property
    def is_fired(self) -> bool:
        """Whether it is a run of a schedule, not of a dispatch."""
        return self.schedule is not None


def check_claim(claim: Claim) -> Claim:
    """Assert what only a broken store could violate, and return the claim."""
    assert 1 <= claim.attempt <= claim.attempts_max, claim
    assert claim.token >= 1, claim
    assert claim.crashes >= 0, claim
    assert claim.lease_until.tzinfo is not None, claim
    return claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it is read from the store, unfinished or finished.

    ``attempt`` counts the attempts that were started and count. ``reason`` is the last
    error, or why the run was skipped, postponed or canceled. Consecutive skips are one row:
    ``instants`` counts them, and ``last_nominal_at`` is the last one. ``outcome`` is the outcome
    of the last attempt of a finished run.
    """

    id: RunId
    job: str
    status: RunStatus
    phase: Phase | None
    created_at: datetime
    due_at: datetime
    tenant: str = ""
    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    expires_at: datetime | None = None
    args: str = NO_ARGS
    tags: tuple[str, ...] = ()
    attempt: int = 0
    attempts_max: int = 1
    crashes: int = 0
    postponements: int = 0
    token: int = 0
    lease_until: datetime | None = None
    worker: WorkerId | None = None
    overlap_key: str | None = None
    limit_keys: tuple[str, ...] = ()
    blocked_on: str | None = None
    schedule: str | None = None
    nominal_at: datetime | None = None
    target: str | None = None
    external_id: str | None = None
    retry_of: RunId | None = None
    trace: str | None = None
    progress: str | None = None
    checkpoint: str | None = None
    cancel_requested_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: str | None = None
    reason: str = ""
    instants: int = 1
    last_nominal_at: datetime | None = None
    outcome: str | None = None
    links: int = 0

    def __post_init__(self) -> None:
        if self.phase is None:
            assert self.status.is_final, self
            assert self.ended_at is not None, self
        else:
            assert self.phase in PHASES[self.status], self
        assert (self.phase is Phase.BLOCKED) == (self.blocked_on is not None), self
        assert (self.status is RunStatus.RUNNING) == (self.lease_until is not None), self

    @property
    def was_suspended(self) -> bool:
        """Whether it has slept or waited: it is unfinished, and has steps."""
        return bool(self.links & SUSPENDED)

    @property
    def is_finished(self) -> bool:
        return self.status.is_final

    @property
    def next_attempt_at(self) -> datetime | None:
        """When its next attempt is due; None while one is running, and after the last."""
        return self.due_at if self.status.can_execute else None

    def is_due(self, now: datetime) -> bool:
        """Whether its next attempt may start now: it waits, and its time has come.

        Raises:
            NaiveDatetime: ``now`` has no time zone.
        """
        return self._waits_until(now) and self.due_at <= now

    def is_overdue(self, now: datetime) -> bool:
        """Whether its next attempt was due before now, and has not started.

        Raises:
            NaiveDatetime: ``now`` has no time zone.
        """
        return self._waits_until(now) and self.due_at < now

    def _waits_until(self, now: datetime) -> bool:
        if now.utcoffset() is None:
            raise NaiveDatetime(now)
        return self.status.can_execute


OWN_FIELDS: Final = frozenset(
    {
        *("id", "created_at", "due_at", "expires_at", "retry_of", "trace"),
        *("overlap_key", "unique", "replaces"),
    }
)
"""What each run has of its own: a retry does not copy it."""

_KEPT: Final = tuple(name for name in NewRun._fields if name not in OWN_FIELDS)


def run_again(old: Run, run_id: RunId, *, now: datetime) -> NewRun:
    """Make a new run of a finished one: it is due now, and has everything but ``OWN_FIELDS``."""
    kept = {name: getattr(old, name) for name in _KEPT}
    return NewRun(id=run_id, created_at=now, due_at=now, retry_of=old.id, **kept)
