"""Commands that change something: dispatch, retry, cancel, pause, resume, prune."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import click

from tickwork._control.audit import subject_of
from tickwork._define.definition import Definition
from tickwork._dispatch.dispatch_options import apply_dispatch_options
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.identity import RunId
from tickwork._domain.runs.status import FINAL, RunStatus
from tickwork._inspect.runs import DispatchedRunView
from tickwork._kernel.plain_text import count_of
from tickwork._stores.contract import Pruned, RunFilter
from tickwork.app.tickwork import Tickwork
from tickwork.cli.commands import EXIT_FAILURE, CommandContext, command
from tickwork.cli.formats import relative, shown
from tickwork.cli.parameters import (
    DURATION,
    FUTURE_TIME,
    LIMIT,
    apply_options,
    complete_jobs,
    number_option,
    read_run_filter,
    run_filter_options,
)
from tickwork.cli.render import BAD, DIM, GOOD, WARN, Column, Part, TextLine, TextTable, styled
from tickwork.errors import ArgumentError, RunError

LINES_MAX: Final = 20
UNFINISHED: Final = frozenset(RunStatus) - FINAL

# ---------------------------------------------------------------- dispatch


@command(
    result_type=DispatchedRunView,
    examples="""
tickwork dispatch greet name=Ann
tickwork dispatch report '{"kind": "daily", "pages": [1, 2]}' --delay 10m
tickwork dispatch send_email to=ann@example.org --at 2026-03-01T09:00 --queue slow
tickwork dispatch import --wait --timeout 5m && echo done
tickwork dispatch billing.close_month --remote year=2026
""",
    exit_codes={EXIT_FAILURE: "the dispatch failed; with --wait, the run did not complete"},
)
@click.argument("job", shell_complete=complete_jobs)
@click.argument("args", nargs=-1, metavar="[KEY=VALUE | JSON]...")
@click.option("--delay", type=DURATION, help="Run after this delay: 10m.")
@click.option("--at", type=FUTURE_TIME, help="Run at this time; local time without an offset.")
@click.option("-q", "--queue", help="Queue, instead of the job's.")
@number_option("--priority", help="Priority: lower numbers run first.")
@click.option("--unique", metavar="KEY", help="Create no run if an unfinished one has this key.")
@click.option(
    "--debounce", type=DURATION, help="Run once, this long after the last equal dispatch."
)
@click.option("--expires", type=DURATION, help="Skip the run if it starts later than this.")
@click.option("--tag", "tags", multiple=True, help="Tag. Repeatable.")
@click.option("--tenant", help="Tenant of the run.")
@click.option("--target", help="The object in your application that the run is about.")
@click.option(
    "--remote",
    is_flag=True,
    help="Another program defines the job: do not check its name and arguments.",
)
@click.option("--wait", is_flag=True, help="Wait until the run has finished, and print its result.")
@click.option("--timeout", type=DURATION, help="Limit of --wait (exit code 5).")
def dispatch_command(
    ctx: CommandContext,
    *,
    job: str,
    args: tuple[str, ...],
    remote: bool,
    wait: bool,
    timeout: timedelta | None,
    **options: Any,
) -> None:
    """Create a run of a job.

    A VALUE that is valid JSON is read as JSON (n=3, on=true, list=[1,2]); any other is text.
    For a parameter of type str it is always text. An argument that begins with { is a JSON
    object of several arguments. Values become what the parameter's annotation names: text a
    datetime or a Path, an object a dataclass or a model.
    """
    app = ctx.app
    if options["delay"] is not None and options["at"] is not None:
        raise click.UsageError("Use --delay or --at, not both.")
    draft = apply_dispatch_options(app.remote(job).draft if remote else app.draft, options)
    definition = None if remote else app.registry.get(job)
    arguments = _parse_arguments(args, definition)

    def dispatch() -> RunHandle[Any]:
        handle: RunHandle[Any] = (
            draft.dispatch(**arguments) if remote else draft.args(**arguments).dispatch(job)
        )
        return handle

    # Values of arguments may be secret: the audit log has their names.
    detail = {**options, "args": sorted(arguments)}
    handle = ctx.audit("run.dispatch", f"job/{job}", dispatch, **detail)
    if wait:
        handle.wait(timeout)
    dispatched = app.inspect.view_dispatched(handle)
    now = app.clock.now()
    ctx.out.show(dispatched, lambda: _dispatch_parts(dispatched, now, is_waited=wait))
    if wait and dispatched.run.status is not RunStatus.COMPLETED:
        sys.exit(EXIT_FAILURE)


def _parse_arguments(args: Sequence[str], definition: Definition | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for arg in args:
        if arg.lstrip().startswith("{"):
            try:
                parsed = json.loads(arg)
            except ValueError as error:
                raise click.BadParameter(f"{arg} is not valid JSON: {error}.") from None
            arguments.update(parsed if definition is None else definition.payload.rebuild(parsed))
            continue
        name, equals, value = arg.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(
                f"{arg!r} is not an argument. Write KEY=VALUE, or a JSON object: "
                '\'{"name": "Ann"}\'.'
            )
        if name in arguments:
            raise click.BadParameter(f"{name!r} is given twice.")
        arguments[name] = _value_of(name, value, definition)
    return arguments


def _value_of(name: str, text: str, definition: Definition | None) -> Any:
    """Read a value as JSON if its parameter accepts that, and otherwise as text."""
    if definition is None:
        return _json_or_text(text)
    parameter = definition.parameters.signature.parameters.get(name)
    value = text
    if parameter is None or parameter.annotation not in {str, "str"}:
        value = _json_or_text(text)
    rebuild = definition.payload.rebuild
    try:
        return rebuild({name: value})[name]
    except ArgumentError:
        with suppress(ArgumentError):
            return rebuild({name: text})[name]
        raise


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _dispatch_parts(
    dispatched: DispatchedRunView, now: datetime, *, is_waited: bool
) -> Iterator[Part]:
    run = dispatched.run
    if dispatched.is_replaced:
        due = f"it is due {relative(run.due_at, now)}, {shown(run.due_at)}"
        yield TextLine(f"{run.id} waited and got these arguments; {due}.", GOOD)
    elif not dispatched.is_new:
        yield TextLine(f"No new run: {run.id} has the same key and is {run.status}.", WARN)
    elif is_waited:
        yield TextLine(f"{run.id} {run.status}", styled(run.status).style)
    else:
        yield TextLine(f"{run.id} is due {relative(run.due_at, now)}, {shown(run.due_at)}.", GOOD)
    if is_waited and run.status is RunStatus.COMPLETED and run.result is not None:
        yield TextLine(json.dumps(run.result, ensure_ascii=False, default=str))
    elif is_waited and run.reason:
        yield TextLine(run.reason, BAD)


# ---------------------------------------------------------------- retry and cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedRun:
    """A finished run, and the new run that repeats it."""

    run: RunId
    new: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRun:
    """A run that was not retried or canceled, and why."""

    run: str
    why: str  # the error


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryResult:
    """The runs that were retried."""

    retried: list[RetriedRun]
    refused: list[RejectedRun]
    left_out: int  # runs that match and had been retried before


@command(
    result_type=RetryResult,
    examples="""
tickwork retry 019b78c9-0a80
tickwork retry --job send_email --status failed_permanent --since 2h --yes
""",
    exit_codes={EXIT_FAILURE: "some runs were not retried, or the confirmation was declined"},
)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@run_filter_options
@click.option("--fresh", is_flag=True, help="Repeat stored steps, too.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def retry_command(
    ctx: CommandContext, *, ids: tuple[str, ...], fresh: bool, yes: bool, **filters: Any
) -> None:
    """Run finished runs again.

    Each one becomes a new run that refers to the old one. Select runs by id or by options; by
    default, options select runs with status failed_permanent that were not retried before. Steps
    that a run has stored before it failed are not repeated.
    """
    app = ctx.app
    default = frozenset({RunStatus.FAILED_PERMANENT})
    where = _read_filters(ids, filters, default=default, allowed=FINAL)
    matching = _find_runs(app, ids, where)
    retried_before = app.runs.find_retried(where) if where and matching else set()
    selected = [run_id for run_id in matching if run_id not in retried_before]
    left_out = len(matching) - len(selected)
    _confirm(selected, "Retry", is_confirmed=where is None or yes or ctx.out.is_json)
    retried: list[RetriedRun] = []

    def retry(run_id: RunId) -> None:
        retried.append(RetriedRun(run=run_id, new=app.runs.retry(run_id, fresh=fresh).id))

    refused = _apply(ctx, selected, retry, "Retrying", "run.retry")
    done = RetryResult(retried=retried, refused=refused, left_out=left_out)
    ctx.out.show(
        done,
        lambda: [
            *_count_parts(f"{count_of(len(retried), 'run')} retried.", len(retried), refused),
            *([TextLine(f"{left_out:,} left out: retried before.", DIM)] if left_out else []),
            *(TextLine(f"{each.run} → {each.new}") for each in retried[:LINES_MAX]),
        ],
    )
    if refused:
        sys.exit(EXIT_FAILURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """The runs that were canceled; running ones were requested to stop."""

    canceled: list[RunId]
    refused: list[RejectedRun]


@command(
    result_type=CancelResult,
    examples="""
tickwork cancel 019b78c9-0a80 --reason "wrong customer"
tickwork cancel --queue emails --status pending --yes
""",
    exit_codes={EXIT_FAILURE: "some runs had finished, or the confirmation was declined"},
)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@run_filter_options
@click.option("--reason", default="", help="Reason, stored with the run.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def cancel_command(
    ctx: CommandContext, *, ids: tuple[str, ...], reason: str, yes: bool, **filters: Any
) -> None:
    """Cancel waiting runs, and request running ones to stop.

    Select runs by id or by options; options select unfinished runs only.
    """
    app = ctx.app
    where = _read_filters(ids, filters, default=UNFINISHED, allowed=UNFINISHED)
    selected = _find_runs(app, ids, where)
    _confirm(selected, "Cancel", is_confirmed=where is None or yes or ctx.out.is_json)
    canceled: list[RunId] = []

    def cancel(run_id: RunId) -> None:
        if not app.runs.cancel(run_id, reason=reason):
            raise RunError(run_id, f"The run {run_id} has already finished.")
        canceled.append(run_id)

    refused = _apply(ctx, selected, cancel, "Canceling", "run.cancel", reason=reason)
    text = f"{count_of(len(canceled), 'run')} canceled, or requested to stop."
    ctx.out.show(
        CancelResult(canceled=canceled, refused=refused),
        lambda: _count_parts(text, len(canceled), refused),
    )
    if refused:
        sys.exit(EXIT_FAILURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitResult:
    """An event: whether it was stored, or one of its name and key existed."""

    event: str
    key: str
    is_new: bool


@command(
    result_type=EmitResult,
    examples="""
tickwork emit order.paid 42 '{"amount": 5}'
""",
)
@click.argument("event")
@click.argument("key")
@click.argument("data", default="null")
@click.option("--tenant", default="", help="The tenant of the waiting runs.")
def emit_command(ctx: CommandContext, event: str, key: str, data: str, tenant: str) -> None:
    """Store an event: runs that wait for it continue.

    The first event of a name and key is stored; later ones are ignored. DATA is JSON.
    """
    app, value = ctx.app, _parse_json(data)
    emitted = ctx.audit(
        "event.emit",
        f"event/{event}",
        lambda: app.emit(event, key=key, data=value, tenant=tenant),
        key=key,
    )
    _show_event(ctx, EmitResult(event=event, key=key, is_new=emitted.is_new))


@command(
    result_type=EmitResult,
    examples="""
tickwork signal 019b78c9-0a80 approved '{"by": "ann"}'
""",
)
@click.argument("run", metavar="ID")
@click.argument("event")
@click.argument("data", default="null")
def signal_command(ctx: CommandContext, run: str, event: str, data: str) -> None:
    """Send an event to one run, which waits for it with ctx.wait_for.

    DATA is JSON. ID can be the first characters of an id.
    """
    app, value = ctx.app, _parse_json(data)
    run_id = app.inspect.find(run)
    is_new = ctx.audit(
        "run.signal",
        f"run/{run_id}",
        lambda: app.runs.signal(run_id, event, value),
        event=event,
    )
    _show_event(ctx, EmitResult(event=event, key=run_id, is_new=is_new))


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeResult:
    """A run whose sleep was ended."""

    run: RunId
    was_asleep: bool


@command(
    result_type=WakeResult,
    examples="""
tickwork wake 019b78c9-0a80
""",
    exit_codes={EXIT_FAILURE: "the run does not sleep"},
)
@click.argument("run", metavar="ID")
def wake_command(ctx: CommandContext, run: str) -> None:
    """End the sleep of a run: it continues now.

    ID can be the first characters of an id.
    """
    app = ctx.app
    run_id = app.inspect.find(run)
    was_asleep = ctx.audit("run.wake", f"run/{run_id}", lambda: app.runs.wake(run_id))
    text = f"The run {run_id} {'continues now' if was_asleep else 'does not sleep'}."
    ctx.out.show(
        WakeResult(run=run_id, was_asleep=was_asleep),
        lambda: [TextLine(text, GOOD if was_asleep else DIM)],
    )
    if not was_asleep:
        sys.exit(EXIT_FAILURE)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text} is not valid JSON: {error}.") from None


def _show_event(ctx: CommandContext, result: EmitResult) -> None:
    text = (
        f"The event {result.event!r} is stored."
        if result.is_new
        else f"An event {result.event!r} with this key exists. It stays as it is."
    )
    ctx.out.show(result, lambda: [TextLine(text, GOOD if result.is_new else DIM)])


def _read_filters(
    ids: Sequence[str],
    filters: dict[str, Any],
    *,
    default: frozenset[RunStatus],
    allowed: frozenset[RunStatus],
) -> RunFilter | None:
    """The filter that selects runs; None if they are named by id."""
    is_filtered = any(value not in {None, ()} for value in filters.values())
    if ids and is_filtered:
        raise click.UsageError("Select runs by id or by options, not both.")
    if ids:
        return None
    if not is_filtered:
        raise click.UsageError("No runs selected. Pass their ids, or options: --job send_email.")
    wrong = sorted(set(filters["statuses"]) - {status.value for status in allowed})
    if wrong:
        names = ", ".join(sorted(status.value for status in allowed))
        raise click.UsageError(f"--status must be one of {names}, got {wrong[0]}.")
    filters["statuses"] = filters["statuses"] or tuple(default)
    return read_run_filter(filters)


def _find_runs(app: Tickwork, ids: Sequence[str], where: RunFilter | None) -> list[RunId]:
    if where is None:
        return [app.inspect.find(each) for each in ids]
    return app.runs.find_ids(where)


def _confirm(selected: Sequence[RunId], verb: str, *, is_confirmed: bool) -> None:
    if not selected or is_confirmed:
        return
    question = f"{verb} {count_of(len(selected), 'run')}?"
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Confirm with --yes.")
    click.confirm(question, abort=True)


def _apply(
    ctx: CommandContext,
    selected: Sequence[RunId],
    act: Callable[[RunId], None],
    label: str,
    action: str,
    **detail: Any,
) -> list[RejectedRun]:
    """Act on each run, with one entry about all of them in the audit log."""
    if not selected:
        return []
    subject, more = subject_of("run", selected, now=ctx.app.clock.now())
    return ctx.audit(
        action, subject, lambda: _act_on_each(ctx, selected, act, label), **detail, **more
    )


def _act_on_each(
    ctx: CommandContext, selected: Sequence[RunId], act: Callable[[RunId], None], label: str
) -> list[RejectedRun]:
    refused = []
    with ctx.out.progress(label) as progress:
        for number, run_id in enumerate(selected, 1):
            try:
                act(run_id)
            except RunError as error:
                refused.append(RejectedRun(run=run_id, why=error.what))
            progress(number, len(selected))
    return refused


def _count_parts(text: str, count: int, refused: Sequence[RejectedRun]) -> list[Part]:
    parts: list[Part] = [TextLine(text, GOOD if count else DIM)]
    return parts + [TextLine(each.why, BAD) for each in refused[:LINES_MAX]]


# ---------------------------------------------------------------- pause and resume


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseResult:
    """A queue, a job or a schedule that was paused or resumed."""

    kind: str  # queue, job or schedule
    name: str
    is_paused: bool
    until: datetime | None = None  # null: until it is resumed
    note: str = ""


_subject_options: Final = apply_options(
    click.option("-q", "--queue", help="The queue."),
    click.option("-j", "--job", shell_complete=complete_jobs, help="The job."),
    click.option("--schedule", help="The schedule."),
    click.option("--tenant", default="", help="Tenant of the schedule."),
)


def _confirm_unknown(queue: str) -> None:
    question = f"Nothing is known of a queue {queue!r}. Pause it?"
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Confirm with --yes.")
    click.confirm(question, abort=True)


def _read_subject(**names: str | None) -> tuple[str, str]:
    subjects = [(kind, name) for kind, name in names.items() if name is not None]
    if len(subjects) != 1:
        raise click.UsageError("Pass exactly one of --queue, --job and --schedule.")
    return subjects[0]


@command(
    result_type=PauseResult,
    examples="""
tickwork pause --queue emails --note "the provider is down"
tickwork pause --job import --until 2h
tickwork pause --schedule nightly
""",
)
@_subject_options
@click.option("--until", type=FUTURE_TIME, help="Resume at this time: 2026-03-01T09:00, or 2h.")
@click.option("--note", default="", help="Note for others, such as the reason.")
@click.option(
    "-y", "--yes", "is_confirmed", is_flag=True, help="Pause a queue of which nothing is known."
)
def pause_command(
    ctx: CommandContext,
    *,
    queue: str | None,
    job: str | None,
    schedule: str | None,
    tenant: str,
    until: datetime | None,
    note: str,
    is_confirmed: bool,
) -> None:
    """Pause a queue, a job or a schedule.

    Runs of a paused queue or job wait; runs that have started go on. A paused schedule does
    not fire.
    """
    app = ctx.app
    kind, name = _read_subject(queue=queue, job=job, schedule=schedule)
    if queue is not None and not (is_confirmed or app.inspect.knows_queue(queue)):
        _confirm_unknown(queue)

    def pause() -> datetime | None:
        if kind == "schedule":
            pause = app.schedules.pause
            return pause(name, tenant=tenant, note=note, until=until).paused_until
        return app.pause(queue=queue, job=job, note=note, until=until).until

    until = ctx.audit(
        f"{kind}.pause", f"{kind}/{name}", pause, tenant=tenant, note=note, until=until
    )
    end = "it is resumed" if until is None else shown(until)
    ctx.out.show(
        PauseResult(kind=kind, name=name, is_paused=True, until=until, note=note),
        lambda: [TextLine(f"Paused {kind} {name!r} until {end}.", WARN)],
    )


@command(
    result_type=PauseResult,
    examples="""
tickwork resume --queue emails
tickwork resume --schedule nightly
""",
    exit_codes={EXIT_FAILURE: "it was not paused"},
)
@_subject_options
def resume_command(
    ctx: CommandContext, *, queue: str | None, job: str | None, schedule: str | None, tenant: str
) -> None:
    """Resume a queue, a job or a schedule.

    A schedule does not catch up on the instants that passed during its pause.
    """
    app = ctx.app
    kind, name = _read_subject(queue=queue, job=job, schedule=schedule)

    def resume() -> bool:
        if kind != "schedule":
            return app.resume(queue=queue, job=job)
        was_paused = app.schedules.get(name, tenant=tenant).is_paused
        app.schedules.resume(name, tenant=tenant)
        return was_paused

    was_paused = ctx.audit(f"{kind}.resume", f"{kind}/{name}", resume, tenant=tenant)
    text = f"Resumed {kind} {name!r}." if was_paused else f"{kind.title()} {name!r} was not paused."
    ctx.out.show(
        PauseResult(kind=kind, name=name, is_paused=False),
        lambda: [TextLine(text, GOOD if was_paused else DIM)],
    )
    if not was_paused:
        sys.exit(EXIT_FAILURE)


# ---------------------------------------------------------------- drain


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedWorker:
    """A worker that was requested to drain."""

    id: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequests:
    """The workers that were requested to drain."""

    workers: list[DrainedWorker]


@command(
    result_type=DrainRequests,
    examples="""
tickwork drain web-1:4242
tickwork drain 019b76da
tickwork drain --all && tickwork status
""",
)
@click.argument("workers", nargs=-1, metavar="[HOST:PID | ID]...")
@click.option("--all", "is_all", is_flag=True, help="Every worker that `tickwork status` lists.")
def drain_command(ctx: CommandContext, *, workers: tuple[str, ...], is_all: bool) -> None:
    """Ask workers to finish their runs, and to exit.

    A worker reads the request within two seconds. It claims no more runs, finishes those it has
    without a time limit, and exits with code 0. The processes of `work --processes` are not
    replaced; a process manager may start a worker again.
    """
    app = ctx.app
    if bool(workers) == is_all:
        raise click.UsageError("Name the workers, or pass --all.")
    if is_all:
        rows = app.inspect.status().workers
        workers = tuple(row.id for row in rows if not row.is_silent and row.queues != ())
    requested = [
        ctx.audit("worker.drain", f"worker/{worker}", partial(app.drain_worker, worker))
        for worker in workers
    ]
    done = [DrainedWorker(id=row.id, host=row.host, pid=row.pid) for row in requested]
    lines = [TextLine(f"Requested that {each.host}:{each.pid} drains.", GOOD) for each in done]
    ctx.out.show(
        DrainRequests(workers=done), lambda: lines or [TextLine("No worker is running.", DIM)]
    )


# ---------------------------------------------------------------- prune


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """How many rows were deleted."""

    runs: int
    jobs: int
    schedules: int
    orphans: int  # unfinished runs that were canceled


@command(
    result_type=PruneResult,
    examples="""
tickwork prune --days 30
tickwork prune --days 7 --orphans --json
""",
)
@number_option(
    "--days",
    type=click.FloatRange(0),
    default=30,
    help="Delete what ended, or was last seen, longer ago than this.",
)
@number_option("--batch", type=LIMIT, default=1_000, help="Rows per transaction.")
@click.option(
    "--orphans",
    is_flag=True,
    help="Also cancel runs that waited this long for a job that no program defines.",
)
def prune_command(ctx: CommandContext, days: float, batch: int, orphans: bool) -> None:  # noqa: FBT001
    """Delete old runs, and jobs and schedules that no program defines any more.

    Unfinished runs, schedules created through the API and paused schedules are kept. So is what a
    program defined within the last two hours.
    """
    app = ctx.app

    def prune() -> tuple[int, Pruned]:
        canceled = app.cancel_orphans(days=days) if orphans else 0
        with ctx.out.progress("Pruning") as progress:
            return canceled, app.prune(
                days, batch=batch, on_batch=lambda total: progress(sum(total), None)
            )

    canceled, pruned = ctx.audit("history.prune", "history", prune, days=days, orphans=orphans)
    done = PruneResult(
        runs=pruned.runs, jobs=pruned.jobs, schedules=pruned.schedules, orphans=canceled
    )
    rows = [("finished runs", done.runs), ("jobs", done.jobs), ("schedules", done.schedules)]
    if orphans:
        rows.append(("orphaned runs (canceled)", done.orphans))
    ctx.out.show(
        done,
        lambda: [
            TextTable(
                [Column("deleted"), Column("rows", is_right=True)],
                [(name, f"{count:,}") for name, count in rows],
            )
        ],
    )
