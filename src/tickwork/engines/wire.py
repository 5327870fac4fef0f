"""What a worker and its child processes say to each other, over a pipe of their own.

Both ends are the same program on the same machine, so values travel as they are.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from tickwork._domain.outcome import Outcome
from tickwork._domain.run import Claim


class Here:
    """What this process is."""

    is_child = False  # of a worker: it makes attempts, and starts no worker itself


class Origin(NamedTuple):
    """Where an application can be found: a module, or the file of a program."""

    module: str  # empty: it is in a file
    attribute: str
    file: str
    path: tuple[str, ...]  # where modules are looked for


class Load(NamedTuple):
    """To the child, first: load the application."""

    origin: Origin


class Loaded(NamedTuple):
    """From the child: whether that went well; the error if it did not."""

    error: str = ""


class Order(NamedTuple):
    """To the child: make this attempt."""

    claim: Claim
    timeout: timedelta | None
    deadline: datetime | None
    now: datetime  # the database's time
    monotonic: float  # at this moment of the machine's clock


class Line(NamedTuple):
    """From the child: something was logged."""

    at: datetime
    level: str
    logger: str
    message: str


class Answer(NamedTuple):
    """From the child: what came of it."""

    outcome: Outcome
    has_seen_cancel: bool
    is_completed: bool = False  # in a transaction of the handler's own


Message = Load | Loaded | Order | Line | Answer
