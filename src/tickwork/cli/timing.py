"""Commands about when: ``next``, ``preview``, ``simulate``, and ``show`` for definitions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, Final

import click

from tickwork._define.definition import Declaration, Definition, schedule_spec
from tickwork._define.rule_text import parse_rule_text
from tickwork._domain.firings import first_due
from tickwork._domain.retry import Fixed, Jitter, NoRetry, RetryPolicy
from tickwork._domain.schedules.changes import effects
from tickwork._domain.schedules.contract import Schedule, walk
from tickwork._domain.schedules.pattern import SYMBOLS
from tickwork._domain.schedules.zones import Zone
from tickwork._inspect.schedules import ActiveSchedule, Firing, UpcomingFirings
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.durations import human_duration
from tickwork.app import Tickwork
from tickwork.cli.commands import AHEAD, Call, complete_jobs, verb
from tickwork.cli.render import (
    BOLD,
    BUSY,
    DIM,
    WARN,
    Cell,
    Column,
    Facts,
    Line,
    Part,
    Progress,
    Table,
    terminal_width,
)
from tickwork.cli.times import local_zone, relative, weekday_time
from tickwork.errors import JobNotFound

NOTES_DAYS: Final = 400
"""How far ahead clock changes are looked for: each zone changes at least once in a year."""

INSTANTS_MAX: Final = 20_000
"""Firings of a schedule that are looked at one by one; where there are more, they are counted."""

NAMES_MAX: Final = 10

BARS: Final = " ▏▎▍▌▋▊▉█"

# ---------------------------------------------------------------- next


@verb(
    name="next",
    answer=UpcomingFirings,
    examples="""
tickwork next
tickwork next -n 50 --until 24h
tickwork next --schedule nightly --json
""",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="How many firings.",
)
@click.option("--until", type=AHEAD, help="Not after that: a time, or 24h for 24 hours from now.")
@click.option("--schedule", help="Only of this schedule.")
@click.option("-j", "--job", shell_complete=complete_jobs, help="Only of this job.")
def next_command(
    call: Call, limit: int, until: datetime | None, schedule: str | None, job: str | None
) -> None:
    """Show the coming firings, in their zone and in yours."""
    app = call.app
    if schedule is not None:
        _known_schedule(app, schedule)
    found = app.inspect.upcoming(limit=limit, until=until, schedule=schedule, job=job)
    call.out.show(found, lambda: _upcoming_parts(found))


def _known_schedule(app: Tickwork, name: str) -> None:
    if all(each.name != name for each in app.inspect.active_schedules()):
        app.schedules.get(name)


def _upcoming_parts(found: UpcomingFirings) -> Iterator[Part]:
    now, here = found.now, local_zone(found.now)
    yield Table(
        [
            Column("in"),
            Column(f"your time ({here})"),
            Column("schedule's time"),
            Column("schedule"),
            Column("job", drop=1),
            Column("rule", is_flexible=True, drop=2),
        ],
        [_firing_row(firing, now) for firing in found.firings],
        empty="Nothing will fire.",
    )
    if any(not firing.is_written for firing in found.firings):
        yield Line("* only in code so far: it begins with the first worker.", DIM)
    left_out = [
        f"{count} {word}"
        for count, word in (
            (found.paused, "paused"),
            (found.retired, "retired"),
            (found.finished, "with no instant left"),
        )
        if count
    ]
    if left_out:
        yield Line(f"Schedules that are left out: {', '.join(left_out)}.", DIM)


def _firing_row(firing: Firing, now: datetime) -> Sequence[Cell | str]:
    mark = "" if firing.is_written else " *"
    name = firing.schedule if not firing.tenant else f"{firing.tenant}/{firing.schedule}"
    return (
        Cell(relative(firing.at, now).removeprefix("in "), BUSY),
        weekday_time(firing.at)[:23],
        weekday_time(firing.at, zone=firing.zone)[4:],
        Cell(name + mark, BOLD),
        firing.job,
        Cell(firing.rule, DIM),
    )


# ---------------------------------------------------------------- preview


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """A rule in plain English, its next instants, and what clock changes do to it."""

    rule: str
    description: str
    zone: str
    instants: list[datetime]
    notes: list[str]
    text: str  # as rows have it


@verb(
    name="preview",
    answer=Previewed,
    examples="""
