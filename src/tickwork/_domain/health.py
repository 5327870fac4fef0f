"""Is all well? What was measured in, verdicts out: where a number begins to be a problem."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tickwork._kernel.durations import human_duration

SKEW_WARN: Final = timedelta(seconds=1)
"""Work is timed by the database's clock; but what people write down is by their own."""

SLOW: Final = timedelta(milliseconds=200)
LATE_WARN: Final = timedelta(seconds=30)
LATE_BAD: Final = timedelta(minutes=10)
OVERDUE: Final = timedelta(seconds=15)
"""A worker stages, fires and reaps within a second or two."""

FAILURES_WARN: Final = 3
OPEN_WARN: Final = timedelta(minutes=10)
OPEN_BAD: Final = timedelta(hours=1)
"""What was deleted since a transaction began cannot be cleaned up before it ends."""

DEAD_WARN: Final = 200_000
LOG_WARN: Final = 256 * 1024 * 1024
FREE_WARN: Final = 256 * 1024 * 1024


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at: how it is, and what to do if it is not well."""

    name: str
    level: Level
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """What was measured, at one moment by the database's clock."""

    now: datetime
    round_trip: timedelta
    skew: timedelta  # how far the machine's clock is ahead of the database's
    up: int  # workers that report
    silent: Sequence[str] = ()  # workers that do not, by host and pid
    versions: Collection[str] = ()
    version: str = ""
    zones: Collection[str] = ()  # releases of time zone data that workers read
    zones_here: str = ""
    expired: Sequence[str] = ()  # runs whose lease has ended, of which nobody took care
    oldest_ready_at: datetime | None = None
    ready: int = 0
    blocked: int = 0
    cap: int = 0  # where counts end
    unstaged_at: datetime | None = None  # when the first waiting run fell due
    unknown_jobs: Sequence[str] = ()  # with runs that wait, and no worker that knows them
    unfired_at: datetime | None = None  # when the first schedule fell due
    retired: Sequence[str] = ()
    unreadable: Sequence[str] = ()
    failing: Sequence[tuple[str, int]] = field(default=())  # jobs, and how often in a row
    size: int = 0  # bytes of the database
    free: int = 0  # of them, used by nothing
    log: int = 0  # bytes of a log that waits to be brought over
    dead_rows: int = 0
    open_since: datetime | None = None  # when the oldest transaction began


def examine(facts: HealthFacts) -> list[Check]:
    """A verdict on each of the things that were looked at."""
    return [
        _connection(facts),
        _clock(facts),
        _zones(facts),
        _workers(facts),
        _leases(facts),
        _backlog(facts),
        _unknown(facts),
        _schedules(facts),
        _jobs(facts),
        _tables(facts),
    ]


def _connection(facts: HealthFacts) -> Check:
    taken = human_duration(facts.round_trip)
    if facts.round_trip > SLOW:
        return Check(
            name="connection",
            level=Level.WARN,
            text=f"The database answers after {taken}: every claim waits for that.",
            fix="Move workers closer to it, or look at its load.",
        )
    return Check(name="connection", level=Level.OK, text=f"The database answers after {taken}.")


def _clock(facts: HealthFacts) -> Check:
    off = human_duration(abs(facts.skew))
    side = "ahead of" if facts.skew > timedelta(0) else "behind"
    if abs(facts.skew) > SKEW_WARN:
        return Check(
            name="clock",
            level=Level.WARN,
            text=f"This machine's clock is {off} {side} the database's.",
            fix="tickwork goes by the database's. For everything else: let both follow NTP.",
        )
    return Check(name="clock", level=Level.OK, text="This machine and the database agree.")


def _zones(facts: HealthFacts) -> Check:
    found = sorted({*facts.zones, facts.zones_here} - {""})
    if len(found) > 1:
        return Check(
            name="time zones",
            level=Level.WARN,
            text=f"Machines read different releases of time zone data: {', '.join(found)}.",
            fix="Bring them to the same: they may disagree about when clocks change.",
        )
    said = found[0] if found else "of an unknown release"
    return Check(name="time zones", level=Level.OK, text=f"Time zone data is {said}.")


def _workers(facts: HealthFacts) -> Check:
    if facts.silent:
        return Check(
            name="workers",
            level=Level.WARN if facts.up else Level.BAD,
            text=f"{facts.up} report, and {len(facts.silent)} are silent: "
            f"{', '.join(facts.silent[:5])}.",
            fix="If they are dead, their runs go on elsewhere when the leases end.",
        )
    if not facts.up:
        return Check(
            name="workers",
            level=Level.BAD,
            text="No worker is up: nothing will run.",
            fix="Start one: tickwork work",
        )
    others = sorted(set(facts.versions) - {facts.version})
    if others:
        return Check(
            name="workers",
            level=Level.WARN,
            text=f"{facts.up} report; some are of version {', '.join(others)}, "
            f"and this is {facts.version}.",
            fix="Finish the deploy.",
        )
    return Check(name="workers", level=Level.OK, text=f"{facts.up} report.")


