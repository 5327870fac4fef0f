"""Commands about schedules and definitions: next, preview, simulate, show, calendar."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Final

import click

from tickwork._calendars.calendars import NO_CALENDARS
from tickwork._domain.schedules.pattern import SYMBOLS
from tickwork._domain.schedules.zones import Zone
from tickwork._inspect.agenda import AgendaEntry, AgendaKind, ComingRuns
from tickwork._inspect.definitions import JobDescription, describe_jobs
from tickwork._inspect.rule_preview import RulePreview, preview_rule
from tickwork._inspect.simulation import Simulation, simulate
from tickwork._inspect.upcoming_firings import Firing
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.durations import human_duration
from tickwork._kernel.plain_text import count_of
from tickwork.cli.commands import EXIT_FAILURE, CommandContext, command
from tickwork.cli.formats import clock_time, local_zone, relative, weekday_time
from tickwork.cli.parameters import DURATION, FUTURE_TIME, LIMIT, complete_jobs, number_option
from tickwork.cli.render import (
    BAD,
    BOLD,
    BUSY,
    DIM,
    WARN,
    Cell,
    Column,
    FieldList,
    Part,
    TextLine,
    TextTable,
    terminal_width,
)
from tickwork.export.calendar_exports import DAYS_DEFAULT, DAYS_MAX

BARS: Final = " ▏▎▍▌▋▊▉█"

# ---------------------------------------------------------------- next


@command(
    result_type=ComingRuns,
    examples="""
tickwork next
tickwork next -n 50 --until 24h
tickwork next --schedule nightly --json
tickwork next --until 2026-03-02T06:00 --json | jq -r '.runs[] | [.at, .job, .run] | @tsv'
""",
)
@number_option("-n", "--limit", type=LIMIT, default=20, help="Number of firings and runs.")
@click.option("--until", type=FUTURE_TIME, help="Last time: 2026-03-01T09:00, or 24h from now.")
@click.option("--schedule", help="Only firings and runs of this schedule.")
@click.option(
    "-j", "--job", shell_complete=complete_jobs, help="Only firings and runs of this job."
)
def next_command(
    ctx: CommandContext, limit: int, until: datetime | None, schedule: str | None, job: str | None
) -> None:
    """List what runs next: firings of schedules, delayed runs and retries.

    Times are in local time, and those of firings in the schedule's time zone, too.
    """
    app = ctx.app
    if schedule is not None and all(
        each.spec.name != schedule for each in app.inspect.active_schedules()
    ):
        app.schedules.get(schedule)  # raises if there is none
    coming = app.inspect.coming(limit=limit, until=until, schedule=schedule, job=job)
    ctx.out.show(coming, lambda: _coming_parts(coming))


def _coming_parts(coming: ComingRuns) -> Iterator[Part]:
    now = coming.now
    rows = [(each.at, _firing_row(each, now)) for each in coming.firings]
    rows += [(each.at, _waiting_row(each, now)) for each in coming.runs]
    yield TextTable(
        [
            Column("in"),
            Column(f"local time ({local_zone(now)})"),
            Column("schedule's time"),
            Column("schedule"),
            Column("job", drop=1),
            Column("rule", is_flexible=True, drop=2),
        ],
        [row for _, row in sorted(rows, key=itemgetter(0))],
        empty="No schedule will fire, and no run is due later.",
    )
    if any(not firing.is_written for firing in coming.firings):
        yield TextLine("* Not in the database yet: the first worker to start adds it.", DIM)
    inactive = [
        f"{count} {state}"
        for count, state in (
            (coming.paused, "paused"),
            (coming.retired, "retired"),
            (coming.finished, "finished"),
        )
        if count
    ]
    if inactive:
        yield TextLine(f"Schedules not listed: {', '.join(inactive)}.", DIM)


def _waiting_row(entry: AgendaEntry, now: datetime) -> Sequence[Cell | str]:
    what = "retry" if entry.kind is AgendaKind.RETRY else "delayed run"
    tenant = f" of {entry.tenant}" if entry.tenant else ""
    return (
        Cell(relative(entry.at, now).removeprefix("in "), BUSY),
        weekday_time(entry.at)[:23],
        "",
        f"{entry.schedule or ''} ({what}{tenant})".strip(),
        entry.job,
        Cell(str(entry.run), DIM),
    )


def _firing_row(firing: Firing, now: datetime) -> Sequence[Cell | str]:
    mark = "" if firing.is_written else " *"
    when = Cell(relative(firing.at, now).removeprefix("in "), BUSY)
    if firing.overdue_firings is not None:
        since = clock_time(firing.at, now)
        when = Cell(f"overdue since {since}, will {_times(firing.overdue_firings)}", BAD)
    name = f"{firing.tenant}/{firing.schedule}" if firing.tenant else firing.schedule
    return (
        when,
        weekday_time(firing.at)[:23],
        weekday_time(firing.at, zone=firing.zone)[4:],
        Cell(name + mark, BOLD),
        firing.job,
        Cell(firing.rule, DIM),
    )


def _times(firings: int) -> str:
    if not firings:
        return "not fire"
    return "fire once" if firings == 1 else f"fire {firings:,} times"


# ---------------------------------------------------------------- preview


@command(
    result_type=RulePreview,
    examples="""
