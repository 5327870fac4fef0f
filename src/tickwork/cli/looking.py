"""Commands that look: ``status``, ``runs``, ``inspect``."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import click

from tickwork._domain.explain import Cause
from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._domain.status import Phase, RunStatus
from tickwork._inspect.runs import RunDetails, RunView
from tickwork._inspect.status import JobView, Status, WorkerView
from tickwork._kernel.durations import human_duration
from tickwork.app import Tickwork
from tickwork.cli.causes import cause_lines
from tickwork.cli.commands import AGO, LENGTH, Call, complete_jobs, verb
from tickwork.cli.render import (
    BAD,
    BOLD,
    BUSY,
    DIM,
    GOOD,
    WARN,
    Cell,
    Column,
    Facts,
    Line,
    Part,
    Table,
    json_text,
    styled,
)
from tickwork.cli.times import clock_time, local_zone, relative, shown, took
from tickwork.stores.contract import Attempt, LogLine, RunFilter

STATUSES: Final = click.Choice([status.value for status in RunStatus])
FOLLOWED_MAX: Final = 1_000
"""Unfinished runs that a tail keeps an eye on, besides new ones."""

PAGE: Final = 200
OVERDUE: Final = timedelta(seconds=5)
CURSOR: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# ---------------------------------------------------------------- status


@verb(
    name="status",
    answer=Status,
    examples="""
