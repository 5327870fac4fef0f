"""Commands that find problems: ``explain``, ``doctor``, ``alerts``, ``watch``."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import click

from tickwork._domain.explain import Explanation
from tickwork._domain.health import Check, Level
from tickwork._domain.watch import MissedExpectation
from tickwork._inspect.alerts import AlertReport
from tickwork._kernel.durations import human_duration
from tickwork._kernel.plain_text import count_of
from tickwork._masks.url import mask_url
from tickwork.cli.commands import EXIT_FAILURE, CommandContext, command
from tickwork.cli.formats import local_zone, relative, weekday_time
from tickwork.cli.parameters import DURATION, LIMIT, complete_jobs, number_option
from tickwork.cli.reasons import explanation_parts
from tickwork.cli.render import BAD, BOLD, DIM, GOOD, WARN, Cell, Column, Part, TextLine, TextTable

CURSOR: Final = re.compile(r"[0-9]{1,16}\|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LEVELS: Final = {Level.OK: GOOD, Level.WARN: WARN, Level.BAD: BAD}


@command(
    result_type=Explanation,
    examples="""
tickwork explain send_email
tickwork explain nightly
tickwork explain 019b78c9-0a80 --json | jq -r '.causes[0].why'
""",
)
@click.argument("what", metavar="JOB|SCHEDULE|RUN", shell_complete=complete_jobs)
@click.option("--tenant", default="", help="Tenant of the schedule.")
def explain_command(ctx: CommandContext, what: str, tenant: str) -> None:
    """Explain why a job, a schedule or a run has not run, and what to do.

    Examples of reasons: it is paused, a limit is full, it waits for its retry, no worker knows
    the job, its worker is down, a filter rejected it, it is not due yet. The decisive reason
    comes first.
    """
    app = ctx.app
    explanation = app.explain(what, tenant=tenant)
    now = app.clock.now()
    ctx.out.show(explanation, lambda: explanation_parts(explanation, now))


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """The results of all checks."""

    url: str  # without its password
    is_well: bool  # no check is bad; with --strict, all are ok
    checks: list[Check]


@command(
    result_type=HealthReport,
    examples="""
tickwork doctor
tickwork doctor --strict || systemctl restart shop-worker
tickwork doctor --worker
""",
    exit_codes={EXIT_FAILURE: "a check is bad; with --strict, also if one is a warning"},
)
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@click.option("--worker", is_flag=True, help="Only check the workers of this machine.")
def doctor_command(ctx: CommandContext, strict: bool, worker: bool) -> None:  # noqa: FBT001  # flags
    """Run health checks.

    They cover connection, tables, clock, workers, leases, backlog, schedules and failing jobs.

    --worker is a liveness probe. It fails if no worker process runs on this machine or in this
    container, or if the last heartbeat of one is too old. An unavailable database is a warning.
    """
    app = ctx.app
    checks = [app.check_worker()] if worker else app.check_health()
    failing = {Level.BAD, Level.WARN} if strict else {Level.BAD}
    is_well = not any(check.level in failing for check in checks)
    report = HealthReport(url=mask_url(app.settings.url), is_well=is_well, checks=checks)
    ctx.out.show(report, lambda: _health_parts(report))
    if not is_well:
        sys.exit(EXIT_FAILURE)


def _health_parts(report: HealthReport) -> Iterator[Part]:
    yield TextLine(report.url, DIM)
    yield TextTable(
        [Column(""), Column("check"), Column("result", is_flexible=True)],
        [
            (Cell(check.level.value, LEVELS[check.level]), Cell(check.name, BOLD), check.text)
            for check in report.checks
        ],
    )
    for check in report.checks:
        if check.level is not Level.OK and check.fix:
            yield TextLine(f"{check.name}: {check.fix}", LEVELS[check.level])
    warnings = sum(check.level is Level.WARN for check in report.checks)
    if not report.is_well:
        yield TextLine("Unhealthy.", BOLD)
    elif warnings:
        yield TextLine(f"Healthy, with {count_of(warnings, 'warning')}.", BOLD)
    else:
        yield TextLine("Healthy.", BOLD)


@command(
    result_type=AlertReport,
    examples="""
tickwork alerts
tickwork alerts -n 100
tickwork alerts --json | jq -r '.ended[] | [.began_at, .ended_at, .text] | @tsv'
""",
)
@number_option("-n", "--limit", type=LIMIT, default=20, help="Number of ended alerts.")
@click.option("--cursor", help="Ended alerts before a page: the cursor in its JSON.")
def alerts_command(ctx: CommandContext, limit: int, cursor: str | None) -> None:
    """List what needs a person now, since when, and the alerts that have ended.

    These are the alerts of the dashboard: one for each cause. Workers and `tickwork watch` add
    what begins and what ends to their history, which is kept for a year.
    """
    if cursor is not None and not CURSOR.fullmatch(cursor):
        raise click.BadParameter("It is not the cursor of a page.", param_hint="--cursor")
    app = ctx.app
    report = app.inspect.alerts(app.check_health(), cursor=cursor, limit=limit)
    now = app.clock.now()
    ctx.out.show(report, lambda: _alert_parts(report, now))


def _alert_parts(report: AlertReport, now: datetime) -> Iterator[Part]:
    yield TextTable(
        [Column("alert"), Column("since"), Column("what", is_flexible=True)],
        [
            (Cell(each.kind, LEVELS[each.level]), relative(each.since, now), each.text)
            for each in report.alerts
        ],
        empty="No alerts: no schedule is late, no job keeps failing, and no worker is silent.",
    )
    if report.ended:
        yield TextTable(
            [
                Column("alert"),
                Column(f"began ({local_zone(now)})"),
                Column("took"),
                Column("what", is_flexible=True),
            ],
            [
                (
                    each.kind,
                    weekday_time(each.began_at)[:23],
                    human_duration(each.duration),
                    each.text,
                )
                for each in report.ended
            ],
            title="Ended",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """The late schedules that --once has found."""

    missed: list[MissedExpectation]


@command(
    result_type=WatchReport,
    examples="""
tickwork watch
tickwork watch --every 30s
tickwork watch --once || echo "a schedule is late"
""",
    exit_codes={EXIT_FAILURE: "with --once: a schedule did not complete in time"},
)
@click.option(
    "--every",
    type=DURATION,
    default="10s",
    show_default=True,
    help="Longest time between two checks.",
)
@click.option("--once", is_flag=True, help="Check once, list late schedules, and raise no alert.")
def watch_command(ctx: CommandContext, every: timedelta, once: bool) -> None:  # noqa: FBT001  # a flag
    """Raise an alert if a schedule is late or a job keeps failing, and one when that is over.

    It checks the schedules that have expect_within and the jobs of app.alerts.watch_failures, and
    executes no runs. Run it beside the workers, best on another machine: then it also notices that
    no worker is alive. Several watch processes raise each alert once.
    """
    app = ctx.app
    if not once:
        ctx.out.note("Watching. Ctrl-C ends it.")
        app.watch(every)
        return
    report = WatchReport(missed=app.inspect.status().missed)
    ctx.out.show(report, lambda: _missed_parts(report))
    if report.missed:
        sys.exit(EXIT_FAILURE)


def _missed_parts(report: WatchReport) -> Iterator[Part]:
    yield TextTable(
        [Column("schedule"), Column("due"), Column("reason", is_flexible=True)],
        [
            (Cell(each.schedule, BAD), f"{each.due_at:%Y-%m-%d %H:%M:%S} UTC", each.reason)
            for each in report.missed
        ],
        empty="Every expected firing has completed.",
    )