tickwork preview "*/5 9-17 * * MON-FRI" --timezone Europe/Berlin
tickwork preview "30 2 * * *" --timezone Europe/Berlin -n 3
tickwork preview EVERY_DAY
tickwork preview "minutes=*/15 hours=9-17 wday=1-5"
tickwork preview "every_five_minutes().hours(range(9, 18)).weekdays()"
""",
    exit_codes={EXIT_FAILURE: "the rule is not valid"},
)
@click.argument("rule")
@number_option("-n", "--count", type=LIMIT, default=10, help="Number of instants.")
@click.option(
    "-z",
    "--timezone",
    "--tz",
    "zone",
    default="UTC",
    show_default=True,
    help="Time zone of the rule.",
)
@click.option("--after", type=FUTURE_TIME, help="Start after this time. Default: now.")
def preview_command(
    ctx: CommandContext, rule: str, count: int, zone: str, after: datetime | None
) -> None:
    """Explain a rule and list its next instants.

    RULE is a cron expression, a symbol, a pattern, or a chain of methods. This needs no database,
    and an application (-a) only for its own symbols and calendars.
    """
    start = SystemClock().now() if after is None else after.astimezone(UTC)
    app = ctx.app if ctx.path or ctx.is_mounted else None
    preview = preview_rule(
        rule,
        zone=zone,
        count=count,
        start=start,
        symbols=SYMBOLS if app is None else app.symbols,
        calendars=NO_CALENDARS if app is None else app.calendars,
    )
    ctx.out.show(preview, lambda: _preview_parts(preview, start))


def _preview_parts(preview: RulePreview, now: datetime) -> Iterator[Part]:
    yield TextLine(preview.description, BOLD)
    yield TextTable(
        [
            Column("#", is_right=True),
            Column(f"rule's time ({preview.zone})"),
            Column(f"local time ({local_zone(now)})"),
            Column("in"),
            Column("gap", drop=1),
        ],
        [
            (
                str(number),
                Cell(weekday_time(at, zone=preview.zone), BUSY),
                weekday_time(at),
                relative(at, now).removeprefix("in "),
                Cell(_gap(preview.instants, number - 1), DIM),
            )
            for number, at in enumerate(preview.instants, 1)
        ],
        empty="It never fires.",
    )
    if preview.notes:
        yield TextLine("\nClock changes", BOLD)
        yield from (TextLine(f"- {note}", WARN) for note in preview.notes)


def _gap(instants: Sequence[datetime], index: int) -> str:
    if not index:
        return ""
    between = instants[index].astimezone(UTC) - instants[index - 1].astimezone(UTC)
    return f"+{human_duration(between)}"


# ---------------------------------------------------------------- simulate


@command(
    result_type=Simulation,
    examples="""
