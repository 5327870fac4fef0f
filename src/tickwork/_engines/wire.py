"""The messages between a worker and its child processes, which travel over a pipe.

Both ends are the same program on the same machine, so values are pickled.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import Outcome
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._kernel.import_location import ImportLocation


class ProcessRole:
    """What this process is."""

    is_child = False  # a child of a worker: it makes attempts, and must not start a worker


class AppLocation(NamedTuple):
    """Where an application can be loaded from: a module, the file of a program, or configuration.

    ``config_files`` are read, too. Without a module and a file, the first one is the application.
    """

    module: str  # empty: it is in a file
    attribute: str
    file: str
    path: tuple[str, ...]  # sys.path
    config_files: tuple[str, ...] = ()


class ChildReady(NamedTuple):
    """From the child, first: its interpreter has started."""


class LoadRequest(NamedTuple):
    """To the child, first: restore these limits, and import the application."""

    location: AppLocation
    recursion_limit: int
    files_max: int  # open files


class LoadReply(NamedTuple):
    """From the child: empty when the import succeeded.

    ``is_limited`` means that the limits could not be restored, so that the import may have failed
    for that reason.
    """

    error: str = ""
    is_limited: bool = False


class AttemptRequest(NamedTuple):
    """To the child: make this attempt."""

    claim: Claim
    timeout: timedelta | None
    deadline: datetime | None
    now: datetime  # the database's time
    monotonic: float  # the machine's monotonic clock at that time
    modules: tuple[ImportLocation, ...] = ()  # which define the job


class LogMessage(NamedTuple):
    """From the child: the handler logged something."""

    run_id: RunId
    token: int
    at: datetime
    level: str
    logger: str
    message: str


class AttemptDecision(NamedTuple):
    """From the child, before it calls hooks: how the attempt ended.

    From the parent: how it is recorded; without an outcome, as the child proposed.
    """

    run_id: RunId
    token: int
    outcome: Outcome | None
    has_seen_cancel: bool = False
    is_completed: bool = False
    follow_ups: tuple[NewRun, ...] = ()
    saved_steps: int = 0


class AttemptReply(NamedTuple):
    """From the child: the outcome of the attempt.

    ``run_id`` and ``token`` are those of the request: the parent rejects any other reply.
    """

    run_id: RunId
    token: int
    outcome: Outcome
    has_seen_cancel: bool
    is_completed: bool = False  # the handler completed the run in its own transaction
    follow_ups: tuple[NewRun, ...] = ()  # runs to add with its success
    saved_steps: int = 0  # how many steps it has stored
