"""Health checks: the thresholds, and what each check reports."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tickwork._domain.shared_names import SharedJob
from tickwork._kernel.durations import human_duration
from tickwork._kernel.plain_text import count_of
from tickwork._program import name_commands

SKEW_WARN: Final = timedelta(seconds=1)
"""tickwork uses the clock of the database, but people compare logs with their own clock."""

SLOW: Final = timedelta(milliseconds=200)
LATE_WARN: Final = timedelta(seconds=30)
LATE_BAD: Final = timedelta(minutes=10)
OVERDUE: Final = timedelta(seconds=15)
"""A worker fires schedules and reaps leases within one or two seconds."""

OUTBOX_WARN: Final = timedelta(seconds=60)
"""A worker wakes the runs that wait for an event within a second after its commit."""

FAILURES_WARN: Final = 3
FAULTS_SHOWN: Final = 3
OPEN_WARN: Final = timedelta(minutes=10)
OPEN_BAD: Final = timedelta(hours=1)
"""The database cannot remove rows that were deleted after this transaction started."""

DEAD_WARN: Final = 200_000
LOG_WARN: Final = 256 * 1024 * 1024
FREE_WARN: Final = 256 * 1024 * 1024


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    BAD = "bad"


class WorkerState(StrEnum):
    """How the worker of a process is."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STUCK = "stuck"  # a new process is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwrittenOutcomes:
    """Outcomes that a worker keeps in memory until the database can store them."""

    number: int
    reason: str
    waited: timedelta
    is_store_ill: bool  # otherwise it stores other outcomes

    @property
    def summary(self) -> str:
        """The text for probes, which have no token: without the reason, which may name hosts."""
        waited = human_duration(self.waited)
        return f"{count_of(self.number, 'outcome')} not written for {waited}"

    def __str__(self) -> str:
        return f"{self.summary}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one health check."""

    name: str
    level: Level
    text: str
    fix: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fix", name_commands(self.fix))


def ok(name: str, text: str) -> Check:
    return Check(name, Level.OK, text)


def warn(name: str, text: str, fix: str) -> Check:
    return Check(name, Level.WARN, text, fix)


