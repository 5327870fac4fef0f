"""Commands that run jobs: ``work``, ``collect``; and ``unlock`` for their locks."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

import click

from tickwork._kernel.durations import format_duration, human_duration
from tickwork._kernel.plurals import count_of
from tickwork._kernel.signals import stop_on_signals
from tickwork._worker.options import WorkerOptions
from tickwork.app import Tickwork
from tickwork.cli.commands import EXIT_BEHIND, EXIT_FAILURE, EXIT_STUCK, CommandContext, command
from tickwork.cli.parameters import DURATION, number_option
from tickwork.cli.render import BAD, TextLine
from tickwork.errors import mask_url

WORK_LOCK: Final = "tickwork work"
COLLECT_LOCK: Final = "tickwork collect"
SUPERVISOR_VARIABLE: Final = "TICKWORK_SUPERVISOR"
"""Tells a worker the process id of its supervisor."""
PARENT_POLL: Final = 0.5


@command(
    examples="""
tickwork work
tickwork -a shop.jobs:app work -q emails -q reports --slots 20
tickwork work --processes 4 --drain 2m
tickwork work --exclusive --max-missed 10
""",
    exit_codes={
        EXIT_FAILURE: "another exclusive worker is running (--exclusive)",
        EXIT_STUCK: "a thread did not stop at its timeout; start a new process",
        EXIT_BEHIND: "too many consecutive firings started late (--max-missed)",
    },
)
@click.option("-q", "--queue", "queues", multiple=True, help="Only this queue. Repeatable.")
@number_option("--slots", "--threads", "threads", default=10, help="Concurrent functions.")
@number_option("--coroutines", default=100, help="Concurrent coroutines.")
@number_option(
    "--processes",
    type=click.IntRange(1, 1_000),
    default=1,
    help="Worker processes. A supervisor replaces those that die.",
)
@number_option("--children", default=2, help="Concurrent jobs with engine=process.")
@click.option(
    "--drain",
    type=DURATION,
    default="30s",
    show_default=True,
    help="How long running jobs may go on after a stop.",
)
@click.option("--exclusive", is_flag=True, help="Exit if another exclusive worker is running.")
@number_option(
    "--max-missed",
    type=click.IntRange(1),
    help="Exit after this many consecutive firings that start over a second late.",
)
def work_command(  # noqa: PLR0917  # click passes them by name
    ctx: CommandContext,
    queues: tuple[str, ...],
    threads: int,
    coroutines: int,
    processes: int,
    children: int,
    drain: timedelta,
    exclusive: bool,  # noqa: FBT001  # a flag
    max_missed: int | None,
) -> None:
    """Run jobs until stopped.

    The first SIGTERM or Ctrl-C stops claiming, and lets running jobs finish. The second one
    exits at once.
    """
    app = ctx.app
    options = WorkerOptions(
        queues=queues,
        threads=threads,
        coroutines=coroutines,
        processes=children,
        drain=drain,
        missed_max=max_missed or 0,
    )
    with app.lock(WORK_LOCK) if exclusive else nullcontext():
        if processes == 1:
            _work(app, options)
            return
        from tickwork.cli.supervisor import supervise  # noqa: PLC0415  # rarely needed

        arguments = [*_app_arguments(ctx), "work", *_work_arguments(options)]
        variables = {SUPERVISOR_VARIABLE: str(os.getpid())}
        sys.exit(supervise(app, arguments, processes=processes, drain=drain, variables=variables))


def _app_arguments(ctx: CommandContext) -> list[str]:
    """The arguments with which another process loads the same application."""
    if ctx.app.path:
        return ["-a", ctx.app.path]
    if ctx.is_mounted:
        location = ctx.app.location
        return ["-a", f"{location.module}:{location.attribute}"]
    return []  # it finds the same tickwork.toml


def _work_arguments(options: WorkerOptions) -> list[str]:
    """The options of one process. The supervisor holds the lock of --exclusive itself."""
    arguments = [part for queue in options.queues for part in ("--queue", queue)]
    arguments += ["--slots", str(options.threads), "--coroutines", str(options.coroutines)]
    arguments += ["--children", str(options.processes), "--drain", format_duration(options.drain)]
    if options.missed_max:
        arguments += ["--max-missed", str(options.missed_max)]
    return arguments


def _work(app: Tickwork, options: WorkerOptions) -> None:
    started = time.monotonic()
    stop = _StopRequest(app.stop)
    with stop_on_signals(stop.request):
        app.start(options)
        _print_start(app, options)
        stop.worker_started()
        left_behind = app.join()
    stats = app.stats
    if stats.is_behind:
        click.echo(
            f"{count_of(stats.missed, 'consecutive firing')} started more than a second late, the "
            f"last one {human_duration(stats.lateness_last)}: this worker is overloaded.\n"
            "Raise --slots or --processes, or start another worker.",
            err=True,
        )
    click.echo(
        f"Worked for {human_duration(timedelta(seconds=time.monotonic() - started))}: "
        f"{count_of(stats.attempts, 'attempt')}, {stats.failures:,} failed, "
        f"started at most {human_duration(stats.lateness)} late.",
        err=True,
    )
    code = EXIT_STUCK if stats.is_stuck else EXIT_BEHIND if stats.is_behind else 0
    if left_behind:
        # Threads that still run would keep this process from exiting.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _print_start(app: Tickwork, options: WorkerOptions) -> None:
    if not sys.stderr.isatty():
        return
    queues = f"queues {', '.join(options.queues)}" if options.queues else "all queues"
    click.echo(
        f"Working on {mask_url(app.settings.url)}: "
        f"{count_of(len(app.registry.job_names()), 'job')}, "
        f"{count_of(len(app.registry.schedules()), 'schedule')}, {queues}. Stop with Ctrl-C.",
        err=True,
    )


class _StopRequest:
    """Stops the worker, also if the request comes before the worker has started."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._is_requested = False
        # Removed from the environment: a process that a job starts has another parent.
        supervisor = os.environ.pop(SUPERVISOR_VARIABLE, None)
        if supervisor is not None:
            watch = partial(self._watch_parent, int(supervisor))
            threading.Thread(target=watch, name="tickwork-parent", daemon=True).start()

    def request(self) -> None:
        self._is_requested = True
        self._stop()

    def worker_started(self) -> None:
        if self._is_requested:
            self._stop()

    def _watch_parent(self, supervisor: int) -> None:
        """Stop when the supervisor is gone: no other process would stop this worker."""
        while os.getppid() == supervisor:
            time.sleep(PARENT_POLL)
        self.request()