tickwork status
tickwork status --watch
tickwork status --json | jq '.workers[].host'
""",
)
@click.option("-w", "--watch", is_flag=True, help="Draw it again and again, until Ctrl-C.")
@click.option("--every", type=LENGTH, default="1s", show_default=True, help="How often to draw it.")
def status_command(call: Call, watch: bool, every: timedelta) -> None:  # noqa: FBT001  # a flag
    """Show what there is: jobs, runs, workers, pauses."""
    app, out = call.app, call.out
    if not watch:
        found = app.inspect.status()
        out.show(found, lambda: status_parts(found))
        return
    with out.live() as draw, _until_interrupted():
        # It ends with Ctrl-C.
        while True:
            found = app.inspect.status()
            if out.is_json:
                click.echo(json_text(found, is_line=True))
            else:
                draw(status_parts(found))
            time.sleep(max(every.total_seconds(), 0.1))


def status_parts(found: Status) -> Iterator[Part]:
    """The whole table of status, for people."""
    now = found.now
    yield Facts(
        [
            ("jobs", f"{found.defined} defined here, {found.running} running, {found.idle} idle"),
            ("runs", _counts(found)),
            ("time", f"{shown(now)}, by the database"),
        ]
    )
    if found.pauses:
        yield Table(
            [Column("paused"), Column("name"), Column("since"), Column("until"), Column("note")],
            [
                (
                    Cell(pause.kind.value, WARN),
                    pause.name,
                    relative(pause.paused_at, now),
                    "resumed" if pause.until is None else relative(pause.until, now),
                    pause.note,
                )
                for pause in found.pauses
            ],
            title="Pauses",
        )
    yield Table(
        [
            Column("job"),
            Column("queue", drop=1),
            Column("prio", is_right=True, drop=1),
            Column("when", is_flexible=True),
            Column("last run"),
            Column("next run"),
            Column("running", is_right=True),
            Column("leased", drop=3),
            Column("fails", is_right=True),
            Column("seen", drop=2),
            Column("error", is_flexible=True),
        ],
        [_job_row(job, now) for job in found.jobs],
        title="Jobs",
        empty="No job is defined, and none has ever run.",
    )
    yield Table(
        [
            Column("worker"),
            Column("pid", is_right=True),
            Column("up"),
            Column("heard"),
            Column("queues", is_flexible=True),
            Column("jobs", is_right=True, drop=1),
            Column("running", is_right=True),
            Column("slots", is_right=True),
        ],
        [_worker_row(worker, now) for worker in found.workers],
        title="Workers",
        empty="No worker is up: nothing will run. Start one: tickwork work",
    )


def _counts(found: Status) -> str:
    def many(count: int) -> str:
        return f"{count:,}" if count < found.cap else f"{found.cap:,} or more"

    shown = [f"{many(count)} {phase}" for phase, count in found.runs.items() if count]
    return ", ".join(shown) or "none unfinished"


def _job_row(job: JobView, now: datetime) -> Sequence[Cell | str]:
    name = job.name if not job.tenant else f"{job.tenant}/{job.name}"
    if job.is_paused:
        label = Cell(f"{name} (paused)", WARN)
    elif not job.is_defined:
        label = Cell(name, DIM)
    else:
        label = Cell(name, BOLD)
    return (
        label,
        job.queue or "-",
        "-" if job.priority is None else str(job.priority),
        "; ".join(job.when) or "-",
        relative(job.last_run_at, now),
        _next_cell(job.next_due_at, now),
        Cell(str(job.running), BUSY if job.running else DIM),
        relative(job.lease_until, now),
        Cell(str(job.failures), BAD if job.failures else DIM),
        relative(job.seen_at, now),
        Cell(job.last_error if job.failures else "", BAD),
    )


def _next_cell(due_at: datetime | None, now: datetime) -> Cell:
    if due_at is None or due_at > now - OVERDUE:
        return Cell(relative(due_at, now))
    return Cell(f"overdue {relative(due_at, now).removesuffix(' ago')}", BAD)


def _worker_row(worker: WorkerView, now: datetime) -> Sequence[Cell | str]:
    heard = relative(worker.beat_at, now)
    return (
        Cell(worker.host, BOLD),
        str(worker.pid),
        human_duration(timedelta(seconds=round((now - worker.started_at).total_seconds()))),
        Cell(f"{heard} (silent)", BAD) if worker.is_silent else Cell(heard, GOOD),
        "all" if worker.queues is None else ", ".join(worker.queues),
        str(worker.jobs),
        str(worker.running),
        str(worker.slots),
    )


# ---------------------------------------------------------------- runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """Runs, the newest first; ``cursor`` is for --after, None at the end."""

    runs: list[RunView]
    cursor: str | None


def run_filters(command: Any) -> Any:
    """The options by which runs are chosen."""
    for option in reversed(
        [
            click.option("-j", "--job", shell_complete=complete_jobs, help="Only of this job."),
            click.option("-q", "--queue", help="Only in this queue."),
            click.option(
                "-s",
                "--status",
                "statuses",
                type=STATUSES,
                multiple=True,
                help="Only with this status; may be repeated.",
            ),
            click.option("--schedule", help="Only of this schedule."),
            click.option("--tag", help="Only with this tag."),
            click.option("--tenant", help="Only of this tenant."),
            click.option("--since", type=AGO, help="Created since: a time, or 2h for 2 hours ago."),
            click.option("--before", type=AGO, help="Created before that."),
        ]
    ):
        command = option(command)
    return command


def filter_of(said: dict[str, Any]) -> RunFilter:
    """What those options say."""
    statuses = frozenset(RunStatus(status) for status in said.pop("statuses"))
    return RunFilter(statuses=statuses, **said)


@verb(
    name="runs",
    answer=RunList,
    examples="""
