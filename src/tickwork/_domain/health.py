"""Health checks: the thresholds, and what each check reports."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tickwork._kernel.durations import human_duration
from tickwork._kernel.plurals import count_of

SKEW_WARN: Final = timedelta(seconds=1)
"""tickwork uses the clock of the database, but people compare logs with their own clock."""

SLOW: Final = timedelta(milliseconds=200)
LATE_WARN: Final = timedelta(seconds=30)
LATE_BAD: Final = timedelta(minutes=10)
OVERDUE: Final = timedelta(seconds=15)
"""A worker fires schedules and reaps leases within one or two seconds."""

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
class Check:
    """The result of one health check."""

    name: str
    level: Level
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """The measurements, all at one time of the database."""

    now: datetime
    round_trip: timedelta
    skew: timedelta  # how far this machine's clock is ahead of the database
    up: int  # running workers
    silent: Sequence[str] = ()  # workers without heartbeats, by host and pid
    versions: Collection[str] = ()
    version: str = ""
    zones: Collection[str] = ()  # releases of time zone data on the workers
    zones_here: str = ""
    expired: Sequence[str] = ()  # runs with an expired lease
    oldest_ready_at: datetime | None = None
    ready: int = 0
    blocked: int = 0
    cap: int = 0  # the largest count that is reported
    unstaged_at: datetime | None = None  # when the first waiting run fell due
    unknown_jobs: Sequence[str] = ()  # jobs with waiting runs that no worker knows
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


def examine(facts: HealthFacts, *, log_max: int = LOG_WARN) -> list[Check]:
    """Judge the measurements. Above ``log_max`` bytes, a write-ahead log is a warning."""
    return [
        _connection(facts),
        _clock(facts),
        _zones(facts),
        _workers(facts),
        _leases(facts),
        _backlog(facts),
        _unknown(facts),
        _schedules(facts),
        _expectations(facts),
        _rows(facts),
        _jobs(facts),
        _tables(facts, log_max),
    ]


def _connection(facts: HealthFacts) -> Check:
    taken = human_duration(facts.round_trip)
    if facts.round_trip > SLOW:
        return Check(
            name="connection",
            level=Level.WARN,
            text=f"The database answers in {taken}: every claim waits that long.",
            fix="Run the workers closer to the database, or check its load.",
        )
    return Check(name="connection", level=Level.OK, text=f"The database answers in {taken}.")


def _clock(facts: HealthFacts) -> Check:
    if facts.ahead and facts.ahead_until is not None:
        verb = "has" if len(facts.ahead) == 1 else "have"
        return Check(
            name="clock",
            level=Level.WARN,
            text=f"The clock was set back: {count_of(len(facts.ahead), 'schedule')} {verb} fired "
            f"for a time that is still to come, and the next firing is up to "
            f"{human_duration(facts.ahead_until - facts.now)} away: {', '.join(facts.ahead[:5])}.",
            fix="Each instant fires once, so they wait until the clock gets there again. If it was "
            "set back by mistake, set it right.",
        )
    off = human_duration(abs(facts.skew))
    side = "ahead of" if facts.skew > timedelta(0) else "behind"
    if abs(facts.skew) > SKEW_WARN:
        return Check(
            name="clock",
            level=Level.WARN,
            text=f"The clock of this machine is {off} {side} the clock of the database.",
            fix="tickwork uses the clock of the database. Synchronize both with NTP.",
        )
    return Check(
        name="clock", level=Level.OK, text="The clocks of this machine and of the database agree."
    )


def _zones(facts: HealthFacts) -> Check:
    found = sorted({*facts.zones, facts.zones_here} - {""})
    if len(found) > 1:
        return Check(
            name="time zones",
            level=Level.WARN,
            text=f"Machines have different releases of time zone data: {', '.join(found)}.",
            fix="Install the same release everywhere, or schedules may differ when clocks change.",
        )
    return Check(
        name="time zones",
        level=Level.OK,
        text=f"The release of the time zone data is {found[0] if found else 'unknown'}.",
    )


def _workers(facts: HealthFacts) -> Check:
    if facts.silent:
        return Check(
            name="workers",
            level=Level.WARN if facts.up else Level.BAD,
            text=f"{count_of(facts.up, 'worker')} running; no heartbeat from "
            f"{count_of(len(facts.silent), 'worker')}: {', '.join(facts.silent[:5])}.",
            fix="If they have died, other workers take over their runs when the leases expire.",
        )
    if not facts.up:
        return Check(
            name="workers",
            level=Level.BAD,
            text="No worker is running.",
            fix="Start one: tickwork work",
        )
    others = sorted(set(facts.versions) - {facts.version})
    if others:
        return Check(
            name="workers",
            level=Level.WARN,
            text=f"{count_of(facts.up, 'worker')} running, some with version {', '.join(others)}; "
            f"this is version {facts.version}.",
            fix="Finish the deploy.",
        )
    return Check(name="workers", level=Level.OK, text=f"{count_of(facts.up, 'worker')} running.")


def _leases(facts: HealthFacts) -> Check:
    if not facts.expired:
        return Check(name="leases", level=Level.OK, text="No lease has expired.")
    return Check(
        name="leases",
        level=Level.BAD,
        text=f"{count_of(len(facts.expired), 'lease')} expired, and no worker has taken over: "
        f"{', '.join(facts.expired[:3])}.",
        fix="A running worker takes over within seconds. Start one, or read its log.",
    )


def _backlog(facts: HealthFacts) -> Check:
    waits = [facts.now - at for at in (facts.oldest_ready_at, facts.unstaged_at) if at is not None]
    longest = max(waits, default=timedelta(0))
    tail = f" ({facts.blocked} blocked by limits)" if facts.blocked else ""
    is_capped = bool(facts.cap) and facts.ready >= facts.cap
    ready = f"{facts.ready:,} or more runs" if is_capped else count_of(facts.ready, "run")
    if longest <= LATE_WARN:
        return Check(name="backlog", level=Level.OK, text=f"{ready} ready{tail}.")
    return Check(
        name="backlog",
        level=Level.BAD if longest > LATE_BAD else Level.WARN,
        text=f"{ready} ready{tail}; the oldest has waited for {human_duration(longest)}.",
        fix="`tickwork explain RUN` shows why. Raise --slots or --processes, or start workers.",
    )


def examine_worker(*, running: Sequence[int], silent: Sequence[int]) -> Check:
    """Judge the workers of one machine by their pids: a liveness probe."""
    if silent:
        return Check(
            name="worker",
            level=Level.BAD,
            text=f"There is no heartbeat from {count_of(len(silent), 'worker')} on this "
            f"machine: {_listed(silent)}.",
            fix="Restart it. Its log says why it does not report.",
        )
    if not running:
        return Check(
            name="worker",
            level=Level.BAD,
            text="No worker is running on this machine.",
            fix="Start one: tickwork work",
        )
    return Check(name="worker", level=Level.OK, text=f"Running: {_listed(running)}.")


def _listed(pids: Sequence[int]) -> str:
    return ", ".join(f"process {pid}" for pid in pids[:5])


def _unknown(facts: HealthFacts) -> Check:
    if not facts.up:
        return Check(
            name="known jobs",
            level=Level.WARN,
            text="No worker is running, so none knows the jobs of waiting runs.",
            fix="Start one: tickwork work",
        )
    if not facts.unknown_jobs:
        return Check(
            name="known jobs", level=Level.OK, text="A worker knows the job of every waiting run."
        )
    return Check(
        name="known jobs",
        level=Level.WARN,
        text=f"Runs are waiting for jobs that no worker knows: "
        f"{', '.join(facts.unknown_jobs[:5])}.",
        fix="Start a worker of the program that defines them.",
    )


def _schedules(facts: HealthFacts) -> Check:
    late = timedelta(0) if facts.unfired_at is None else facts.now - facts.unfired_at
    if late > OVERDUE:
        return Check(
            name="schedules",
            level=Level.BAD,
            text=f"A schedule fell due {human_duration(late)} ago, and no worker has fired it.",
            fix="Start a worker that knows its job. `tickwork explain SCHEDULE` shows details.",
        )
    if facts.unreadable:
        return Check(
            name="schedules",
            level=Level.WARN,
            text=f"This version cannot read the rules of {', '.join(facts.unreadable[:5])}.",
            fix="Upgrade this program.",
        )
    if facts.retired:
        return Check(
            name="schedules",
            level=Level.WARN,
            text=f"No program defines these schedules any more: {', '.join(facts.retired[:5])}.",
            fix="They do not fire. `tickwork prune` removes them.",
        )
    return Check(name="schedules", level=Level.OK, text="No schedule is overdue.")


def _expectations(facts: HealthFacts) -> Check:
    if not facts.missed:
        return Check(
            name="expectations", level=Level.OK, text="Every expected firing has completed."
        )
    return Check(
        name="expectations",
        level=Level.BAD,
        text=f"These schedules did not complete in time: {'; '.join(facts.missed[:5])}.",
        fix="`tickwork explain SCHEDULE` shows why.",
    )


def _rows(facts: HealthFacts) -> Check:
    if not facts.faults:
        return Check(name="rows", level=Level.OK, text="All rows can be read.")
    shown = "; ".join(facts.faults[:FAULTS_SHOWN])
    more = len(facts.faults) - FAULTS_SHOWN
    return Check(
        name="rows",
        level=Level.WARN,
        text=shown + (f"; and {more:,} more." if more > 0 else "."),
        fix="Another program changed these rows, and tickwork does not use them. Correct or "
        "delete them.",
    )


def _jobs(facts: HealthFacts) -> Check:
    failing = [(name, times) for name, times in facts.failing if times >= FAILURES_WARN]
    if not failing:
        return Check(name="jobs", level=Level.OK, text="No job fails repeatedly.")
    shown = ", ".join(f"{name} ({times} in a row)" for name, times in failing[:5])
    return Check(
        name="jobs",
        level=Level.WARN,
        text=f"These jobs fail repeatedly: {shown}.",
        fix=f"tickwork runs --job {failing[0][0]} --status failed_permanent",
    )


def _tables(facts: HealthFacts, log_max: int) -> Check:
    opened = timedelta(0) if facts.open_since is None else facts.now - facts.open_since
    if opened > OPEN_WARN:
        return Check(
            name="tables",
            level=Level.BAD if opened > OPEN_BAD else Level.WARN,
            text=f"A transaction has been open for {human_duration(opened)}, so the database "
            f"cannot remove {count_of(facts.dead_rows, 'dead row')}.",
            fix="End it: PostgreSQL lists it in pg_stat_activity, MariaDB in its process list.",
        )
    if facts.dead_rows > DEAD_WARN:
        return Check(
            name="tables",
            level=Level.WARN,
            text=f"{count_of(facts.dead_rows, 'dead row')} not removed yet.",
            fix="Check that autovacuum is on, or run VACUUM.",
        )
    if facts.log > log_max:
        return Check(
            name="tables",
            level=Level.WARN,
            text=f"The write-ahead log has grown to {_megabytes(facts.log)}.",
            fix="A program keeps a read transaction open: end it.",
        )
    if facts.free > FREE_WARN and facts.free * 2 > facts.size:
        return Check(
            name="tables",
            level=Level.WARN,
            text=f"{_megabytes(facts.free)} of {_megabytes(facts.size)} are unused.",
            fix="The database reuses them. VACUUM returns them to the disk.",
        )
    return Check(name="tables", level=Level.OK, text=f"The tables use {_megabytes(facts.size)}.")


def _megabytes(count: int) -> str:
    return f"{count / 1024 / 1024:,.1f} MB"
