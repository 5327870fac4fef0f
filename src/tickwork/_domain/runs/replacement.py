"""What happens when a dispatch replaces a run that waits."""

from datetime import datetime
from typing import NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import Phase
from tickwork._kernel.durations import later


class WaitingRun(NamedTuple):
    """A run that was never claimed: all that a replacement reads of it."""

    id: RunId
    created_at: datetime
    due_at: datetime
    phase: Phase
    queue: str
    limit_keys: tuple[str, ...] = ()
    blocked_on: str | None = None


class ReplacedRun(NamedTuple):
    """A waiting run with everything from the last dispatch but its id and its creation."""

    run: NewRun
    phase: Phase
    blocked_on: str | None
    now: datetime
    is_sooner: bool  # it is due earlier, or in another queue: idle workers may not know

    @property
    def waiting(self) -> WaitingRun:
        run = self.run
        return WaitingRun(
            run.id,
            run.created_at,
            run.due_at,
            self.phase,
            run.queue,
            run.limit_keys,
            self.blocked_on,
        )


def wait_of(run: NewRun) -> WaitingRun:
    """A new run, as the next dispatch of the same transaction replaces it."""
    return WaitingRun(
        run.id, run.created_at, run.due_at, run.phase, run.queue, run.limit_keys, None
    )


def replace_run(old: WaitingRun, new: NewRun) -> ReplacedRun:
    """Replace a waiting run by a new one with the same key.

    A run that is due already keeps its time, and its place in the queue of a limit: its quiet
    period is over, and it waits for a worker. Its expiry counts from now.
    """
    assert new.replaces is not None, new
    now, length = new.created_at, new.replaces.max
    due_at = new.due_at
    if length is not None:
        due_at = max(min(due_at, later(old.created_at, length)), now)
    if old.due_at <= now:
        due_at = old.due_at
    expires_at = new.expires_at
    if expires_at is not None:
        expires_at = later(max(due_at, now), expires_at - new.due_at)
    is_blocked = old.blocked_on is not None and old.limit_keys == new.limit_keys and due_at <= now
    phase = Phase.WAITING if due_at > now else Phase.BLOCKED if is_blocked else Phase.READY
    run = new._replace(id=old.id, created_at=old.created_at, due_at=due_at, expires_at=expires_at)
    return ReplacedRun(
        run,
        phase,
        old.blocked_on if is_blocked else None,
        now,
        is_sooner=due_at < old.due_at or new.queue != old.queue,
    )