def _leases(facts: HealthFacts) -> Check:
    if not facts.expired:
        return Check(name="leases", level=Level.OK, text="None has ended without a word.")
    return Check(
        name="leases",
        level=Level.BAD,
        text=f"{len(facts.expired)} have ended and nobody took the runs back: "
        f"{', '.join(facts.expired[:3])}.",
        fix="A worker that is up takes them back within seconds: start one, or read its log.",
    )


def _backlog(facts: HealthFacts) -> Check:
    waits = [facts.now - at for at in (facts.oldest_ready_at, facts.unstaged_at) if at is not None]
    longest = max(waits, default=timedelta(0))
    tail = f" ({facts.blocked} blocked by limits)" if facts.blocked else ""
    many = f"{facts.ready:,}" + (" or more" if facts.cap and facts.ready >= facts.cap else "")
    if longest <= LATE_WARN:
        return Check(name="backlog", level=Level.OK, text=f"{many} runs are ready{tail}.")
    return Check(
        name="backlog",
        level=Level.BAD if longest > LATE_BAD else Level.WARN,
        text=f"{many} runs are ready{tail}; the oldest waits for {human_duration(longest)}.",
        fix="`tickwork explain` a run says why. More --slots, --processes or workers help.",
    )


def _unknown(facts: HealthFacts) -> Check:
    if not facts.unknown_jobs:
        return Check(name="known jobs", level=Level.OK, text="Every run that waits has a worker.")
    return Check(
        name="known jobs",
        level=Level.WARN,
        text=f"Runs wait of jobs that no worker knows: {', '.join(facts.unknown_jobs[:5])}.",
        fix="Start a worker with the program that defines them.",
    )


def _schedules(facts: HealthFacts) -> Check:
    late = timedelta(0) if facts.unfired_at is None else facts.now - facts.unfired_at
    if late > OVERDUE:
        return Check(
            name="schedules",
            level=Level.BAD,
            text=f"One fell due {human_duration(late)} ago, and nobody fires it.",
            fix="Start a worker that knows its job; `tickwork explain` the schedule says more.",
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
            text=f"No program has them any more: {', '.join(facts.retired[:5])}.",
            fix="They do not fire. `tickwork prune` removes them in time.",
        )
    return Check(name="schedules", level=Level.OK, text="None is overdue.")


def _jobs(facts: HealthFacts) -> Check:
    failing = [(name, times) for name, times in facts.failing if times >= FAILURES_WARN]
    if not failing:
        return Check(name="jobs", level=Level.OK, text="None fails again and again.")
    shown = ", ".join(f"{name} ({times} in a row)" for name, times in failing[:5])
    return Check(
        name="jobs",
        level=Level.WARN,
        text=f"These fail again and again: {shown}.",
        fix=f"tickwork runs --job {failing[0][0]} --status failed_permanent",
    )


def _tables(facts: HealthFacts) -> Check:
    opened = timedelta(0) if facts.open_since is None else facts.now - facts.open_since
    if opened > OPEN_WARN:
        return Check(
            name="tables",
            level=Level.BAD if opened > OPEN_BAD else Level.WARN,
            text=f"A transaction has been open for {human_duration(opened)}: nothing that was "
            f"deleted since can be cleaned up ({facts.dead_rows:,} dead rows).",
            fix="End it: PostgreSQL lists it in pg_stat_activity, MariaDB in its process list.",
        )
    if facts.dead_rows > DEAD_WARN:
        return Check(
            name="tables",
            level=Level.WARN,
            text=f"{facts.dead_rows:,} dead rows were not cleaned up yet.",
            fix="See that autovacuum is on, or VACUUM the tables by hand.",
        )
    if facts.log > LOG_WARN:
        return Check(
            name="tables",
            level=Level.WARN,
            text=f"The log has {_megabytes(facts.log)} that were not brought over yet.",
            fix="A reader keeps a transaction open: find the program that does.",
        )
    if facts.free > FREE_WARN and facts.free * 2 > facts.size:
        return Check(
            name="tables",
            level=Level.WARN,
            text=f"{_megabytes(facts.free)} of {_megabytes(facts.size)} are used by nothing.",
            fix="They will be, in time; VACUUM gives them back to the disk.",
        )
    return Check(name="tables", level=Level.OK, text=f"They have {_megabytes(facts.size)}.")


def _megabytes(count: int) -> str:
    return f"{count / 1024 / 1024:,.1f} MB"