tickwork preview "*/5 9-17 * * MON-FRI" --timezone Europe/Berlin
tickwork preview "30 2 * * *" --timezone Europe/Berlin -n 3
tickwork preview EVERY_DAY
tickwork preview "minutes=*/15 hours=9-17 wday=1-5"
tickwork preview "every_five_minutes().hours(range(9, 18)).weekdays()"
""",
    exits={1: "the rule cannot be; the message says where"},
)
@click.argument("rule")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="How many instants.",
)
@click.option(
    "-z", "--timezone", "--tz", "zone", default="UTC", show_default=True, help="The rule's zone."
)
@click.option("--after", type=AHEAD, help="Begin after this time; by default, now.")
def preview_command(call: Call, rule: str, count: int, zone: str, after: datetime | None) -> None:
    """Say what a rule means: cron, a symbol, a pattern, or words.

    It needs no application, and no database; with one (-a), its own symbols are known.
    """
    now = SystemClock().now()
    start = now if after is None else after.astimezone(UTC)
    symbols = call.app.symbols if call.path or call.is_mounted else SYMBOLS
    timing = parse_rule_text(rule, symbols=symbols)
    made = timing.rule(tz=Zone.named(zone).name, anchor=start, key="preview")
    instants = list(islice(walk(made, start), count))
    horizon = max([start + timedelta(days=NOTES_DAYS), *instants[-1:]])
    notes = [effect.text for effect in effects(made, after=start, until=horizon)]
    found = Previewed(
        rule=rule,
        description=made.describe(),
        zone=made.tz,
        instants=instants,
        notes=notes,
        text=made.to_text(),
    )
    call.out.show(found, lambda: _preview_parts(found, made, start))


def _preview_parts(found: Previewed, rule: Schedule, now: datetime) -> Iterator[Part]:
    yield Line(found.description, BOLD)
    here = local_zone(now)
    yield Table(
        [
            Column("#", is_right=True),
            Column(f"rule's time ({found.zone})"),
            Column(f"your time ({here})"),
            Column("in"),
            Column("gap", drop=1),
        ],
        [
            (
                str(number),
                Cell(weekday_time(at, zone=rule.tz), BUSY),
                weekday_time(at),
                relative(at, now).removeprefix("in "),
                Cell(_gap(found.instants, number - 1), DIM),
            )
            for number, at in enumerate(found.instants, 1)
        ],
        empty="It never fires.",
    )
    if found.notes:
        yield Line("\nClock changes", BOLD)
        yield from (Line(f"- {note}", WARN) for note in found.notes)


def _gap(instants: Sequence[datetime], place: int) -> str:
    if not place:
        return ""
    between = instants[place].astimezone(UTC) - instants[place - 1].astimezone(UTC)
    return f"+{human_duration(between)}"


# ---------------------------------------------------------------- simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Collision:
    """An instant at which several schedules fire."""

    at: datetime
    count: int
    schedules: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSchedule:
    """How often one schedule would fire, and what clock changes do to it."""

    name: str
    job: str
    zone: str
    rule: str
    firings: int
    first_at: datetime | None
    last_at: datetime | None
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the schedules would do. Hours of the day are those of ``zone``."""

    begin: datetime
    end: datetime
    zone: str
    firings: int
    by_hour: list[int]
    schedules: list[SimulatedSchedule]
    collisions: list[Collision]
    busiest_minute: datetime | None
    busiest_minute_firings: int