tickwork runs
tickwork runs --job send_email --status failed_permanent --since 2h
tickwork runs --follow
tickwork runs --json -n 1000 | jq -r '.runs[].id'
""",
)
@run_filters
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="How many at the most.",
)
@click.option("--after", "cursor", help="The next page: the cursor of the last one (--json).")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option(
    "--every", type=LENGTH, default="500ms", show_default=True, help="How often to look again."
)
def runs_command(
    call: Call,
    *,
    limit: int,
    cursor: str | None,
    follow: bool,
    every: timedelta,
    **said: Any,
) -> None:
    """List runs, finished and unfinished, the newest first.

    With --follow it prints a line whenever a run is new or its status changes. With --json
    each of them is one line of JSON then.
    """
    if cursor is not None and not CURSOR.fullmatch(cursor):
        raise click.BadParameter(f"{cursor!r} is no cursor of --json.", param_hint="--after")
    app, out, where = call.app, call.out, filter_of(said)
    page = app.runs.page(where, cursor=cursor, limit=limit)
    views = [app.inspect.view(run) for run in page.runs]
    now = app.clock.now()
    if follow:
        _follow(call, where, page.runs, every=every)
        return
    found = RunList(runs=views, cursor=page.cursor)
    out.show(found, lambda: run_parts(found, now))


def run_parts(found: RunList, now: datetime) -> Iterator[Part]:
    """A table of runs, for people."""
    width = id_width([view.id for view in found.runs])
    yield Table(
        [
            Column("id"),
            Column("job"),
            Column("status"),
            Column("due"),
            Column("took", is_right=True, drop=2),
            Column("tries", is_right=True, drop=1),
            Column("about", is_flexible=True),
        ],
        [_run_row(view, now, width) for view in found.runs],
        empty="No run fits.",
    )
    if found.cursor is not None:
        yield Line(f"There are more: -n, or --after {found.cursor}", DIM)


def _run_row(view: RunView, now: datetime, width: int) -> Sequence[Cell | str]:
    return (
        Cell(view.id[:width], BOLD),
        view.job,
        _status_cell(view),
        f"{clock_time(view.due_at, now)} ({relative(view.due_at, now)})",
        took(view.started_at, view.ended_at or (now if view.lease_until else None)),
        f"{view.attempt}/{view.attempts_max}",
        about(view),
    )


def _status_cell(view: RunView) -> Cell:
    if view.status is RunStatus.PENDING and view.phase is not Phase.READY:
        return Cell(f"{view.status} ({view.phase})", DIM)
    return styled(view.status)


def about(view: RunView) -> str:
    """What a run is about, in one line: what went wrong, or its arguments."""
    if view.reason and view.status is not RunStatus.COMPLETED:
        return view.reason.splitlines()[0]
    words = [f"{name}={_short(value)}" for name, value in view.args.items()]
    if view.schedule is not None and view.schedule != view.job:
        words.insert(0, f"schedule {view.schedule}")
    return " ".join(words)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json_text(value, is_line=True)
    return text if len(text) <= 40 else f"{text[:37]}..."


def id_width(ids: Iterable[str], shortest: int = 13) -> int:
    """How much of these ids tells them apart."""
    known = sorted(set(ids))
    width = shortest
    for one, other in pairwise(known):
        same = next((at for at in range(len(one)) if one[at] != other[at]), len(one))
        width = max(width, same + 1)
    # A dash at the end tells nothing.
    return width + 1 if known and width < 36 and known[0][width - 1] == "-" else width


# ---------------------------------------------------------------- follow


class Tail:
    """Notices runs that are new, and those whose status has changed."""

    def __init__(self, app: Tickwork, where: RunFilter, seen: Iterable[Run]) -> None:
        self._app = app
        self._where = where
        self._seen: dict[str, tuple[RunStatus, int]] = {}
        self._open: dict[RunId, Run] = {}
        for run in seen:
            self._note(run)

    def look(self) -> list[Run]:
        """What has changed since the last look, the oldest first."""
        page = self._app.runs.page(self._where, limit=PAGE).runs
        found = {run.id: run for run in page}
        gone = [run_id for run_id in self._open if run_id not in found]
        # What was open and is not among the newest any more is asked for by id.
        for run in self._app.runs.several(gone):
            found[run.id] = run
        news = [run for run in found.values() if self._seen.get(run.id) != _state(run)]
        for run in found.values():
            self._note(run)
        return sorted(news, key=lambda run: run.ended_at or run.started_at or run.created_at)

    def _note(self, run: Run) -> None:
        self._seen[run.id] = _state(run)
        if run.is_finished:
            self._open.pop(run.id, None)
        else:
            self._open[run.id] = run
        for old in list(self._open)[: max(len(self._open) - FOLLOWED_MAX, 0)]:
            del self._open[old]
        for oldest in list(self._seen)[: max(len(self._seen) - 10 * FOLLOWED_MAX, 0)]:
            del self._seen[oldest]


def _state(run: Run) -> tuple[RunStatus, int]:
    return run.status, run.token


def _follow(call: Call, where: RunFilter, seen: list[Run], *, every: timedelta) -> None:
    tail = Tail(call.app, where, seen)
    with _until_interrupted():
        for run in reversed(seen):
            _print_news(call, run)
        # It ends with Ctrl-C.
        while True:
            for run in tail.look():
                _print_news(call, run)
            time.sleep(max(every.total_seconds(), 0.05))


def _print_news(call: Call, run: Run) -> None:
    view = call.app.inspect.view(run)
    if call.out.is_json:
        click.echo(json_text(view, is_line=True))
        return
    moment = view.ended_at or view.started_at or view.created_at
    lasted = took(view.started_at, view.ended_at)
    words = [
        Cell(clock_time(moment, call.app.clock.now()), DIM),
        Cell(view.id, DIM),
        Cell(f"{view.status:<16}", styled(view.status).style),
        Cell(view.job, BOLD),
        Cell("" if lasted == "-" else lasted, DIM),
        Cell(about(view), ""),
    ]
    call.out.words(words)


class _until_interrupted:  # noqa: N801  # reads as a sentence
    """Ctrl-C is how a live view ends: no error, and no traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is KeyboardInterrupt


