"""The workload as data: the application defines these jobs, and the checker checks them."""

from dataclasses import asdict, dataclass
from typing import Any, Final

LEASE: Final = 2.0
"""Seconds. Short, so that many leases expire within a minute."""

ANCHOR: Final = 1_767_225_600
"""2026-01-01 in seconds: where the grids of intervals begin."""

GRACE: Final = 1.0
"""Seconds after which an instant counts as missed."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What holds for one job, in addition to what holds for all jobs."""

    name: str
    queue: str = "default"
    attempts_max: int = 1
    crashes_max: int = 1_000
    unique_by: str = ""
    unique_within: float = 0.0  # seconds
    is_ranked: bool = False  # its runs differ in nothing but their priority
    lease: float = LEASE


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """At most ``slots`` runs of these jobs at a time, for each value of the argument ``per``."""

    slots: int
    jobs: tuple[str, ...]
    per: str = ""


@dataclass(frozen=True, slots=True)
class RateFacts:
    """At most ``starts`` starts of a job in any window of ``seconds``."""

    starts: int
    job: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """A grid of instants. Each gives one run, or is part of one row with a reason for the skip."""

    name: str
    job: str
    every: float  # seconds
    anchor: int = 0
    overlap: str = "skip"
    misfire: str = "one"
    tenant: str = ""
    is_steady: bool = (
        True  # False: the two versions define it differently, so instants may be missing
    )


JOBS: Final = (
    JobFacts("plain"),
    JobFacts("slow", attempts_max=50),
    JobFacts("coroutine"),
    JobFacts("loop_stopper", attempts_max=50),
    JobFacts("isolated", attempts_max=50),
    JobFacts("edited"),
    JobFacts("flaky", attempts_max=4),
    JobFacts("snoozer", attempts_max=50),
    JobFacts("fragile", crashes_max=3),
    JobFacts("ranked", queue="ranked", is_ranked=True),
    JobFacts("narrow"),
    JobFacts("lane_a", queue="lane"),
    JobFacts("lane_b", queue="lane", attempts_max=4),
    JobFacts("account"),
    JobFacts("metered"),
    JobFacts("single", unique_by="key"),
    JobFacts("windowed", unique_by="key", unique_within=2.0),
    JobFacts("charge", attempts_max=30),
    JobFacts("second"),
    JobFacts("even"),
    JobFacts("third"),
    JobFacts("caught_up"),
    JobFacts("dropped"),
    JobFacts("queued_one"),
    JobFacts("replaced"),
    JobFacts("tempo"),
    JobFacts("tenants"),
    JobFacts("novel"),
)

LIMITS: Final = (
    LimitFacts(2, ("narrow",)),
    LimitFacts(3, ("lane_a", "lane_b")),
    LimitFacts(1, ("account",), per="account"),
    LimitFacts(4, ("account",)),
)

RATES: Final = (RateFacts(3, "metered", 1.0),)

SCHEDULES: Final = (
    ScheduleFacts("second", "second", 1, overlap="allow"),
    ScheduleFacts("even", "even", 2),
    ScheduleFacts("third", "third", 3, ANCHOR, overlap="queue_all"),
    ScheduleFacts("caught_up", "caught_up", 1, ANCHOR, overlap="allow", misfire="all"),
    ScheduleFacts("dropped", "dropped", 1, overlap="allow", misfire="skip"),
    ScheduleFacts("queued_one", "queued_one", 1, overlap="queue_one"),
    ScheduleFacts("replaced", "replaced", 4, overlap="cancel_running"),
    ScheduleFacts("tempo", "tempo", 1, overlap="allow", is_steady=False),
    ScheduleFacts("tenants", "tenants", 2, ANCHOR, overlap="allow", tenant="acme"),
    ScheduleFacts("novel", "novel", 2, overlap="allow"),
)


def manifest() -> dict[str, Any]:
    """Return the whole workload for the manifest file."""
    return {
        "jobs": [asdict(job) for job in JOBS],
        "limits": [asdict(limit) for limit in LIMITS],
        "rates": [asdict(rate) | {"lease": LEASE} for rate in RATES],
        "schedules": [asdict(schedule) for schedule in SCHEDULES],
    }
