"""Commands that show the state: ``status``, ``runs``, ``inspect``."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import click

from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.stored_events import FOREVER
from tickwork._inspect.run_search import RunList
from tickwork._inspect.runs import ID_LENGTH, RunDetails, RunView, StepView
from tickwork._inspect.status import JobView, Status, WorkerView
from tickwork._kernel.durations import human_duration
from tickwork._kernel.plain_text import count_of
from tickwork._program import name_commands
from tickwork._stores.contract import Pause, RunFilter
from tickwork.cli.commands import CommandContext, command
from tickwork.cli.follow import RunFollower
from tickwork.cli.formats import clock_time, elapsed, local_zone, progress_text, relative, shown
from tickwork.cli.output import json_text
from tickwork.cli.parameters import (
    DURATION,
    LIMIT,
    number_option,
    read_run_filter,
    run_filter_options,
)
from tickwork.cli.reasons import cause_lines
from tickwork.cli.render import (
    BAD,
    BOLD,
    BUSY,
    DIM,
    GOOD,
    WARN,
    Cell,
    Column,
    FieldList,
    Part,
    TextLine,
    TextTable,
    styled,
)

_QUEUE_COUNTS: Final = ("ready", "waiting", "blocked", "running")
OVERDUE: Final = timedelta(seconds=5)
TRACEBACK_LINES: Final = 12
CURSOR: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# ---------------------------------------------------------------- status


@command(
    result_type=Status,
    examples="""