# ---------------------------------------------------------------- inspect


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """A run's whole story, and why it has not finished if it has not."""

    run: RunView
    attempts: list[Attempt]
    log: list[LogLine]
    causes: list[Cause]


@verb(
    name="inspect",
    answer=Inspected,
    examples="""
tickwork inspect 019b78c9-0a80
tickwork inspect 019b78c9-0a80 --json | jq .run.args
""",
)
@click.argument("run", metavar="ID")
@click.option("--traceback", "with_traceback", is_flag=True, help="With whole tracebacks.")
def inspect_command(call: Call, run: str, with_traceback: bool) -> None:  # noqa: FBT001  # a flag
    """Tell a run's whole story.

    Attempts, arguments, errors, log, and why it has not finished if it has not.

    ID is the beginning of an id, as long as it is that of one run only.
    """
    app = call.app
    story = app.inspect.details(app.inspect.find(run))
    causes = [] if story.run.ended_at else app.explain(story.run.id).causes
    found = Inspected(run=story.run, attempts=story.attempts, log=story.log, causes=list(causes))
    now = app.clock.now()
    call.out.show(found, lambda: story_parts(story, causes, now, with_traceback=with_traceback))


def story_parts(
    story: RunDetails, causes: Sequence[Cause], now: datetime, *, with_traceback: bool
) -> Iterator[Part]:
    """A run's story, for people."""
    run = story.run
    yield Facts(list(_run_facts(run, now)))
    if run.args:
        yield Facts([(name, _value(value)) for name, value in run.args.items()], title="Arguments")
    yield Table(
        [
            Column(""),
            Column("when"),
            Column("what"),
            Column("by"),
            Column("about", is_flexible=True),
        ],
        list(_timeline(story, now)),
        title=f"Timeline ({local_zone(now)})",
    )
    for attempt in story.attempts:
        if attempt.traceback and (with_traceback or attempt is story.attempts[-1]):
            lines = attempt.traceback.rstrip().splitlines()
            if not with_traceback and len(lines) > 12:
                lines = ["  … the rest by --traceback", *lines[-12:]]
            yield Line(f"\nTraceback of attempt {attempt.attempt}", BOLD)
            yield Line("\n".join(lines))
    if story.log:
        yield Table(
            [Column("at"), Column("level"), Column("logger"), Column("message", is_flexible=True)],
            [
                (clock_time(line.at, now), line.level, line.logger, line.message)
                for line in story.log
            ],
            title="Log",
        )
    if causes:
        yield Line("\nWhy it has not finished", BOLD)
        yield from cause_lines(causes, now)


