"""Commands that change something: dispatch, retry, cancel, pause, resume, prune."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import click

from tickwork._domain.identity import RunId
from tickwork._domain.status import FINAL, RunStatus
from tickwork._inspect.runs import RunView
from tickwork.app import Tickwork
from tickwork.cli.commands import AHEAD, EXIT_NO, LENGTH, Call, complete_jobs, verb
from tickwork.cli.looking import filter_of, run_filters
from tickwork.cli.render import BAD, DIM, GOOD, WARN, Column, Line, Part, Table, styled
from tickwork.cli.times import relative, shown
from tickwork.errors import RunError
from tickwork.stores.contract import RunFilter

FAULTS_SHOWN: Final = 20

# ---------------------------------------------------------------- dispatch


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchedRun:
    """The run; ``is_new`` is False when a unique key gave an earlier one."""

    is_new: bool
    run: RunView


@verb(
    name="dispatch",
    answer=DispatchedRun,
    examples="""
tickwork dispatch greet name=Ann
tickwork dispatch report '{"kind": "daily", "pages": [1, 2]}' --delay 10m
tickwork dispatch send_email to=ann@example.org --at 2026-03-01T09:00 --queue slow
tickwork dispatch import --wait --timeout 5m && echo done
tickwork dispatch jobs_of_others --remote n=3
""",
    exits={EXIT_NO: "refused, or with --wait: the run did not complete"},
)
@click.argument("job", shell_complete=complete_jobs)
@click.argument("args", nargs=-1, metavar="[KEY=VALUE | JSON]...")
@click.option("--delay", type=LENGTH, help="Due that long from now: 10m.")
@click.option("--at", type=AHEAD, help="Due at this time; without an offset, in your zone.")
@click.option("-q", "--queue", help="In this queue instead of the job's.")
@click.option("--priority", type=int, help="With this priority: lower runs first.")
@click.option("--unique", help="Not if an unfinished run has this key.")
@click.option(
    "--expires", type=LENGTH, help="Skipped if it cannot start within that of its due time."
)
@click.option("--tag", "tags", multiple=True, help="With this tag; may be repeated.")
@click.option("--tenant", help="On behalf of this tenant.")
@click.option("--target", help="About this thing of yours.")
@click.option("--remote", is_flag=True, help="The job is another program's: nothing is checked.")
@click.option("--wait", is_flag=True, help="Wait until it has finished, and show its result.")
@click.option("--timeout", type=LENGTH, help="Wait no longer than that (exit code 5).")
def dispatch_command(
    call: Call,
    *,
    job: str,
    args: tuple[str, ...],
    remote: bool,
    wait: bool,
    timeout: timedelta | None,
    **said: Any,
) -> None:
    """Ask for a run of a job.

    A VALUE is read as JSON where it is JSON (n=3, on=true, list=[1,2]), and is a text
    otherwise; for a parameter that takes a str, it is always a text. An argument that begins
    with { is a JSON object with several.
    """
    app = call.app
    if said["delay"] is not None and said["at"] is not None:
        raise click.UsageError("--delay and --at both say when: give one of them.")
    draft: Any = app.remote(job) if remote else app.draft
    for word in ("delay", "at", "queue", "priority", "unique", "expires", "tenant", "target"):
        if said[word] is not None:
            draft = getattr(draft, word)(said[word])
    if said["tags"]:
        draft = draft.tags(*said["tags"])
    given = _arguments(args, texts=frozenset() if remote else _texts(app, job))
    handle = draft.dispatch(**given) if remote else draft.args(**given).dispatch(job)
    if wait:
        handle.wait(None if timeout is None else timeout)
    found = DispatchedRun(is_new=handle.is_new, run=app.inspect.view(handle.read()))
    now = app.clock.now()
    call.out.show(found, lambda: _dispatched_parts(found, now, is_waited=wait))
    if wait and found.run.status is not RunStatus.COMPLETED:
        sys.exit(EXIT_NO)


def _texts(app: Tickwork, job: str) -> frozenset[str]:
    """The parameters that take a text, whatever it looks like."""
    definition = app.registry.find(job)
    if definition is None:
        return frozenset()
    parameters = definition.parameters.signature.parameters
    return frozenset(name for name, each in parameters.items() if each.annotation in {str, "str"})


def _arguments(words: Sequence[str], *, texts: frozenset[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for word in words:
        if word.lstrip().startswith("{"):
            try:
                found = json.loads(word)
            except ValueError as fault:
                raise click.BadParameter(f"{word} is no JSON: {fault}.") from None
            given.update(found)
            continue
        name, mark, value = word.partition("=")
        if not mark or not name.isidentifier():
            raise click.BadParameter(
                f"{word!r} is no argument. Write it as KEY=VALUE, or all of them as JSON: "
                '\'{"name": "Ann"}\'.'
            )
        if name in given:
            raise click.BadParameter(f"{name!r} is given twice.")
        given[name] = value if name in texts else _json_or_text(value)
    return given


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _dispatched_parts(found: DispatchedRun, now: datetime, *, is_waited: bool) -> Iterator[Part]:
    run = found.run
    if not found.is_new:
        yield Line(f"There is one already: {run.id} is {run.status}.", WARN)
    elif is_waited:
        yield Line(f"{run.id} {run.status}", styled(run.status).style)
    else:
        yield Line(f"{run.id} is due {relative(run.due_at, now)}, {shown(run.due_at)}.", GOOD)
    if is_waited and run.status is RunStatus.COMPLETED and run.result is not None:
        yield Line(json.dumps(run.result, ensure_ascii=False, default=str))
    elif is_waited and run.reason:
        yield Line(run.reason, BAD)


# ---------------------------------------------------------------- retry and cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A finished run, and the new one that was made of it."""

    run: RunId
    new: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A run with which it could not be done, and why."""

    run: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """What was run again; ``left_out`` are those that had been run again before."""

    retried: list[Again]
    refused: list[Refused]
    left_out: int


@verb(
    name="retry",
    answer=Retried,
    examples="""
tickwork retry 019b78c9-0a80
tickwork retry --job send_email --status failed_permanent --since 2h --yes
""",
    exits={EXIT_NO: "some could not be run again, or nobody said yes"},
)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@run_filters
@click.option("-y", "--yes", is_flag=True, help="Do not ask, when runs are chosen by options.")
def retry_command(call: Call, *, ids: tuple[str, ...], yes: bool, **said: Any) -> None:
    """Run finished runs again.

    Each as a new run that names the old one. By id, or all that fit: by default those that
    failed for good. What was run again before is left out then.
    """
    app = call.app
    where = _chosen(ids, said, default=frozenset({RunStatus.FAILED_PERMANENT}), among=FINAL)
    left_out = 0
    if where is None:
        chosen = [app.inspect.find(each) for each in ids]
    else:
        found = app.runs.matching(where)
        again = app.runs.retried(where) if found else set()
        chosen = [run_id for run_id in found if run_id not in again]
        left_out = len(found) - len(chosen)
        _confirm(chosen, "Run again", is_sure=yes or call.out.is_json)
    retried: list[Again] = []

    def act(run_id: RunId) -> None:
        retried.append(Again(run=run_id, new=app.runs.retry(run_id).id))

    refused = _each(call, chosen, act, "Retrying")
    done = Retried(retried=retried, refused=refused, left_out=left_out)
    call.out.show(
        done,
        lambda: [
            *_counted(len(retried), "run again", refused),
            *([Line(f"{left_out:,} had been run again before.", DIM)] if left_out else []),
            *(Line(f"{each.run} → {each.new}") for each in retried[:FAULTS_SHOWN]),
        ],
    )
    if refused:
        sys.exit(EXIT_NO)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanceledRuns:
    """What was canceled, or asked to stop; and what could not be."""

    canceled: list[RunId]
    refused: list[Refused]


@verb(
    name="cancel",
    answer=CanceledRuns,
    examples="""
tickwork cancel 019b78c9-0a80 --reason "wrong customer"
tickwork cancel --queue emails --status pending --yes
""",
    exits={EXIT_NO: "some had ended before, or nobody said yes"},
)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@run_filters
@click.option("--reason", default="", help="Why; it is kept with the run.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, when runs are chosen by options.")
def cancel_command(
    call: Call, *, ids: tuple[str, ...], reason: str, yes: bool, **said: Any
) -> None:
    """Cancel runs that wait; ask those that run to stop.

    By id, or all that fit and have not finished.
    """
    app = call.app
    unfinished = frozenset(RunStatus) - FINAL
    where = _chosen(ids, said, default=unfinished, among=unfinished)
    if where is None:
        chosen = [app.inspect.find(each) for each in ids]
    else:
        chosen = app.runs.matching(where)
        _confirm(chosen, "Cancel", is_sure=yes or call.out.is_json)
    canceled: list[RunId] = []

    def act(run_id: RunId) -> None:
        if not app.runs.cancel(run_id, reason=reason):
            raise RunError(run_id, f"The run {run_id} has ended already.")
        canceled.append(run_id)

    refused = _each(call, chosen, act, "Canceling")
    done = CanceledRuns(canceled=canceled, refused=refused)
    call.out.show(done, lambda: _counted(len(canceled), "canceled, or asked to stop", refused))
    if refused:
        sys.exit(EXIT_NO)


def _chosen(
    ids: Sequence[str],
    said: dict[str, Any],
    *,
    default: frozenset[RunStatus],
    among: frozenset[RunStatus],
) -> RunFilter | None:
    """The filter by which runs are chosen; None when they are named."""
    is_filtered = any(value not in {None, ()} for value in said.values())
    if ids and is_filtered:
        raise click.UsageError("Name runs, or choose them by options: not both.")
    if ids:
        return None
    if not is_filtered:
        raise click.UsageError("Which runs? Name their ids, or choose them: --job send_email.")
    wrong = sorted(set(said["statuses"]) - {status.value for status in among})
    if wrong:
        words = ", ".join(sorted(status.value for status in among))
        raise click.UsageError(f"--status {wrong[0]} cannot be here: it is one of {words}.")
    said["statuses"] = said["statuses"] or tuple(default)
    return filter_of(said)


def _confirm(chosen: Sequence[RunId], verb: str, *, is_sure: bool) -> None:
    if not chosen or is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{verb} {len(chosen):,} runs? Say --yes.")
    click.confirm(f"{verb} {len(chosen):,} runs?", abort=True)


def _each(
    call: Call, chosen: Sequence[RunId], act: Callable[[RunId], None], label: str
) -> list[Refused]:
    refused = []
    with call.out.progress(label) as progress:
        for number, run_id in enumerate(chosen, 1):
            try:
                act(run_id)
            except RunError as fault:
                refused.append(Refused(run=run_id, why=fault.what))
            progress(number, len(chosen))
    return refused


def _counted(count: int, what: str, refused: Sequence[Refused]) -> list[Part]:
    runs = "1 run" if count == 1 else f"{count:,} runs"
    parts: list[Part] = [Line(f"{runs} {what}.", GOOD if count else DIM)]
    parts += [Line(each.why, BAD) for each in refused[:FAULTS_SHOWN]]
    return parts


# ---------------------------------------------------------------- pause and resume


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedThing:
    """What is paused, or goes on: a queue, a job or a schedule."""

    kind: str
    name: str
    is_paused: bool
    until: datetime | None
    note: str


def _things(command: Any) -> Any:
    for option in reversed(
        [
            click.option("-q", "--queue", help="A queue: its runs wait."),
            click.option("-j", "--job", shell_complete=complete_jobs, help="A job: its runs wait."),
            click.option("--schedule", help="A schedule: it stops firing."),
            click.option("--tenant", default="", help="The schedule's tenant."),
        ]
    ):
        command = option(command)
    return command


def _one_of(**named: str | None) -> tuple[str, str]:
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise click.UsageError("Name one thing: --queue NAME, --job NAME or --schedule NAME.")
    return given[0]


@verb(
    name="pause",
    answer=PausedThing,
    examples="""
tickwork pause --queue emails --note "the provider is down"
tickwork pause --job import --until 2h
tickwork pause --schedule nightly
""",
)
@_things
@click.option("--until", type=AHEAD, help="It goes on by itself then: a time, or 2h.")
@click.option("--note", default="", help="Why, for whoever wonders.")
def pause_command(
    call: Call,
    *,
    queue: str | None,
    job: str | None,
    schedule: str | None,
    tenant: str,
    until: datetime | None,
    note: str,
) -> None:
    """Stop a queue, a job or a schedule. Nothing is lost: runs wait, and what runs goes on."""
    app = call.app
    kind, name = _one_of(queue=queue, job=job, schedule=schedule)
    if kind == "schedule":
        view = app.schedules.pause(name, tenant=tenant, note=note, until=until)
        done = _thing(kind, name, until=view.paused_until, note=note)
    else:
        pause = app.pause(queue=queue, job=job, note=note, until=until)
        done = _thing(kind, pause.name, until=pause.until, note=note)
    end = "somebody resumes it" if done.until is None else shown(done.until)
    call.out.show(done, lambda: [Line(f"The {kind} {name!r} is paused until {end}.", WARN)])


@verb(
    name="resume",
    answer=PausedThing,
    examples="""
tickwork resume --queue emails
tickwork resume --schedule nightly
""",
    exits={EXIT_NO: "it was not paused"},
)
@_things
def resume_command(
    call: Call, *, queue: str | None, job: str | None, schedule: str | None, tenant: str
) -> None:
    """Let a queue, a job or a schedule go on. A schedule makes up for nothing."""
    app = call.app
    kind, name = _one_of(queue=queue, job=job, schedule=schedule)
    if kind == "schedule":
        was_paused = app.schedules.get(name, tenant=tenant).is_paused
        app.schedules.resume(name, tenant=tenant)
    else:
        was_paused = app.resume(queue=queue, job=job)
    said = f"The {kind} {name!r} goes on." if was_paused else f"The {kind} {name!r} was not paused."
    call.out.show(_thing(kind, name), lambda: [Line(said, GOOD if was_paused else DIM)])
    if not was_paused:
        sys.exit(EXIT_NO)


def _thing(
    kind: str, name: str, *, until: datetime | None = None, note: str | None = None
) -> PausedThing:
    return PausedThing(
        kind=kind, name=name, is_paused=note is not None, until=until, note=note or ""
    )


# ---------------------------------------------------------------- prune


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedAway:
    """What was removed; ``orphans`` are unfinished runs that were canceled."""

    runs: int
    jobs: int
    schedules: int
    orphans: int


@verb(
    name="prune",
    answer=PrunedAway,
    examples="""
tickwork prune --days 30
tickwork prune --days 7 --orphans --json
""",
)
@click.option(
    "--days",
    type=click.FloatRange(0),
    default=30,
    show_default=True,
    help="What ended, or was last seen, longer ago than that.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1_000,
    show_default=True,
    help="Rows in one transaction.",
)
@click.option(
    "--orphans",
    is_flag=True,
    help="Cancel waiting runs, that old, of jobs that no program has any more.",
)
def prune_command(call: Call, days: float, batch: int, orphans: bool) -> None:  # noqa: FBT001
    """Remove old history, and what no program has any more.

    Never what the API created or a person paused, and nothing that is unfinished.
    """
    app = call.app
    canceled = app.cancel_orphans(days=days) if orphans else 0
    with call.out.progress("Pruning") as progress:
        gone = app.prune(days, batch=batch, on_batch=lambda total: progress(sum(total)))
    done = PrunedAway(runs=gone.runs, jobs=gone.jobs, schedules=gone.schedules, orphans=canceled)
    call.out.show(
        done,
        lambda: [
            Table(
                [Column("removed"), Column("", is_right=True)],
                [
                    ("finished runs", f"{done.runs:,}"),
                    ("jobs", f"{done.jobs:,}"),
                    ("schedules", f"{done.schedules:,}"),
                    *([("orphans, canceled", f"{done.orphans:,}")] if orphans else []),
                ],
            )
        ],
    )
