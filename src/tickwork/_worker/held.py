"""What this worker has in its hands: claims that wait, and claims that run."""

from collections.abc import Callable, Iterable
from datetime import datetime
from threading import Lock

from tickwork._domain.identity import RunId
from tickwork._domain.run import Claim
from tickwork.stores.contract import Held


class HeldRun:
    """One claim in our hands. Written by its engine and by the heartbeat, each its own part."""

    __slots__ = ("claim", "deadline", "extended_at", "is_canceled", "is_lost", "started_at", "stop")

    def __init__(self, claim: Claim, extended_at: float) -> None:
        self.claim = claim
        self.extended_at = extended_at  # monotonic, before the request was sent
        self.started_at: datetime | None = None
        self.deadline: float | None = None  # monotonic
        self.is_canceled: bool = False
        self.is_lost: bool = False
        self.stop: Callable[[], None] | None = None  # how its engine can end it, if it can


class HeldRuns:
    """All of them, by run. Single look-ups and removals are atomic; the rest takes the lock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: dict[RunId, HeldRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, claims: Iterable[Claim], *, extended_at: float) -> None:
        """Take these into our hands."""
        with self._lock:
            for claim in claims:
                self._runs[claim.run_id] = HeldRun(claim, extended_at)

    def get(self, run_id: RunId) -> HeldRun | None:
        """One of them; None when it is no longer ours."""
        return self._runs.get(run_id)

    def drop(self, run_id: RunId) -> HeldRun | None:
        """Let go of one."""
        return self._runs.pop(run_id, None)

    def drop_all(self, claims: Iterable[Claim]) -> None:
        """Let go of those of these that were not claimed anew meanwhile."""
        with self._lock:
            for claim in claims:
                run = self._runs.get(claim.run_id)
                if run is not None and run.claim.token == claim.token:
                    del self._runs[claim.run_id]

    def snapshot(self) -> list[HeldRun]:
        """All of them, at this moment."""
        with self._lock:
            return list(self._runs.values())

    def held(self) -> list[Held]:
        """The same for a heartbeat."""
        return [
            Held(run.claim.run_id, run.claim.token, run.started_at)
            for run in self.snapshot()
            if not run.is_lost
        ]

    def extended(self, *, at: float) -> None:
        """Note that a heartbeat that was sent at this moment has landed."""
        for run in self.snapshot():
            run.extended_at = max(run.extended_at, at)

    def revoke(self, run_id: RunId) -> None:
        """Another worker has it, or may have: stop our attempt."""
        run = self._runs.get(run_id)
        if run is not None and not run.is_lost:
            run.is_lost = run.is_canceled = True
            if run.stop is not None:
                run.stop()

    def cancel(self, run_id: RunId) -> None:
        """Somebody asked that it be stopped."""
        run = self._runs.get(run_id)
        if run is not None and not run.is_canceled:
            run.is_canceled = True
            if run.stop is not None:
                run.stop()