def bad(name: str, text: str, fix: str) -> Check:
    return Check(name, Level.BAD, text, fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """The measurements, all at one time of the database."""

    now: datetime
    round_trip: timedelta
    skew: timedelta  # how far this machine's clock is ahead of the database
    up: int  # running workers
    silent: Sequence[str] = ()  # workers without heartbeats, by host and pid
    stuck: Sequence[str] = ()  # workers of which a part cannot work, each with the reason
    unwritten: Sequence[str] = ()  # workers that could not write outcomes, each with the reason
    versions: Collection[str] = ()
    version: str = ""
    zones: Collection[str] = ()  # releases of time zone data on the workers
    zones_here: str = ""
    expired: Sequence[str] = ()  # runs with an expired lease
    oldest_ready_at: datetime | None = None
    ready: int = 0
    blocked: int = 0
    is_capped: bool = False  # there are more ready runs than were counted
    unstaged_at: datetime | None = None  # when the first waiting run fell due
    outbox_at: datetime | None = None  # when the oldest event was emitted that woke no run yet
    unknown_jobs: Sequence[str] = ()  # jobs with waiting runs that no worker knows
    shared_jobs: Sequence[SharedJob] = ()  # that several programs define
    unfired_at: datetime | None = None  # when the first schedule fell due
    ahead: Sequence[str] = ()  # schedules that fired for a time that is still to come
    ahead_until: datetime | None = None  # when the last of them can fire again
    retired: Sequence[str] = ()
    unreadable: Sequence[str] = ()
    faults: Sequence[str] = ()  # rows that cannot be read, each with the reason
    missed: Sequence[str] = ()  # schedules that did not complete in time, with the firing
    failing: Sequence[tuple[str, int]] = field(default=())  # jobs, and their failures in a row
    size: int = 0  # bytes of the database
    free: int = 0  # unused bytes of them
    log: int = 0  # bytes of the write-ahead log that are not checkpointed
    dead_rows: int = 0
    open_since: datetime | None = None  # when the oldest transaction began
    open_holder: str = ""  # its session
    open_query: str = ""  # its last statement
    open_ending: str = ""  # the statement that ends it


def is_overdue(due_at: datetime, now: datetime) -> bool:
    """Whether a schedule should have fired by now."""
    return now - due_at > OVERDUE


def fails_repeatedly(failures: int) -> bool:
    """Whether a job with so many failures in a row needs attention."""
    return failures >= FAILURES_WARN


def examine(facts: HealthFacts, *, log_max: int = LOG_WARN) -> list[Check]:
    """Judge the measurements. Above ``log_max`` bytes, a write-ahead log is a warning."""
    return [
        _connection(facts),
        _clock(facts),
        _zones(facts),
        _workers(facts),
        _leases(facts),
        _outcomes(facts),
        _backlog(facts),
        _events(facts),
        _unknown(facts),
        _definitions(facts),
        _schedules(facts),
        _expectations(facts),
        _rows(facts),
        _jobs(facts),
        _tables(facts, log_max),
    ]


def _connection(facts: HealthFacts) -> Check:
    taken = human_duration(facts.round_trip)
    if facts.round_trip > SLOW:
        return warn(
            "connection",
            f"The database answers in {taken}: every claim waits that long.",
            "Run the workers closer to the database, or check its load.",
        )
    return ok("connection", f"The database answers in {taken}.")


def _clock(facts: HealthFacts) -> Check:
    if facts.ahead and facts.ahead_until is not None:
        verb = "has" if len(facts.ahead) == 1 else "have"
        return warn(
            "clock",
            f"The clock was set back: {count_of(len(facts.ahead), 'schedule')} {verb} fired "
            f"for a time that is still to come, and the next firing is up to "
            f"{human_duration(facts.ahead_until - facts.now)} away: {', '.join(facts.ahead[:5])}.",
            "Each instant fires once, so they wait until the clock gets there again. If it was "
            "set back by mistake, set it right.",
        )
    off = human_duration(abs(facts.skew))
    side = "ahead of" if facts.skew > timedelta(0) else "behind"
    if abs(facts.skew) > SKEW_WARN:
        return warn(
            "clock",
            f"The clock of this machine is {off} {side} the clock of the database.",
            "tickwork uses the clock of the database. Synchronize both with NTP.",
        )
    return ok("clock", "The clocks of this machine and of the database agree.")


def _zones(facts: HealthFacts) -> Check:
    releases = sorted({*facts.zones, facts.zones_here} - {""})
    if len(releases) > 1:
        return warn(
            "time zones",
            f"Machines have different releases of time zone data: {', '.join(releases)}.",
            "Install the same release everywhere, or schedules may differ when clocks change.",
        )
    return ok(
        "time zones",
        f"The release of the time zone data is {releases[0] if releases else 'unknown'}.",
    )


def _workers(facts: HealthFacts) -> Check:
    if facts.stuck:
        return bad(
            "workers",
            f"{count_of(len(facts.stuck), 'worker')} cannot work any more, and will exit: "
            f"{'; '.join(facts.stuck[:3])}",
            "A supervisor starts another process. Without one, start a worker.",
        )
    if facts.silent:
        return Check(
            "workers",
            Level.WARN if facts.up else Level.BAD,
            f"{count_of(facts.up, 'worker')} running; no heartbeat from "
            f"{count_of(len(facts.silent), 'worker')}: {', '.join(facts.silent[:5])}.",
            "If they have died, other workers take over their runs when the leases expire.",
        )
    if not facts.up:
        return bad("workers", "No worker is running.", "Start one: tickwork work")
    others = sorted(set(facts.versions) - {facts.version})
    if others:
        return warn(
            "workers",
            f"{count_of(facts.up, 'worker')} running, some with version {', '.join(others)}; "
            f"this is version {facts.version}.",
            "Finish the deploy.",
        )
    return ok("workers", f"{count_of(facts.up, 'worker')} running.")


def _leases(facts: HealthFacts) -> Check:
    if not facts.expired:
        return ok("leases", "No lease has expired.")
    return bad(
        "leases",
        f"{count_of(len(facts.expired), 'lease')} expired, and no worker has taken over: "
        f"{', '.join(facts.expired[:3])}.",
        "A running worker takes over within seconds. Start one, or read its log.",
    )


def _outcomes(facts: HealthFacts) -> Check:
    if not facts.unwritten:
        return ok("outcomes", "No worker waits to write outcomes.")
    return bad(
        "outcomes",
        f"Workers keep outcomes in memory: {'; '.join(facts.unwritten[:3])}",
        "Remove the cause. Do not stop these workers: their attempts would be repeated.",
    )


def _backlog(facts: HealthFacts) -> Check:
    waits = [facts.now - at for at in (facts.oldest_ready_at, facts.unstaged_at) if at is not None]
    longest = max(waits, default=timedelta(0))
    tail = f" ({facts.blocked} blocked by limits)" if facts.blocked else ""
    ready = f"{facts.ready:,} or more runs" if facts.is_capped else count_of(facts.ready, "run")
    if longest <= LATE_WARN:
        return ok("backlog", f"{ready} ready{tail}.")
    return Check(
        "backlog",
        Level.BAD if longest > LATE_BAD else Level.WARN,
        f"{ready} ready{tail}; the oldest has waited for {human_duration(longest)}.",
        "`tickwork explain RUN` shows why. Raise --slots or --processes, or start workers.",
    )


def _events(facts: HealthFacts) -> Check:
    age = timedelta(0) if facts.outbox_at is None else facts.now - facts.outbox_at
    if age <= OUTBOX_WARN:
        return ok("events", "No event waits to be delivered.")
    return warn(
        "events",
        f"An event was emitted {human_duration(age)} ago, and the runs that wait for it were not "
        "woken. A worker does that within a second after the commit of the emit.",
        "Start a worker: tickwork work. If one is running, its log says why it cannot, or another "
        "transaction has locked the runs: end it.",
    )


def examine_worker(*, running: Sequence[int], silent: Sequence[int]) -> Check:
    """Judge the workers of one machine by their pids: a liveness probe."""
    if silent:
        return bad(
            "worker",
            f"There is no heartbeat from {count_of(len(silent), 'worker')} on this "
            f"machine: {_listed(silent)}.",
            "Restart it. Its log says why it does not report.",
        )
    if not running:
        return bad("worker", "No worker is running on this machine.", "Start one: tickwork work")
    return ok("worker", f"Running: {_listed(running)}.")


def _listed(pids: Sequence[int]) -> str:
    return ", ".join(f"process {pid}" for pid in pids[:5])


def _unknown(facts: HealthFacts) -> Check:
    if not facts.up:
        return warn(
            "known jobs",
            "No worker is running, so none knows the jobs of waiting runs.",
            "Start one: tickwork work",
        )
    if not facts.unknown_jobs:
        return ok("known jobs", "A worker knows the job of every waiting run.")
    return warn(
        "known jobs",
        f"Runs are waiting for jobs that no worker knows: {', '.join(facts.unknown_jobs[:5])}.",
        "Start a worker of the program that defines them.",
    )


def _definitions(facts: HealthFacts) -> Check:
    if not facts.shared_jobs:
        return ok("definitions", "No two programs define a job of the same name.")
    return warn(
        "definitions",
        f"Several programs define these jobs: {'; '.join(map(str, facts.shared_jobs[:5]))}. Each "
        "may execute the runs of the other.",
        "Rename one of them. If they are one program, give it one name: Tickwork(name=...).",
    )


def _schedules(facts: HealthFacts) -> Check:
    if facts.unfired_at is not None and is_overdue(facts.unfired_at, facts.now):
        late = human_duration(facts.now - facts.unfired_at)
        return bad(
            "schedules",
            f"A schedule fell due {late} ago, and no worker has fired it.",
            "Start a worker that knows its job. `tickwork explain SCHEDULE` shows details.",
        )
    if facts.unreadable:
        return warn(
            "schedules",
            f"This version cannot read the rules of {', '.join(facts.unreadable[:5])}.",
            "Upgrade this program.",
        )
    if facts.retired:
        return warn(
            "schedules",
            f"No program defines these schedules any more: {', '.join(facts.retired[:5])}.",
            "They do not fire. `tickwork prune` removes them.",
        )
    return ok("schedules", "No schedule is overdue.")


def _expectations(facts: HealthFacts) -> Check:
    if not facts.missed:
        return ok("expectations", "Every expected firing has completed.")
    return bad(
        "expectations",
        f"These schedules did not complete in time: {'; '.join(facts.missed[:5])}.",
        "`tickwork explain SCHEDULE` shows why.",
    )


def _rows(facts: HealthFacts) -> Check:
    if not facts.faults:
        return ok("rows", "All rows can be read.")
    shown = "; ".join(facts.faults[:FAULTS_SHOWN])
    more = len(facts.faults) - FAULTS_SHOWN
    return warn(
        "rows",
        shown + (f"; and {more:,} more." if more > 0 else "."),
        "Another program changed these rows, and tickwork does not use them. Correct or "
        "delete them.",
    )


def _jobs(facts: HealthFacts) -> Check:
    failing = [(name, times) for name, times in facts.failing if fails_repeatedly(times)]
    if not failing:
        return ok("jobs", "No job fails repeatedly.")
    shown = ", ".join(f"{name} ({times} in a row)" for name, times in failing[:5])
    return warn(
        "jobs",
        f"These jobs fail repeatedly: {shown}.",
        f"tickwork runs --job {failing[0][0]} --status failed_permanent",
    )


def _tables(facts: HealthFacts, log_max: int) -> Check:
    opened = timedelta(0) if facts.open_since is None else facts.now - facts.open_since
    if opened > OPEN_WARN:
        text = (
            f"A transaction has been open for {human_duration(opened)}, so the database "
            f"cannot remove {count_of(facts.dead_rows, 'dead row')}."
        )
        if facts.open_holder:
            statement = f"; its last statement: {facts.open_query}" if facts.open_query else ""
            text = f"{text} It is {facts.open_holder}{statement}"
        ending = f": {facts.open_ending};" if facts.open_ending else "."
        return Check(
            "tables",
            Level.BAD if opened > OPEN_BAD else Level.WARN,
            text,
            f"End it{ending} Until then the tables grow. Dumps and reports are better made on a "
            "standby.",
        )
    if facts.dead_rows > DEAD_WARN:
        return warn(
            "tables",
            f"{count_of(facts.dead_rows, 'dead row')} not removed yet.",
            "Check that autovacuum is on, or run VACUUM.",
        )
    if facts.log > log_max:
        return warn(
            "tables",
            f"The write-ahead log has grown to {_megabytes(facts.log)}.",
            "A program keeps a read transaction open: end it.",
        )
    if facts.free > FREE_WARN and facts.free * 2 > facts.size:
        return warn(
            "tables",
            f"{_megabytes(facts.free)} of {_megabytes(facts.size)} are unused.",
            "The database reuses them. VACUUM returns them to the disk.",
        )
    return ok("tables", f"The tables use {_megabytes(facts.size)}.")


def _megabytes(count: int) -> str:
    return f"{count / 1024 / 1024:,.1f} MB"