@verb(
    name="simulate",
    answer=Simulated,
    examples="""
tickwork simulate --days 30
tickwork simulate --days 365 --zone Europe/Berlin --json
""",
)
@click.option(
    "--days",
    type=click.FloatRange(0, 3_660, min_open=True),
    default=30,
    show_default=True,
    help="How far ahead.",
)
@click.option("--zone", help="Whose hours the chart has; by default yours.")
@click.option(
    "--collisions",
    "most",
    type=click.IntRange(0, 1_000),
    default=5,
    show_default=True,
    help="How many instants with several firings are shown.",
)
def simulate_command(call: Call, days: float, zone: str | None, most: int) -> None:
    """Show what the schedules would do.

    Firings by hour of the day, several at the same instant, what clock changes do. Nothing is
    written, and nothing runs. Jitter, overlaps and filters are not looked at.
    """
    app = call.app
    if zone is not None:
        Zone.named(zone)
    with call.out.progress("Simulating") as progress:
        found = simulate(
            app.inspect.active_schedules(),
            begin=app.clock.now(),
            days=days,
            zone=zone,
            most=most,
            progress=progress,
        )
    call.out.show(found, lambda: _simulated_parts(found))


def simulate(
    schedules: Sequence[ActiveSchedule],
    *,
    begin: datetime,
    days: float,
    zone: str | None,
    most: int,
    progress: Progress,
) -> Simulated:
    """Fire every schedule on paper."""
    end = begin + timedelta(days=days)
    place = None if zone is None else Zone.named(zone).info
    by_hour = [0] * 24
    who: dict[datetime, list[str]] = {}
    dense: list[tuple[ActiveSchedule, datetime]] = []  # and how far they were looked at one by one
    lines = []
    for number, each in enumerate(schedules):
        progress(number, len(schedules))
        first, last = each.next_due_at or begin, min(end, each.until or end)
        total = each.rule.count_between(first, last)
        at = None
        for at in islice(_instants(each, end), INSTANTS_MAX):
            who.setdefault(at, []).append(each.name)
            if total <= INSTANTS_MAX:
                by_hour[at.astimezone(place).hour] += 1
        if total > INSTANTS_MAX and at is not None:
            dense.append((each, at))
            for hour, count in _counted_by_hour(each.rule, first, last, place):
                by_hour[hour] += count
        lines.append(
            SimulatedSchedule(
                name=each.name,
                job=each.job,
                zone=each.zone,
                rule=each.rule.describe(),
                firings=total,
                first_at=each.next_due_at if total else None,
                last_at=each.rule.prev_before(last + timedelta(seconds=1)) if total else None,
                notes=[effect.text for effect in effects(each.rule, after=begin, until=end)],
            )
        )
    progress(len(schedules), len(schedules))
    for each, seen in dense:
        for at, names in who.items():
            if at > seen and each.rule.count_between(at, at):
                names.append(each.name)
    minutes: Counter[datetime] = Counter()
    for at, names in who.items():
        minutes[at.replace(second=0)] += len(names)
    busiest = max(minutes.items(), key=lambda pair: (pair[1], -pair[0].timestamp()), default=None)
    meetings = sorted(
        (pair for pair in who.items() if len(pair[1]) > 1),
        key=lambda pair: (-len(pair[1]), pair[0]),
    )
    return Simulated(
        begin=begin,
        end=end,
        zone=zone or local_zone(begin),
        firings=sum(line.firings for line in lines),
        by_hour=by_hour,
        schedules=sorted(lines, key=lambda line: -line.firings),
        collisions=[
            Collision(at=at, count=len(names), schedules=names[:NAMES_MAX])
            for at, names in meetings[:most]
        ],
        busiest_minute=busiest[0] if busiest else None,
        busiest_minute_firings=busiest[1] if busiest else 0,
    )


def _instants(each: ActiveSchedule, end: datetime) -> Iterator[datetime]:
    at = each.next_due_at
    while at is not None and at <= end:  # ends at the end, because every step goes forward
        yield at
        at = first_due(each.rule, after=at, until=each.until)


def _counted_by_hour(
    rule: Schedule, first: datetime, last: datetime, place: tzinfo | None
) -> Iterator[tuple[int, int]]:
    """How often a rule fires in each hour of the clock, without a look at each firing."""
    at = first
    while at <= last:  # ends: each step is to the next full hour
        here = at.astimezone(place)
        left = timedelta(hours=1) - timedelta(
            minutes=here.minute, seconds=here.second, microseconds=here.microsecond
        )
        after = at + left
        yield here.hour, rule.count_between(at, min(after - timedelta(seconds=1), last))
        at = after


