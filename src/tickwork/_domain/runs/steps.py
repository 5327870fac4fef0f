"""Steps: the named values that a run stores, so that its later attempts do not repeat the work."""

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

NAME_MAX: Final = 200
"""The longest name of a step, in characters."""

STEPS_MAX: Final = 1_000
"""The most steps of one run: all of them are read when it resumes."""


class StepKind(StrEnum):
    STEP = "step"  # the value of a function
    SLEEP = "sleep"
    WAIT = "wait"  # for an event


class StepState(StrEnum):
    OPEN = "open"  # the run waits for it, or has waited
    DONE = "done"
    FAILED = "failed"  # the function raised, and the handler continued
    TIMEOUT = "timeout"  # the event did not come in time


class Step(NamedTuple):
    """One step of a run, as it is stored.

    ``place`` is its number among the steps of the run, ``token`` is that of the attempt that stored
    it. ``value`` is JSON text: the value of the function, or what it raised.
    """

    name: str
    place: int
    kind: StepKind
    state: StepState
    token: int
    at: datetime
    until: datetime | None = None  # of a sleep: when it ends
    value: str | None = None
    is_secret: bool = False  # views do not show the value
    version: str = ""  # of the application that stored it, for people

    def is_over(self, now: datetime) -> bool:
        """Whether the run need not wait for it any more."""
        return self.state is not StepState.OPEN or (self.until is not None and self.until <= now)
