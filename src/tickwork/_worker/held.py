"""What this worker has in its hands: claims that wait, and claims that run."""

from collections.abc import Callable, Iterable
from datetime import datetime
from threading import Lock

from tickwork._domain.identity import RunId
from tickwork._domain.run import Claim


class HeldRun:
    """One claim in our hands. Written by its engine and by the heartbeat, each its own part."""

    __slots__ = (
        "_word",
        "claim",
        "deadline",
        "extended_at",
        "is_canceled",
        "is_lost",
        "is_told",
        "started_at",
        "stop",
    )

    def __init__(self, claim: Claim, extended_at: float) -> None:
        self.claim: Claim = claim
        self.extended_at: float = extended_at  # monotonic, before the request was sent
        self.started_at: datetime | None = None
        self.deadline: float | None = None  # monotonic
        self.is_canceled: bool = False  # somebody asked for it
        self.is_lost: bool = False
        self.is_told: bool = False  # its attempt shall stop, for whatever reason
        self.stop: Callable[[], None] | None = None  # how its engine can end it, if it can
        self._word = [None]

    def has_the_word(self) -> bool:
        """Whether the caller may say what came of it: the first who asks, and nobody after."""
        try:
            self._word.pop()  # atomic, where a look and a change would not be
        except IndexError:
            return False
        return True

    @property
    def is_settled(self) -> bool:
        """Whether somebody has said what came of it."""
        return not self._word

    def tell(self) -> None:
        """Let its attempt know that it shall stop; end it, where its engine can."""
        self.is_told = True
        if self.stop is not None:
            self.stop()


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

    def of(self, claim: Claim) -> HeldRun | None:
        """What is held under this very claim; None when it is not, or no longer."""
        run = self._runs.get(claim.run_id)
        return run if run is not None and run.claim.token == claim.token else None

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

    def revoke(self, run_id: RunId, *, token: int) -> None:
        """Another worker has it, or may have: stop our attempt.

        Only the one under this token. We may have claimed the run anew since somebody looked.
        """
        run = self._runs.get(run_id)
        if run is not None and run.claim.token == token and not run.is_lost:
            run.is_lost = True
            run.tell()

    def cancel(self, run_id: RunId) -> None:
        """Somebody asked that it be stopped."""
        run = self._runs.get(run_id)
        if run is not None and not run.is_canceled:
            run.is_canceled = True
            run.tell()