@dataclass(frozen=True, slots=True)
class CollectResult:
    """How many attempts were made."""

    attempts: int
    failures: int


@command(
    result_type=CollectResult,
    examples="""
tickwork collect
tickwork collect --for 60 --exclusive
* * * * *  cd /srv/shop && tickwork -a shop.jobs:app collect --for 60
""",
    exit_codes={EXIT_FAILURE: "an attempt failed, or another exclusive collect is running"},
)
@click.option(
    "--for", "length", type=DURATION, default="0", help="Keep running for this long: 60, or 5m."
)
@click.option("--exclusive", is_flag=True, help="Exit if another exclusive collect is running.")
def collect_command(ctx: CommandContext, length: timedelta, exclusive: bool) -> None:  # noqa: FBT001
    """Run what is due now, then exit. For crontabs."""
    app, stop = ctx.app, threading.Event()
    with (
        stop_on_signals(stop.set),
        app.lock(COLLECT_LOCK) if exclusive else nullcontext(),
    ):
        before = app.stats.attempts
        failures = app.collect(length, stop=stop)
        done = CollectResult(app.stats.attempts - before, failures)
    text = f"{count_of(done.attempts, 'attempt')}, {done.failures:,} failed."
    ctx.out.show(done, lambda: [TextLine(text)])
    if failures:
        if not ctx.out.is_terminal:
            ctx.out.note(f"{count_of(failures, 'attempt')} failed.", BAD)
        sys.exit(EXIT_FAILURE)


@dataclass(frozen=True, slots=True)
class UnlockResult:
    """The lock that was released."""

    name: str
    was_held: bool


@command(
    result_type=UnlockResult,
    examples="""
tickwork unlock "tickwork work"
tickwork unlock nightly-import
""",
    exit_codes={EXIT_FAILURE: "the lock was not held"},
)
@click.argument("name")
def unlock_command(ctx: CommandContext, name: str) -> None:
    """Release a named lock whose holder is gone.

    `work --exclusive` holds "tickwork work", `collect --exclusive` holds "tickwork collect".
    If the holder is alive it is not stopped: it keeps working beside the next holder.
    """
    done = UnlockResult(name, ctx.app.unlock(name))
    text = f"Released the lock {name!r}." if done.was_held else f"The lock {name!r} is not held."
    ctx.out.show(done, lambda: [TextLine(text)])
    if not done.was_held:
        sys.exit(EXIT_FAILURE)