tickwork status
tickwork status --watch
tickwork status --json | jq '.workers[].host'
""",
)
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--every", type=DURATION, default="1s", show_default=True, help="Refresh interval of --watch."
)
def status_command(ctx: CommandContext, watch: bool, every: timedelta) -> None:  # noqa: FBT001  # a flag
    """Show jobs, unfinished runs, workers and pauses."""
    app, out = ctx.app, ctx.out
    if not watch:
        status = app.inspect.status()
        out.show(status, lambda: status_parts(status))
        return
    with out.live() as draw, suppress(KeyboardInterrupt):
        while True:  # until Ctrl-C
            status = app.inspect.status()
            if out.is_json:
                click.echo(json_text(status, is_line=True))
            else:
                draw(status_parts(status))
            time.sleep(max(every.total_seconds(), 0.1))


def status_parts(status: Status) -> Iterator[Part]:
    now = status.now
    yield FieldList(
        [
            (
                "jobs",
                f"{status.defined} defined here, {status.running} running, {status.idle} idle",
            ),
            ("runs", _run_counts(status)),
            ("time", f"{shown(now)}, by the database's clock"),
        ]
    )
    if status.missed:
        yield TextTable(
            [Column("schedule"), Column("due"), Column("reason", is_flexible=True)],
            [
                (Cell(each.schedule, BAD), relative(each.due_at, now), each.reason)
                for each in status.missed
            ],
            title="Not completed in time",
        )
    if status.pauses:
        yield _pause_table(status.pauses, now)
    if status.queues:
        yield TextTable(
            [Column("queue"), *(Column(name, is_right=True) for name in _QUEUE_COUNTS)],
            [
                (
                    Cell(f"{queue.name} (paused)", WARN) if queue.is_paused else queue.name,
                    *(
                        f"{getattr(queue, name):,}{'+' if name in queue.capped else ''}"
                        for name in _QUEUE_COUNTS
                    ),
                )
                for queue in status.queues
            ],
            title="Queues",
        )
    yield TextTable(
        _JOB_COLUMNS,
        [_job_row(job, now) for job in status.jobs],
        title="Jobs",
        empty="No jobs: this program defines none, and none has run.",
    )
    yield TextTable(
        _WORKER_COLUMNS,
        [_worker_row(worker, now) for worker in status.workers],
        title="Workers",
        empty=name_commands("No worker is running. Start one: tickwork work"),
    )


_JOB_COLUMNS: Final = [
    Column("job"),
    Column("queue", drop=1),
    Column("priority", is_right=True, drop=2),
    Column("schedule", is_flexible=True),
    Column("last run"),
    Column("next run"),
    Column("running", is_right=True),
    Column("lease ends", drop=4),
    Column("failures", is_right=True),
    Column("seen", drop=3),
    Column("error", is_flexible=True),
]

_WORKER_COLUMNS: Final = [
    Column("host"),
    Column("pid", is_right=True),
    Column("uptime"),
    Column("last report"),
    Column("queues", is_flexible=True),
    Column("jobs", is_right=True, drop=1),
    Column("running", is_right=True),
    Column("slots", is_right=True),
]


def _pause_table(pauses: Sequence[Pause], now: datetime) -> TextTable:
    return TextTable(
        [Column("paused"), Column("name"), Column("since"), Column("until"), Column("note")],
        [
            (
                Cell(pause.kind.value, WARN),
                pause.name,
                relative(pause.paused_at, now),
                "resumed" if pause.until is None else relative(pause.until, now),
                pause.note,
            )
            for pause in pauses
        ],
        title="Pauses",
    )


def _run_counts(status: Status) -> str:
    counts = [
        f"{count:,}{' or more' if phase in status.capped else ''} {phase}"
        for phase, count in status.runs.items()
        if count
    ]
    return ", ".join(counts) or "none unfinished"


def _job_row(job: JobView, now: datetime) -> Sequence[Cell | str]:
    name = f"{job.tenant}/{job.name}" if job.tenant else job.name
    if job.is_paused:
        label = Cell(f"{name} (paused)", WARN)
    else:
        label = Cell(name, BOLD if job.is_defined else DIM)
    return (
        label,
        job.queue or "-",
        "-" if job.priority is None else str(job.priority),
        "; ".join(job.when) or "-",
        relative(job.last_run_at, now),
        _next_run(job.next_due_at, now),
        Cell(str(job.running), BUSY if job.running else DIM),
        relative(job.lease_until, now),
        Cell(str(job.failures), BAD if job.failures else DIM),
        relative(job.seen_at, now),
        Cell(job.last_error if job.failures else "", BAD),
    )


def _next_run(due_at: datetime | None, now: datetime) -> Cell:
    if due_at is None or due_at > now - OVERDUE:
        return Cell(relative(due_at, now))
    return Cell(f"overdue {relative(due_at, now).removesuffix(' ago')}", BAD)


def _worker_row(worker: WorkerView, now: datetime) -> Sequence[Cell | str]:
    report = relative(worker.beat_at, now)
    return (
        Cell(worker.host, BOLD),
        str(worker.pid),
        human_duration(timedelta(seconds=round((now - worker.started_at).total_seconds()))),
        Cell(f"{report} (silent)", BAD)
        if worker.is_silent
        else Cell(f"{report} (draining)", WARN)
        if worker.is_draining
        else Cell(report, GOOD),
        "all" if worker.queues is None else ", ".join(worker.queues) or "(remote engine)",
        str(worker.jobs),
        str(worker.running),
        str(worker.slots),
    )


# ---------------------------------------------------------------- runs


@command(
    result_type=RunList,
    examples="""
