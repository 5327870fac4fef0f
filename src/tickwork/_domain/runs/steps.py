"""Steps: the named values that a run stores, so that its later attempts do not repeat the work."""

import json
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NewRun

NAME_MAX: Final = 200
"""The longest name of a step, in characters."""

STEPS_MAX: Final = 1_000
"""The most steps of one run: all of them are read when it resumes."""


class StepKind(StrEnum):
    STEP = "step"  # the value of a function
    SLEEP = "sleep"
    WAIT = "wait"  # for an event
    CALL = "call"  # of another run


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
    ref: RunId | None = None  # of a call: the run that was called
    digest: str = ""  # of a call: of the job and its arguments

    def is_over(self, now: datetime) -> bool:
        """Whether the run need not wait for it any more."""
        return self.state is not StepState.OPEN or (self.until is not None and self.until <= now)


class SubRun(NamedTuple):
    """A run that a step calls: added in the transaction that suspends the caller."""

    step: Step
    run: NewRun


def describe_end(job: str, status: str, reason: str) -> str:
    """The value of a call whose run did not complete, as JSON text."""
    return json.dumps({"job": job, "status": status, "reason": reason}, separators=(",", ":"))