tickwork simulate --days 30
tickwork simulate --days 365 --zone Europe/Berlin --json
""",
)
@number_option(
    "--days", type=click.FloatRange(0, 3_660, min_open=True), default=30, help="Number of days."
)
@click.option("--zone", help="Time zone of the chart. Default: the local one.")
@number_option(
    "--collisions",
    "collisions_max",
    type=click.IntRange(0, 1_000),
    default=5,
    help="Number of collisions to list: instants at which several schedules fire.",
)
def simulate_command(
    ctx: CommandContext, days: float, zone: str | None, collisions_max: int
) -> None:
    """Count the firings of all schedules over the next days.

    Shows firings by hour of the day, collisions, and the effects of clock changes. Nothing is
    written, and nothing runs. Jitter, overlap policies and filters are ignored.
    """
    app = ctx.app
    if zone is not None:
        Zone.named(zone)
    with ctx.out.progress("Simulating") as progress:
        simulation = simulate(
            app.inspect.active_schedules(),
            begin=app.clock.now(),
            days=days,
            zone=zone,
            collisions_max=collisions_max,
            progress=progress,
        )
    ctx.out.show(simulation, lambda: _simulation_parts(simulation))


def _simulation_parts(simulation: Simulation) -> Iterator[Part]:
    yield TextLine(
        f"{count_of(simulation.firings, 'firing')} "
        f"of {count_of(len(simulation.schedules), 'schedule')}, "
        f"{weekday_time(simulation.begin)} to {weekday_time(simulation.end)}",
        BOLD,
    )
    highest, width = max(simulation.by_hour, default=0), max(min(terminal_width() - 30, 60), 10)
    if highest:
        yield TextTable(
            [Column(f"hour ({simulation.zone})"), Column("firings", is_right=True), Column("")],
            [
                (f"{hour:02}:00", f"{count:,}", Cell(bar(count / highest, width), BUSY))
                for hour, count in enumerate(simulation.by_hour)
            ],
            title="By hour of the day",
        )
    yield TextTable(
        [
            Column("schedule"),
            Column("firings", is_right=True),
            Column("per day", is_right=True),
            Column("first"),
            Column("rule", is_flexible=True),
        ],
        [
            (
                Cell(each.name, BOLD),
                f"{each.firings:,}",
                f"{each.firings / ((simulation.end - simulation.begin) / timedelta(days=1)):,.1f}",
                relative(each.first_at, simulation.begin),
                Cell(each.rule, DIM),
            )
            for each in simulation.schedules
        ],
        title="By schedule",
        empty="No schedule will fire.",
    )
    if simulation.busiest_minute is not None and simulation.busiest_minute_firings > 1:
        yield TextLine(
            f"\nBusiest minute: {weekday_time(simulation.busiest_minute)}, "
            f"{count_of(simulation.busiest_minute_firings, 'firing')}."
        )
    if simulation.collisions:
        yield TextTable(
            [
                Column("time"),
                Column("firings", is_right=True),
                Column("schedules", is_flexible=True),
            ],
            [
                (weekday_time(each.at), str(each.count), ", ".join(each.schedules))
                for each in simulation.collisions
            ],
            title="Collisions (jitter, or H in cron, spreads them)",
        )
    notes = [(each.name, note) for each in simulation.schedules for note in each.notes]
    if notes:
        yield TextLine("\nClock changes", BOLD)
        yield from (TextLine(f"- {name}: {note}", WARN) for name, note in notes)


def bar(share: float, width: int) -> str:
    """A bar that fills ``share`` of ``width`` characters, to an eighth of a character.

    >>> bar(0.5, 4), bar(0.33, 4)
    ('██', '█▍')
    """
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + (BARS[eighths % 8] if eighths % 8 else "")


# ---------------------------------------------------------------- show


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedJobs:
    """The jobs that the application defines."""

    jobs: list[JobDescription]


@command(
    result_type=DefinedJobs,
    examples="""