tickwork runs
tickwork runs --job send_email --status failed_permanent --since 2h
tickwork runs --arg customer=42 --arg address.city=Bern
tickwork runs --text TimeoutError
tickwork runs --waiting
tickwork runs --follow
tickwork runs --json -n 1000 | jq -r '.runs[].id'
""",
)
@run_filter_options
@click.option("--text", default="", help="Only runs with this text: id, job, argument or error.")
@click.option("--arg", "args", multiple=True, metavar="NAME=VALUE", help="Only with this argument.")
@number_option("-n", "--limit", type=LIMIT, default=20, help="Number of runs.")
@click.option("--after", "cursor", metavar="CURSOR", help="Next page: the cursor of the last one.")
@click.option("-f", "--follow", is_flag=True, help="Print changes until Ctrl-C.")
@click.option(
    "--every",
    type=DURATION,
    default="500ms",
    show_default=True,
    help="Poll interval of --follow.",
)
def runs_command(
    ctx: CommandContext,
    *,
    text: str,
    args: tuple[str, ...],
    limit: int,
    cursor: str | None,
    follow: bool,
    every: timedelta,
    **filters: Any,
) -> None:
    """List runs, finished and unfinished, the newest first.

    --text and --arg search a few thousand runs at a time, and print how far they searched.
    Secrets are not searched. With --follow, print a line for each new run and each change of
    status; with --json, each line is a JSON object.
    """
    if cursor is not None and not CURSOR.fullmatch(cursor):
        raise click.BadParameter(
            f"{cursor!r} is not a cursor. --json prints it as .cursor.", param_hint="--after"
        )
    app, where = ctx.app, read_run_filter(filters)
    if follow:
        if cursor is not None:
            raise click.UsageError("--follow starts with the newest runs: remove --after.")
        if text or args:
            raise click.UsageError("--follow does not search: remove --text and --arg.")
        _follow(ctx, RunFollower(app, where, limit=limit), every=every)
        return
    if text or args:
        runs = app.inspect.list_runs(where, text=text, args=args, cursor=cursor, limit=limit)
    else:
        page = app.runs.page(where, cursor=cursor, limit=limit)
        runs = RunList(runs=[app.inspect.view(run) for run in page.runs], cursor=page.cursor)
    now = app.clock.now()
    ctx.out.show(runs, lambda: [*run_parts(runs, now), *_hints(where), *_bounds(runs)])


def _bounds(runs: RunList) -> list[TextLine]:
    if runs.searched_since is None:
        return []
    since = f"{runs.searched_since:%Y-%m-%d %H:%M:%S} UTC"
    hint = f"Searched back to {since}. To search older runs, add --after {runs.cursor}"
    return [TextLine(hint, DIM)]


def _hints(where: RunFilter) -> list[TextLine]:
    statuses = where.statuses or frozenset()
    if RunStatus.FAILED not in statuses or RunStatus.FAILED_PERMANENT in statuses:
        return []
    hint = "These failed, and will be retried. For runs without further attempts, add"
    return [TextLine(f"{hint} --status failed_permanent", DIM)]


def run_parts(runs: RunList, now: datetime) -> Iterator[Part]:
    width = id_width([view.id for view in runs.runs])
    yield TextTable(
        [
            Column("id"),
            Column("job"),
            Column("status"),
            Column("due"),
            Column("duration", is_right=True, drop=2),
            Column("attempts", is_right=True, drop=1),
            Column("details", is_flexible=True),
        ],
        [_run_row(view, now, width) for view in runs.runs],
        empty="No runs match.",
    )
    if runs.cursor is not None:
        yield TextLine(f"More runs: raise -n, or add --after {runs.cursor}", DIM)


def _run_row(view: RunView, now: datetime, width: int) -> Sequence[Cell | str]:
    status = styled(view.status)
    if view.status is RunStatus.PENDING and view.phase is not Phase.READY:
        status = Cell(f"{view.status} ({view.phase})", DIM)
    return (
        Cell(view.id[:width], BOLD),
        view.job,
        status,
        _due_text(view.due_at, now),
        elapsed(view.started_at, view.ended_at or (now if view.lease_until else None)),
        f"{view.attempt}/{view.attempts_max}",
        run_summary(view),
    )


def _due_text(due_at: datetime, now: datetime) -> str:
    if due_at >= FOREVER:
        return "when it is woken"
    return f"{clock_time(due_at, now)} ({relative(due_at, now)})"


def run_summary(view: RunView) -> str:
    """One line: what went wrong, or the progress and the arguments."""
    if view.reason and view.status is not RunStatus.COMPLETED:
        return view.reason.splitlines()[0]
    parts = [f"{name}={_short(value)}" for name, value in view.args.items()]
    if view.schedule is not None and view.schedule != view.job:
        parts.insert(0, f"schedule {view.schedule}")
    if view.progress is not None and view.status is RunStatus.RUNNING:
        parts.insert(0, progress_text(view.progress))
    return " ".join(parts)


def id_width(ids: Iterable[str], shortest: int = 13) -> int:
    """How many characters distinguish these ids."""
    known = sorted(set(ids))
    width = shortest
    for one, other in pairwise(known):
        same = next((at for at in range(len(one)) if one[at] != other[at]), len(one))
        width = max(width, same + 1)
    # A trailing dash distinguishes nothing.
    is_dash = known and width < ID_LENGTH and known[0][width - 1] == "-"
    return width + 1 if is_dash else width


def _follow(ctx: CommandContext, follower: RunFollower, *, every: timedelta) -> None:
    with suppress(KeyboardInterrupt):
        for run in follower.newest:
            _print_change(ctx, run)
        while True:  # until Ctrl-C
            for run in follower.poll():
                _print_change(ctx, run)
            time.sleep(max(every.total_seconds(), 0.05))


def _print_change(ctx: CommandContext, run: Run) -> None:
    view = ctx.app.inspect.view(run)
    if ctx.out.is_json:
        click.echo(json_text(view, is_line=True))
        return
    at = view.ended_at or view.started_at or view.created_at
    ctx.out.write_line(
        [
            Cell(clock_time(at, ctx.app.clock.now()), DIM),
            Cell(view.id, DIM),
            Cell(f"{view.status:<16}", styled(view.status).style),
            Cell(view.job, BOLD),
            Cell(elapsed(view.started_at, view.ended_at, nothing=""), DIM),
            Cell(run_summary(view)),
        ]
    )


# ---------------------------------------------------------------- inspect


@command(
    result_type=RunDetails,
    examples="""