def _run_facts(run: RunView, now: datetime) -> Iterator[tuple[str, Cell | str]]:
    yield "run", Cell(run.id, BOLD)
    yield "job", run.job + (f" (tenant {run.tenant})" if run.tenant else "")
    yield "status", styled(run.status)
    if run.phase is not None and run.phase.value != run.status.value:
        yield "phase", run.phase.value
    yield "queue", f"{run.queue}, priority {run.priority}"
    if run.schedule is not None:
        yield "schedule", f"{run.schedule}, for {shown(run.nominal_at)}"
    if run.instants > 1:
        yield "stands for", f"{run.instants} instants in a row"
    yield "due", f"{shown(run.due_at)} ({relative(run.due_at, now)})"
    if run.expires_at is not None:
        yield "expires", f"{shown(run.expires_at)} ({relative(run.expires_at, now)})"
    yield (
        "attempts",
        f"{run.attempt} of {run.attempts_max}"
        + (f", {run.crashes} crashes" if run.crashes else ""),
    )
    if run.lease_until is not None:
        yield "leased", f"until {shown(run.lease_until)} by worker {run.worker}"
    if run.blocked_on:
        yield "blocked on", Cell(run.blocked_on, WARN)
    if run.progress is not None:
        yield "progress", _value(run.progress)
    if run.target:
        yield "target", run.target
    if run.tags:
        yield "tags", ", ".join(run.tags)
    if run.retry_of is not None:
        yield "again for", run.retry_of
    if run.result is not None:
        yield "result", _value(run.result)
    if run.reason:
        yield "reason", Cell(run.reason, styled(run.status).style)


def _timeline(story: RunDetails, now: datetime) -> Iterator[Sequence[Cell | str]]:
    run = story.run
    events: list[tuple[datetime, str, Cell, str, str]] = [
        (run.created_at, "", Cell("created"), "", _due_first(run))
    ]
    for attempt in story.attempts:
        number = f"attempt {attempt.attempt}"
        if attempt.started_at is not None:
            events.append((attempt.started_at, number, Cell("started", BUSY), "", ""))
        lasted = took(attempt.started_at, attempt.ended_at)
        said = attempt.error.splitlines()[0] if attempt.error else ""
        what = Cell(
            attempt.outcome + ("" if lasted == "-" else f" after {lasted}"),
            styled(attempt.outcome).style or WARN,
        )
        events.append((attempt.ended_at, number, what, str(attempt.worker or ""), said))
    if run.started_at is not None and run.lease_until is not None:
        events.append(
            (run.started_at, f"attempt {run.attempt}", Cell("started", BUSY), str(run.worker), "")
        )
    elif run.started_at is not None and not story.attempts:
        events.append(
            (
                run.started_at,
                f"attempt {run.attempt}",
                Cell("started", BUSY),
                str(run.worker or ""),
                "",
            )
        )
    if run.cancel_requested_at is not None:
        events.append((run.cancel_requested_at, "", Cell("cancel asked for", WARN), "", ""))
    if run.ended_at is not None:
        lasted = took(run.started_at, run.ended_at)
        what = Cell(
            run.status.value + ("" if lasted == "-" else f" after {lasted}"),
            styled(run.status).style,
        )
        events.append((run.ended_at, "", what, "", ""))
    elif run.due_at > now:
        events.append((run.due_at, "", Cell("due", DIM), "", relative(run.due_at, now)))
    for at, number, what, worker, said in sorted(events, key=lambda event: event[0]):
        yield number, clock_time(at, now), what, worker[:13], said


def _due_first(run: RunView) -> str:
    """When it was due at first: known for as long as no attempt has moved that."""
    is_later = run.due_at > run.created_at and not run.attempt
    return f"due {relative(run.due_at, run.created_at)}" if is_later else ""


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value, is_line=True)