tickwork show
tickwork show send_email
tickwork -a shop.jobs:app show --json | jq '.jobs[].name'
""",
)
@click.argument("job", required=False, shell_complete=complete_jobs)
def show_command(ctx: CommandContext, job: str | None) -> None:
    """Show the jobs and schedules that the application defines.

    It reads only code, and needs no database.
    """
    app, now = ctx.app, SystemClock().now()
    jobs = describe_jobs(app.registry, job=job, timezone=app.settings.timezone, now=now)
    parts = _jobs_parts if job is None else _one_job_parts
    ctx.out.show(DefinedJobs(jobs=jobs), lambda: parts(jobs))


def _jobs_parts(jobs: Sequence[JobDescription]) -> Iterator[Part]:
    yield TextTable(
        [
            Column("job"),
            Column("queue"),
            Column("priority", is_right=True),
            Column("attempts", is_right=True),
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
                _limits(job) or "-",
                "; ".join(_rules(job)) or "-",
                Cell(job.handler, DIM),
            )
            for job in jobs
        ],
        empty="The application defines no jobs.",
    )


def _retry(job: JobDescription) -> str:
    only = f", only on {', '.join(job.retry_on)}" if job.retry_on else ""
    never = f", not on {', '.join(job.dont_retry_on)}" if job.dont_retry_on else ""
    return f"{job.retry}{only}{never}".replace("builtins:", "")


def _one_job_parts(jobs: Sequence[JobDescription]) -> Iterator[Part]:
    [job] = jobs
    yield FieldList(
        [
            ("job", Cell(job.name, BOLD)),
            ("handler", f"{job.handler}{job.signature}"),
            ("defined at", job.place),
            ("queue", f"{job.queue}, priority {job.priority}"),
            ("attempts", f"{job.attempts_max}, retry: {_retry(job)}"),
            ("timeout", "none" if job.timeout is None else human_duration(job.timeout)),
            ("lease", human_duration(job.lease)),
            ("history", job.history),
            ("crashes", f"at most {job.crashes_max}"),
            ("limits", _limits(job) or "none"),
            ("unique", job.unique or "no"),
            ("debounce", job.debounce or "no"),
            ("expires", "never" if job.expires is None else human_duration(job.expires)),
            ("engine", job.engine),
            ("tags", ", ".join(job.tags) or "-"),
            ("aliases", ", ".join(job.aliases) or "-"),
            ("filters", str(job.filters)),
            ("hooks", str(job.hooks)),
        ]
    )
    if job.args:
        yield FieldList([(name, str(value)) for name, value in job.args.items()], "Arguments")
    yield TextTable(
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


def _rules(job: JobDescription) -> Iterator[str]:
    """The rules of its schedules. The first schedule has the name of the job."""
    for each in job.schedules:
        yield each.rule if each.name == job.name else f"{each.name}: {each.rule}"


def _limits(job: JobDescription) -> str:
    return ", ".join(f"{name}: {slots}" for name, slots in job.limits.items())


# ---------------------------------------------------------------- calendar


@command(
    examples="""
tickwork calendar > jobs.ics
tickwork calendar nightly weekly --output jobs.ics
tickwork calendar --past 7d --days 30 > jobs.ics
tickwork calendar nightly --link google
""",
)
@click.argument("schedules", metavar="[SCHEDULE]...", nargs=-1)
@number_option(
    "--days",
    type=click.IntRange(1, DAYS_MAX),
    default=DAYS_DEFAULT,
    help="Days to list, for schedules that no recurrence rule describes exactly.",
)
@click.option("--past", type=DURATION, help="Also list past runs of schedules, this far back: 7d.")
@click.option("--tenant", help="Only schedules of this tenant.")
@click.option("--name", default="tickwork", show_default=True, help="Name of the calendar.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write to this file.")
@click.option(
    "--link",
    type=click.Choice(["google", "outlook"]),
    help="Print a link that adds one schedule to this calendar, instead of a file.",
)
def calendar_command(  # noqa: PLR0917  # click passes them by name
    ctx: CommandContext,
    schedules: tuple[str, ...],
    days: int,
    past: timedelta | None,
    tenant: str | None,
    name: str,
    output: str | None,
    link: str | None,
) -> None:
    """Write schedules as an iCalendar file, for Google Calendar, Outlook and others.

    Without names, it contains every schedule that will fire. --past adds the runs of schedules,
    with their outcome.
    """
    export = ctx.app.export
    if link is not None:
        if len(schedules) != 1:
            raise click.UsageError("--link needs the name of one schedule.")
        name, of = schedules[0], tenant or ""
        is_google = link == "google"
        click.echo(
            export.google_link(name, tenant=of)
            if is_google
            else export.outlook_link(name, tenant=of)
        )
        return
    text = export.ical(*schedules, tenant=tenant, days=days, past=past, name=name)
    # Lines of the format end with CR LF, on every system.
    if output is None:
        click.echo(text.encode(), nl=False)
    else:
        Path(output).write_bytes(text.encode())