tickwork inspect 019b78c9-0a80
tickwork inspect 019b78c9-0a80 --json | jq .run.args
""",
)
@click.argument("run", metavar="ID")
@click.option("--traceback", "is_full", is_flag=True, help="Print the tracebacks in full.")
def inspect_command(ctx: CommandContext, run: str, is_full: bool) -> None:  # noqa: FBT001  # a flag
    """Show one run: attempts, steps, arguments, result, logs.

    For an unfinished run, also show why it has not finished. ID can be the first characters
    of an id, as long as they match one run only.
    """
    app = ctx.app
    details = app.inspect.details(app.inspect.find(run))
    now = app.clock.now()
    ctx.out.show(details, lambda: details_parts(details, now, is_full=is_full))


def details_parts(details: RunDetails, now: datetime, *, is_full: bool) -> Iterator[Part]:
    run = details.run
    yield FieldList(list(_run_fields(run, now)))
    if run.args:
        yield FieldList([(name, _text(value)) for name, value in run.args.items()], "Arguments")
    yield TextTable(
        [
            Column(""),
            Column("time"),
            Column("event"),
            Column("worker"),
            Column("details", is_flexible=True),
        ],
        list(_timeline(details, now)),
        title=f"Timeline ({local_zone(now)})",
    )
    if details.steps:
        yield TextTable(
            [
                Column("step"),
                Column("kind"),
                Column("state"),
                Column("time"),
                Column("value", is_flexible=True),
            ],
            [
                (
                    step.name,
                    step.kind.value,
                    styled(step.state),
                    clock_time(step.at, now),
                    _step_text(step, now),
                )
                for step in details.steps
            ],
            title="Steps",
        )
    if details.children or details.callers:
        yield TextTable(
            [Column("run"), Column("job"), Column("status"), Column("call", is_flexible=True)],
            [
                *((caller, "", "", "has called this run") for caller in details.callers),
                *(
                    (
                        each.id,
                        each.job,
                        "deleted" if each.status is None else styled(each.status),
                        each.step,
                    )
                    for each in details.children
                ),
            ],
            title="Calls",
        )
    for attempt in details.attempts:
        if attempt.traceback and (is_full or attempt is details.attempts[-1]):
            lines = attempt.traceback.rstrip().splitlines()
            if not is_full and len(lines) > TRACEBACK_LINES:
                lines = ["  … (--traceback prints all of it)", *lines[-TRACEBACK_LINES:]]
            yield TextLine(f"\nTraceback of attempt {attempt.attempt}", BOLD)
            # Indented: the text of an exception may look like another part of this page.
            yield from (TextLine(f"  {line}") for line in lines)
    if details.log:
        yield TextTable(
            [
                Column("time"),
                Column("level"),
                Column("logger"),
                Column("message", is_flexible=True),
            ],
            [
                (clock_time(line.at, now), line.level, line.logger, line.message)
                for line in details.log
            ],
            title="Log",
        )
    if details.causes:
        yield TextLine("\nWhy it has not finished", BOLD)
        yield from cause_lines(details.causes, now)


def _run_fields(run: RunView, now: datetime) -> Iterator[tuple[str, Cell | str]]:
    yield "run", Cell(run.id, BOLD)
    yield "job", run.job + (f" (tenant {run.tenant})" if run.tenant else "")
    yield "status", styled(run.status)
    if run.phase is not None and run.phase.value != run.status.value:
        yield "phase", run.phase.value
    yield "queue", f"{run.queue}, priority {run.priority}"
    if run.schedule is not None:
        yield "schedule", f"{run.schedule}, for {shown(run.nominal_at)}"
    if run.instants > 1:
        yield "stands for", f"{run.instants} consecutive instants"
    if run.due_at < FOREVER:
        yield "due", f"{shown(run.due_at)} ({relative(run.due_at, now)})"
    if run.expires_at is not None:
        yield "expires", f"{shown(run.expires_at)} ({relative(run.expires_at, now)})"
    crashes = f", {count_of(run.crashes, 'crash', 'crashes')}" if run.crashes else ""
    yield "attempts", f"{run.attempt} of {run.attempts_max}{crashes}"
    if run.lease_until is not None:
        yield "lease", f"until {shown(run.lease_until)}, worker {run.worker}"
    if run.external_id is not None:
        yield "handed over", f"as {run.external_id}"
    if run.blocked_on:
        yield "blocked on", Cell(run.blocked_on, WARN)
    if run.progress is not None:
        yield "progress", progress_text(run.progress)
    if run.target:
        yield "target", run.target
    if run.tags:
        yield "tags", ", ".join(run.tags)
    if run.retry_of is not None:
        yield "retry of", run.retry_of
    if run.result is not None:
        yield "result", _text(run.result)
    if run.reason:
        yield "reason", Cell(run.reason, styled(run.status).style)


def _timeline(details: RunDetails, now: datetime) -> Iterator[Sequence[Cell | str]]:
    run = details.run
    # A first due time is known until an attempt moves it.
    is_later = run.due_at > run.created_at and not run.attempt
    due = f"due {relative(run.due_at, run.created_at)}" if is_later else ""
    events: list[tuple[datetime, str, Cell, str, str]] = [
        (run.created_at, "", Cell("created"), "", due)
    ]
    for attempt in details.attempts:
        number = f"attempt {attempt.attempt}"
        if attempt.started_at is not None:
            events.append((attempt.started_at, number, Cell("started", BUSY), "", ""))
        error = attempt.error.splitlines()[0] if attempt.error else ""
        what = Cell(
            _after(attempt.outcome, attempt.started_at, attempt.ended_at),
            styled(attempt.outcome).style or WARN,
        )
        events.append((attempt.ended_at, number, what, str(attempt.worker or ""), error))
    if run.started_at is not None and (run.lease_until is not None or not details.attempts):
        number, worker = f"attempt {run.attempt}", str(run.worker or "")
        events.append((run.started_at, number, Cell("started", BUSY), worker, ""))
    if run.cancel_requested_at is not None:
        events.append((run.cancel_requested_at, "", Cell("cancel requested", WARN), "", ""))
    if run.ended_at is not None:
        what = Cell(
            _after(run.status.value, run.started_at, run.ended_at), styled(run.status).style
        )
        events.append((run.ended_at, "", what, "", ""))
    elif now < run.due_at < FOREVER:
        events.append((run.due_at, "", Cell("due", DIM), "", relative(run.due_at, now)))
    for at, number, event, worker, text in sorted(events, key=lambda event: event[0]):
        yield number, clock_time(at, now), event, worker[:13], text


def _after(what: str, started_at: datetime | None, ended_at: datetime) -> str:
    return what if started_at is None else f"{what} after {elapsed(started_at, ended_at)}"


def _step_text(step: StepView, now: datetime) -> str:
    if step.until is not None and step.value is None:
        return f"until {shown(step.until)} ({relative(step.until, now)})"
    if step.run is not None and step.value is None:
        return f"run {step.run}"
    return _text(step.value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value, is_line=True)


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
