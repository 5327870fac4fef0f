"""How a worker has done: for its last words, and for people who look."""

from collections.abc import Iterable
from datetime import timedelta

from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.transitions import Transition


class Stats:
    """Counts what was recorded. Written by the pumps; a look is never far from the truth."""

    def __init__(self) -> None:
        self.attempts = 0
        self.failures = 0
        self.lateness = timedelta(0)
        self.is_stuck = False

    def add(self, steps: Iterable[Transition]) -> None:
        """Take in what was written."""
        for step in steps:
            if step.started_at is None:
                continue
            self.attempts += 1
            if step.outcome is OutcomeKind.FAILED:
                self.failures += 1
            late = step.started_at - step.claim.due_at
            self.lateness = max(self.lateness, late)
