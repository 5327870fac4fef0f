"""How a worker has done: for its last words, and for people who look."""

from collections.abc import Iterable
from datetime import timedelta
from threading import Lock

from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.transitions import Transition


class Stats:
    """Counts what was recorded. Written by several threads, a batch at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.attempts: int = 0
        self.failures: int = 0
        self.lateness: timedelta = timedelta(0)
        self.is_stuck = False

    def add(self, steps: Iterable[Transition]) -> None:
        """Take in what was written."""
        made = [step for step in steps if step.started_at is not None]
        failures = sum(step.outcome is OutcomeKind.FAILED for step in made)
        late = [step.started_at - step.claim.due_at for step in made if step.started_at is not None]
        with self._lock:
            self.attempts += len(made)
            self.failures += failures
            self.lateness = max([self.lateness, *late])