def _simulated_parts(found: Simulated) -> Iterator[Part]:
    yield Line(
        f"{found.firings:,} firings of {len(found.schedules)} schedules, "
        f"{weekday_time(found.begin)} to {weekday_time(found.end)}",
        BOLD,
    )
    highest, width = max(found.by_hour, default=0), max(min(terminal_width() - 30, 60), 10)
    if highest:
        yield Table(
            [Column(f"hour ({found.zone})"), Column("firings", is_right=True), Column("")],
            [
                (f"{hour:02}:00", f"{count:,}", Cell(bar(count / highest, width), BUSY))
                for hour, count in enumerate(found.by_hour)
            ],
            title="By hour of the day",
        )
    yield Table(
        [
            Column("schedule"),
            Column("firings", is_right=True),
            Column("a day", is_right=True),
            Column("first"),
            Column("rule", is_flexible=True),
        ],
        [
            (
                Cell(line.name, BOLD),
                f"{line.firings:,}",
                f"{line.firings / ((found.end - found.begin) / timedelta(days=1)):,.1f}",
                relative(line.first_at, found.begin),
                Cell(line.rule, DIM),
            )
            for line in found.schedules
        ],
        title="By schedule",
        empty="There are no schedules that would fire.",
    )
    if found.busiest_minute is not None and found.busiest_minute_firings > 1:
        yield Line(
            f"\nThe busiest minute is {weekday_time(found.busiest_minute)}, "
            f"with {found.busiest_minute_firings:,} firings."
        )
    if found.collisions:
        yield Table(
            [Column("instant"), Column("firings", is_right=True), Column("of", is_flexible=True)],
            [
                (weekday_time(each.at), str(each.count), ", ".join(each.schedules))
                for each in found.collisions
            ],
            title="Several at the same instant (jitter spreads them, H in cron too)",
        )
    notes = [(line.name, note) for line in found.schedules for note in line.notes]
    if notes:
        yield Line("\nClock changes", BOLD)
        yield from (Line(f"- {name}: {note}", WARN) for name, note in notes)


def bar(share: float, width: int) -> str:
    """A bar that is this share of so many characters, to an eighth of one.

    >>> bar(0.5, 4), bar(0.33, 4)
    ('██', '█▍')
    """
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + (BARS[eighths % 8] if eighths % 8 else "")


# ---------------------------------------------------------------- show


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSchedule:
    """A schedule as code says it."""

    name: str
    rule: str
    zone: str
    overlap: str
    misfire: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """A job as code says it."""

    name: str
    handler: str
    signature: str
    place: str
    queue: str
    priority: int
    limits: dict[str, int]
    attempts_max: int
    retry: str
    timeout: timedelta | None
    lease: timedelta
    crashes_max: int
    unique: str | None
    expires: timedelta | None
    engine: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    args: dict[str, Any]
    filters: int
    hooks: int
    schedules: list[ShownSchedule]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What this program defines."""

    jobs: list[ShownJob]


@verb(
    name="show",
    answer=Shown,
    examples="""
