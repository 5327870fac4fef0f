"""The options of a worker."""

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final

from tickwork._define.engine_choice import SLOT_OPTIONS
from tickwork._domain.names import check_name
from tickwork._kernel.durations import as_duration
from tickwork.errors import InvalidOption, UnknownOption

SLOTS_MAX: Final = 1_000
COROUTINES_MAX: Final = 10_000
BATCH_MAX: Final = 1_000
"""The most transitions that are written, or runs that are claimed, in one transaction.

Throughput grows with the batch up to about 500 (PostgreSQL: 1,500 runs a second with 1, 30,000
with 100, 50,000 with 500); a longer transaction only holds its locks longer.
"""

_ZERO: Final = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How one worker process works."""

    queues: tuple[str, ...] = ()  # empty: all of them
    threads: int = 10  # functions that run at the same time
    coroutines: int = 100  # coroutines that run at the same time
    children: int = 2  # child processes for jobs with engine="process"
    handovers: int = 500  # runs that wait for a process of a remote engine to accept them
    batch: int = BATCH_MAX
    # How early runs are claimed before they can start.
    ahead: timedelta = timedelta(milliseconds=100)
    poll: timedelta = timedelta(milliseconds=200)  # how often it polls without notifications
    poll_idle: timedelta = timedelta(seconds=2)  # the same after a long time without runs
    drain: timedelta = timedelta(seconds=30)  # how long running attempts may take after a stop
    timeout_grace: timedelta = timedelta(seconds=60)  # how long a thread may ignore its timeout
    # How many outcomes may wait in memory before the worker stops claiming. Each was a claim, so
    # memory holds at most this many outcomes, and the claims that were made before.
    unwritten_max: int = 10_000
    missed_max: int = 0  # late firings in a row after which it stops; 0: it never does
    runs_max: int = 0  # attempts after which it stops, to be replaced; 0: it never does
    memory_max: int = 0  # bytes of memory above which it does; 0: it never does

    def __post_init__(self) -> None:
        for queue in self.queues:
            check_name("queues", queue, forbidden="=")
        for name in SLOT_OPTIONS:
            value = getattr(self, name)
            # A coroutine needs a few kilobytes, a thread or a process much more.
            value_max = COROUTINES_MAX if name == "coroutines" else SLOTS_MAX
            if not 1 <= value <= value_max:
                raise InvalidOption(name, value, f"must be between 1 and {value_max:,}")
        if not 1 <= self.batch <= BATCH_MAX:
            raise InvalidOption("batch", self.batch, f"must be between 1 and {BATCH_MAX:,}")
        if self.unwritten_max < self.batch:
            raise InvalidOption(
                "unwritten_max", self.unwritten_max, f"must be at least batch ({self.batch})"
            )
        for name in ("missed_max", "runs_max", "memory_max"):
            if getattr(self, name) < 0:
                raise InvalidOption(name, getattr(self, name), "must not be negative")
        for name in ("poll", "poll_idle", "timeout_grace"):
            if getattr(self, name) <= _ZERO:
                raise InvalidOption(name, getattr(self, name), "must be longer than 0s")
        for name in ("drain", "ahead"):
            if getattr(self, name) < _ZERO:
                raise InvalidOption(name, getattr(self, name), "must not be negative")


_LENGTHS: Final = frozenset({"ahead", "poll", "poll_idle", "drain", "timeout_grace"})


def worker_options(**options: Any) -> WorkerOptions:
    """Make options from plain values: lengths as seconds or texts, queues as any list.

    >>> worker_options(queues=["emails"], drain="5s").drain
    datetime.timedelta(seconds=5)

    Raises:
        InvalidOption: There is no such option, or its value is invalid.
    """
    known = {field.name for field in fields(WorkerOptions)}
    for unknown in options.keys() - known:
        raise UnknownOption("A worker", unknown, known=known)
    for name in _LENGTHS & options.keys():
        options[name] = as_duration(options[name])
    if "queues" in options:
        queues = options["queues"]
        options["queues"] = (queues,) if isinstance(queues, str) else tuple(queues)
    return WorkerOptions(**options)
