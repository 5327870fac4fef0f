"""One piece of work, as it goes in, as it is claimed, and as it is read."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.limits import UniqueKey
from tickwork._domain.status import PHASES, Phase, RunStatus

QUEUE_DEFAULT: Final = "default"
PRIORITY_DEFAULT: Final = 100  # lower runs first
PRIORITY_LIMIT: Final = 32_767  # either way: what a small integer column holds
CRASHES_MAX: Final = 3  # a run that took three workers with it takes no fourth
NO_ARGS: Final = "{}"


class NewRun(NamedTuple):
    """A run on its way into a store: all that is known before somebody claims it.

    ``args`` is JSON text. A run of a schedule has that schedule's name and the instant
    for which it stands; ``due_at`` may be later than that, by jitter.

    Built for every run, so it is a tuple, and checked by :func:`check_run` where it is
    made.
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

    @property
    def phase(self) -> Phase:
        """Where it waits first: straight among the ready ones when it is due already."""
        return Phase.READY if self.due_at <= self.created_at else Phase.WAITING


def check_run(run: NewRun) -> NewRun:
    """Return the run, having checked what only we could get wrong."""
    assert run.created_at.tzinfo is not None, run
    assert run.due_at.tzinfo is not None, run
    assert run.attempts_max >= 1, run
    assert (run.schedule is None) == (run.nominal_at is None), run
    return run


class Claim(NamedTuple):
    """The right to attempt one run, until a lease runs out.

    ``token`` grows with every claim of the same run. A worker that lost its lease still
    holds the old token, so nothing it writes afterwards can land. ``attempt`` is the
    number of this attempt, from 1.

    Built for every run, so it is a tuple, and checked by :func:`check_claim` where it
    is made from a row.
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
    put_offs: int = 0  # how often `when` has held it back so far
    expires_at: datetime | None = None
    schedule: str | None = None
    nominal_at: datetime | None = None
    limit_keys: tuple[str, ...] = ()
    target: str | None = None
    trace: str | None = None
    checkpoint: str | None = None

    @property
    def is_last_attempt(self) -> bool:
        """Whether the retry policy gives no further attempt."""
        return self.attempt >= self.attempts_max

    @property
    def is_fired(self) -> bool:
        """Whether a schedule made it, rather than a dispatch."""
        return self.schedule is not None


def check_claim(claim: Claim) -> Claim:
    """Return the claim, having checked what only a broken store could get wrong."""
    assert 1 <= claim.attempt <= claim.attempts_max, claim
    assert claim.token >= 1, claim
    assert claim.crashes >= 0, claim
    assert claim.lease_until.tzinfo is not None, claim
    return claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it is read back, unfinished or finished.

    ``attempt`` counts the attempts that were begun and not given back. ``reason`` says why
    it ended as it did, why it was held back, or what went wrong last. Skips in a row are
    one run: ``instants`` says of how many, and ``last_nominal_at`` which was the last.
    ``outcome`` is the word for what came of the last attempt, once there is no other.
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
    put_offs: int = 0
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

    def __post_init__(self) -> None:
        if self.phase is None:
            assert self.status.is_final, self
            assert self.ended_at is not None, self
        else:
            assert self.phase in PHASES[self.status], self
        assert (self.phase is Phase.BLOCKED) == (self.blocked_on is not None), self
        assert (self.status is RunStatus.RUNNING) == (self.lease_until is not None), self

    @property
    def is_finished(self) -> bool:
        """Whether nothing follows any more."""
        return self.status.is_final