tickwork show
tickwork show send_email
tickwork -a shop.jobs:app show --json | jq '.jobs[].name'
""",
)
@click.argument("job", required=False, shell_complete=complete_jobs)
def show_command(call: Call, job: str | None) -> None:
    """Show what the application defines.

    Jobs, their policies, their schedules. It reads code alone, and needs no database.
    """
    app = call.app
    known = app.registry.definitions()
    chosen = [each for name, each in known.items() if name == each.name and not each.is_remote]
    if job is not None:
        if job not in known:
            raise JobNotFound(job, known=known)
        chosen = [known[job]]
    found = Shown(jobs=[_shown(app, each) for each in sorted(chosen, key=lambda one: one.name)])
    if job is not None:
        call.out.show(found, lambda: _one_job_parts(found.jobs[0]))
    else:
        call.out.show(found, lambda: _jobs_parts(found))


def _shown(app: Tickwork, each: Definition) -> ShownJob:
    spec, options = each.spec, each.options
    hooks = (options.before, options.success, options.error, options.after)
    return ShownJob(
        name=each.name,
        handler=each.handler.path,
        signature=each.parameters.shown,
        place=each.place,
        queue=spec.queue,
        priority=spec.priority,
        limits=spec.slots_by_limit(),
        attempts_max=spec.attempts_max,
        retry=_retry(spec.retry),
        timeout=spec.timeout,
        lease=spec.lease.length,
        crashes_max=spec.crashes_max,
        unique=None if spec.unique is None else _unique(spec.unique),
        expires=spec.expires,
        engine=options.engine.value,
        tags=spec.tags,
        aliases=spec.aliases,
        args=each.shown_args(spec.args),
        filters=len(options.when) + len(options.skip),
        hooks=sum(map(len, hooks)),
        schedules=[
            _shown_schedule(app, entry, each)
            for entry in app.registry.schedules()
            if entry.job_name == each.name
        ],
    )


def _shown_schedule(app: Tickwork, entry: Declaration, job: Definition) -> ShownSchedule:
    now = SystemClock().now()
    spec = schedule_spec(entry, job, tz=app.settings.timezone, anchor=now)
    rule = entry.timing.rule(key=entry.name, tz=app.settings.timezone, anchor=now)
    return ShownSchedule(
        name=spec.name,
        rule=rule.describe(),
        zone=spec.zone,
        overlap=spec.overlap.value,
        misfire=spec.misfire.value,
    )


def _retry(policy: RetryPolicy) -> str:
    match policy:
        case NoRetry():
            return "none"
        case Fixed():
            return f"after {human_duration(policy.delay)} each"
        case _:
            jitter = "" if policy.jitter is Jitter.NONE else ", with full jitter"
            span = f"{human_duration(policy.base)} to {human_duration(policy.cap)}"
            return f"doubling from {span}{jitter}"


def _unique(unique: Any) -> str:
    what = unique.key or (f"by {', '.join(unique.by)}" if unique.by else "by all arguments")
    return what if unique.within is None else f"{what}, within {human_duration(unique.within)}"


def _jobs_parts(found: Shown) -> Iterator[Part]:
    yield Table(
        [
            Column("job"),
            Column("queue"),
            Column("prio", is_right=True),
            Column("tries", is_right=True),
            Column("limits", is_flexible=True, drop=1),
            Column("schedule", is_flexible=True),
            Column("handler", is_flexible=True, drop=2),
        ],
        [
            (
                Cell(job.name, BOLD),
                job.queue,
                str(job.priority),
                str(job.attempts_max),
                ", ".join(f"{name} {slots}" for name, slots in job.limits.items()) or "-",
                "; ".join(each.rule for each in job.schedules) or "-",
                Cell(job.handler, DIM),
            )
            for job in found.jobs
        ],
        empty="The application defines no jobs.",
    )


def _one_job_parts(job: ShownJob) -> Iterator[Part]:
    def length(value: timedelta | None, nothing: str) -> str:
        return nothing if value is None else human_duration(value)

    yield Facts(
        [
            ("job", Cell(job.name, BOLD)),
            ("handler", f"{job.handler}{job.signature}"),
            ("defined at", job.place),
            ("queue", f"{job.queue}, priority {job.priority}"),
            ("attempts", f"{job.attempts_max}, retry: {job.retry}"),
            ("timeout", length(job.timeout, "none")),
            ("lease", length(job.lease, "-")),
            ("crashes", f"given up after {job.crashes_max}"),
            ("limits", ", ".join(f"{name}: {n}" for name, n in job.limits.items()) or "none"),
            ("unique", job.unique or "no"),
            ("expires", length(job.expires, "never")),
            ("engine", job.engine),
            ("tags", ", ".join(job.tags) or "-"),
            ("aliases", ", ".join(job.aliases) or "-"),
            ("filters", str(job.filters)),
            ("hooks", str(job.hooks)),
        ]
    )
    if job.args:
        yield Facts([(name, str(value)) for name, value in job.args.items()], title="Arguments")
    yield Table(
        [
            Column("schedule"),
            Column("rule", is_flexible=True),
            Column("overlap"),
            Column("misfire"),
        ],
        [(Cell(each.name, BOLD), each.rule, each.overlap, each.misfire) for each in job.schedules],
        title="Schedules",
        empty="None: it runs when it is dispatched.",
    )
