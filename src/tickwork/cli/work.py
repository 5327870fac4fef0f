"""Commands that run jobs: ``work``, ``collect``; and ``unlock`` for their locks."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, Final

import click

from tickwork._domain.health import WorkerState
from tickwork._kernel.durations import format_duration, human_duration
from tickwork._kernel.plain_text import count_of, escape_lines
from tickwork._kernel.signals import stop_on_signals
from tickwork._kernel.systemd import READY, STOPPING, ServiceNotifier
from tickwork._worker.options import WorkerOptions
from tickwork.app.tickwork import Tickwork
from tickwork.cli.commands import (
    EXIT_BEHIND,
    EXIT_DRAINED,
    EXIT_FAILURE,
    EXIT_STORE,
    EXIT_STUCK,
    EXIT_USED_UP,
    CommandContext,
    command,
)
from tickwork.cli.database_wait import wait_for_database
from tickwork.cli.log_output import JSON, TEXT, LogOptions
from tickwork.cli.parameters import ADDRESS, DURATION, SIZE, number_option
from tickwork.cli.render import BAD, TextLine
from tickwork.cli.ui import PORT

EXCLUSIVE_LOCK: Final = "tickwork work"
"""The lock of ``work --exclusive`` and of ``collect --exclusive``."""
SUPERVISOR_VARIABLE: Final = "TICKWORK_SUPERVISOR"
"""Tells a worker the process id of its supervisor."""
PARENT_POLL: Final = 0.5
EXIT_SECONDS: Final = 20.0
"""How long a worker that is stuck may take to exit, after its drain time."""
EXIT_POLL: Final = 1.0
OF_SUPERVISOR: Final = frozenset({"processes", "reload", "exclusive", "http", "ui"})
"""Options of ``work`` that its child processes do not get as they are. The supervisor holds the
lock of ``--exclusive`` itself, ``--ui`` serves one process, and each child has a port of its own
for ``--http``."""

PORT_MAX: Final = 65_535


exclusive_option: Final = click.option(
    "--exclusive", is_flag=True, help="Exit if another exclusive worker or collect is running."
)


def log_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the commands that run jobs, about their log."""
    function = click.option("-v", "--verbose", is_flag=True, help="Also log each run that ends.")(
        function
    )
    return click.option(
        "--log-format",
        type=click.Choice([TEXT, JSON]),
        help="The log on standard error. Default: text, or what the program configured.",
    )(function)


@command(
    examples="""
tickwork work
tickwork -a shop.jobs:app work -q emails -q reports --slots 20
tickwork work --processes 4 --drain 2m
tickwork work --exclusive --max-missed 10
tickwork work --processes 4 --max-runs 10000 --max-memory 512M
tickwork work --http :8080
tickwork work --ui
tickwork work --reload
""",
    exit_codes={
        EXIT_FAILURE: "another exclusive process is running (--exclusive)",
        EXIT_STORE: "the database cannot be reached, its file was replaced or is damaged, or "
        "outcomes could not be written",
        EXIT_STUCK: "a thread did not stop at its timeout, or a part of the worker could not work "
        "any more; start a new process",
        EXIT_BEHIND: "too many consecutive firings started late (--max-missed)",
        EXIT_USED_UP: "it reached --max-runs or --max-memory; start a new process",
    },
)
@click.option("-q", "--queue", "queues", multiple=True, help="Only this queue. Repeatable.")
@number_option("--slots", "--threads", "threads", default=10, help="Concurrent functions.")
@number_option("--coroutines", default=100, help="Concurrent coroutines, up to 10,000.")
@number_option(
    "--processes",
    type=click.IntRange(1, 1_000),
    help="Worker processes under a supervisor, which replaces those that die.",
)
@number_option("--children", default=2, help="Concurrent jobs with engine=process.")
@number_option("--handovers", default=500, help="Runs that wait for a remote engine.")
@click.option(
    "--drain",
    type=DURATION,
    default="30s",
    show_default=True,
    help="How long running jobs may go on after a stop.",
)
@exclusive_option
@number_option(
    "--max-missed",
    type=click.IntRange(1),
    help="Exit after this many consecutive firings that start over a second late.",
)
@number_option(
    "--max-runs",
    type=click.IntRange(1),
    help="Exit after this many attempts. A supervisor starts a new process.",
)
@click.option(
    "--max-memory",
    type=SIZE,
    help="Exit when the process uses more memory: 512M, or 2G. A supervisor starts a new one.",
)
@click.option(
    "--http",
    "http",
    type=ADDRESS,
    metavar="HOST:PORT",
    help="Serve /healthz, /readyz and /metrics here. Each further process takes the next port.",
)
@click.option(
    "--ui",
    "ui",
    type=ADDRESS,
    is_flag=False,
    flag_value=f"127.0.0.1:{PORT}",
    metavar="[HOST:PORT]",
    help=f"Serve the dashboard, too, for one process. Without an address: 127.0.0.1:{PORT}.",
)
@click.option("--reload", is_flag=True, help="Restart when the code changes. For development only.")
@click.option(
    "--wait",
    "wait",
    type=DURATION,
    help="How long to wait for a database that does not answer at the start. Default: no limit.",
)
@log_options
def work_command(  # noqa: PLR0917  # click passes them by name
    ctx: CommandContext,
    queues: tuple[str, ...],
    threads: int,
    coroutines: int,
    processes: int | None,
    children: int,
    handovers: int,
    drain: timedelta,
    exclusive: bool,  # noqa: FBT001  # a flag
    max_missed: int | None,
    max_runs: int | None,
    max_memory: int | None,
    http: tuple[str, int] | None,
    ui: tuple[str, int] | None,
    reload: bool,  # noqa: FBT001  # a flag
    wait: timedelta | None,
    verbose: bool,  # noqa: FBT001  # a flag
    log_format: str | None,
) -> None:
    """Run jobs until stopped.

    The first SIGTERM, SIGHUP or Ctrl-C stops claiming, and lets running jobs finish. The second
    one exits at once. `tickwork drain` stops it from elsewhere.
    """
    ctx.log = LogOptions(
        is_worker=True, is_verbose=verbose or ctx.log.is_verbose, format=log_format
    )
    app = ctx.app
    options = WorkerOptions(
        queues=queues,
        threads=threads,
        coroutines=coroutines,
        children=children,
        handovers=handovers,
        drain=drain,
        missed_max=max_missed or 0,
        runs_max=max_runs or 0,
        memory_max=max_memory or 0,
    )
    is_supervised = processes is not None or reload
    if ui is not None and is_supervised:
        raise click.UsageError(
            "--ui serves one process: leave out --processes and --reload. Serve the dashboard with "
            "`tickwork ui` beside them."
        )
    if http is not None and http[1] + (processes or 1) - 1 > PORT_MAX:
        raise click.UsageError("--http needs one port for each process: select a lower port.")
    if ui is not None and ui == http and ui[1] != 0:
        raise click.UsageError("--http and --ui need two addresses: select another port.")
    if is_supervised:
        _supervise(
            ctx,
            options,
            exclusive=exclusive,
            processes=processes or 1,
            reload=reload,
            wait=wait,
            http=http,
        )
        return
    service = ServiceNotifier()
    stop = _StopRequest(app.stop, service)
    with stop_on_signals(stop.request), _serving(app, http), _serving_dashboard(app, ui):
        if not stop.wait_for_database(app, limit=wait):
            return
        with _exclusive(app, is_exclusive=exclusive):
            _work(app, options, stop, service)


def _serving(app: Tickwork, http: tuple[str, int] | None) -> AbstractContextManager[object]:
    """Serve health checks, also while the worker waits for its database."""
    if http is None:
        return nullcontext()
    # By name: integrations are not a layer below.
    server: AbstractContextManager[object] = import_module(
        "tickwork.integrations.health"
    ).HealthServer(app, *http)
    return server


def _serving_dashboard(app: Tickwork, ui: tuple[str, int] | None) -> AbstractContextManager[object]:
    """Serve the dashboard in the background, under the rules of ``tickwork ui``."""
    if ui is None:
        return nullcontext()
    tokens = import_module("tickwork.dashboard.configured_tokens")  # by name: as above
    module = import_module("tickwork.dashboard.server")
    server: AbstractContextManager[object] = module.DashboardServer(
        app,
        *ui,
        tokens=tokens.ConfiguredTokens(),
        option="--ui",
        proxies=tokens.read_proxies(),
    )
    return server


def _exclusive(app: Tickwork, *, is_exclusive: bool) -> AbstractContextManager[object]:
    return app.lock(EXCLUSIVE_LOCK) if is_exclusive else nullcontext()


def _supervise(
    ctx: CommandContext,
    options: WorkerOptions,
    *,
    exclusive: bool,
    processes: int,
    reload: bool,
    wait: timedelta | None,
    http: tuple[str, int] | None,
) -> None:
    """Work in processes under a supervisor."""
    from tickwork.cli.supervisor import supervise  # noqa: PLC0415  # rarely needed

    app, is_stopped = ctx.app, threading.Event()
    call = click.get_current_context()
    values = {**call.params, "verbose": ctx.log.is_verbose}  # it may precede the command
    arguments = [*_app_arguments(ctx), "work", *child_arguments(call.command, values)]
    variables = {SUPERVISOR_VARIABLE: str(os.getpid())}
    if reload:
        variables["PYTHONDONTWRITEBYTECODE"] = "1"  # see FileWatch
    with stop_on_signals(is_stopped.set):
        if not wait_for_database(
            app, limit=wait, sleep=is_stopped.wait, is_stopped=is_stopped.is_set
        ):
            return
        with _exclusive(app, is_exclusive=exclusive):
            code = supervise(
                app,
                [[*arguments, *_http_arguments(http, number)] for number in range(processes)],
                drain=options.drain,
                variables=variables,
                has_changed=_build_watch() if reload else None,
                is_stopped=is_stopped.is_set,
            )
    sys.exit(code)


def _http_arguments(http: tuple[str, int] | None, number: int) -> list[str]:
    """The address of a process: the next port for each further one, or any free one."""
    if http is None:
        return []
    host, port = http
    host = f"[{host}]" if ":" in host else host
    return ["--http", f"{host}:{port + number if port else 0}"]


def _build_watch() -> Callable[[], bool]:
    from tickwork.cli.file_watch import FileWatch  # noqa: PLC0415  # for development

    return FileWatch().has_changed


def _app_arguments(ctx: CommandContext) -> list[str]:
    """The arguments with which another process loads the same application."""
    if ctx.app.path:
        return ["-a", ctx.app.path]
    if ctx.is_mounted:
        location = ctx.app.location
        return ["-a", f"{location.module}:{location.attribute}"]
    return []  # it finds the same tickwork.toml


def child_arguments(work: click.Command, values: Mapping[str, Any]) -> list[str]:
    """The options of ``work`` with which its child processes get these values.

    All options are passed on, except those of the supervisor.
    """
    arguments: list[str] = []
    for option in work.params:
        assert option.name is not None, option
        value, flag = values[option.name], option.opts[-1]
        if option.name in OF_SUPERVISOR or value is None:
            continue
        if isinstance(value, bool):
            arguments += [flag] if value else []
            continue
        for each in value if isinstance(value, tuple) else (value,):
            text = format_duration(each) if isinstance(each, timedelta) else str(each)
            arguments += [flag, text]
    return arguments


def _work(
    app: Tickwork, options: WorkerOptions, stop: "_StopRequest", service: ServiceNotifier
) -> None:
    service.start_watchdog(lambda: app.worker_state is not WorkerState.STUCK)
    app.start(options)
    service.send(READY)
    stop.worker_started()
    _exit_when_stuck(app, options)
    left_behind = app.join()
    service.stop_watchdog()
    stats = app.stats
    if stats.is_behind:
        click.echo(
            f"{count_of(stats.missed, 'consecutive firing')} started more than a second late, the "
            f"last one {human_duration(stats.lateness_last)}: this worker is overloaded.\n"
            "Raise --slots or --processes, or start another worker.",
            err=True,
        )
    if stats.problem:
        click.echo(f"A part of the worker could not work any more: {stats.problem}", err=True)
    if stats.unwritten:
        click.echo(
            f"{count_of(stats.unwritten, 'outcome')} could not be written. Other workers repeat "
            "the attempts when the leases expire.",
            err=True,
        )
    if stats.is_used_up:
        click.echo("It reached --max-runs or --max-memory: start a new process.", err=True)
    code = next(
        (
            code
            for code, is_reached in (
                (EXIT_STUCK, stats.is_stuck or bool(stats.problem)),
                (EXIT_STORE, stats.unwritten > 0),
                (EXIT_BEHIND, stats.is_behind),
                (EXIT_USED_UP, stats.is_used_up),
            )
            if is_reached
        ),
        0,
    )
    if stats.is_drained and code == 0 and stop.is_supervised:
        code = EXIT_DRAINED  # so that the supervisor starts no other
    if stats.fault is not None:
        click.echo(f"Error: {escape_lines(str(stats.fault))}", err=True)
        code = EXIT_STORE
    if left_behind:
        # Threads that still run would keep this process from exiting.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _exit_when_stuck(app: Tickwork, options: WorkerOptions) -> None:
    """Have a worker that cannot even stop end in time: a supervisor starts another one.

    Its threads may wait for ever, for example on a descriptor that a job has closed.
    """
    limit = options.drain.total_seconds() + EXIT_SECONDS

    def watch() -> None:
        since: float | None = None
        while True:  # ends with the process
            time.sleep(EXIT_POLL)
            is_stuck = bool(app.stats.problem)
            since = (since or time.monotonic()) if is_stuck else None
            if since is not None and time.monotonic() - since >= limit:
                os._exit(EXIT_STUCK)

    threading.Thread(target=watch, name="tickwork-exit", daemon=True).start()


class _StopRequest:
    """Stops the worker, also if the request comes before the worker has started."""

    def __init__(self, stop: Callable[[], None], service: ServiceNotifier) -> None:
        self._stop = stop
        self._service = service
        self._requested = threading.Event()
        # Removed from the environment: a process that a job starts has another parent.
        supervisor = os.environ.pop(SUPERVISOR_VARIABLE, None)
        self.is_supervised = supervisor is not None
        if supervisor is not None:
            watch = partial(self._watch_parent, int(supervisor))
            threading.Thread(target=watch, name="tickwork-parent", daemon=True).start()

    def request(self) -> None:
        self._requested.set()
        self._service.send(STOPPING)
        self._stop()

    def wait_for_database(self, app: Tickwork, *, limit: timedelta | None) -> bool:
        """Return True when the database answers, or False if the request comes first."""
        return wait_for_database(
            app, limit=limit, sleep=self._requested.wait, is_stopped=self._requested.is_set
        )

    def worker_started(self) -> None:
        if self._requested.is_set():
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
    exit_codes={
        EXIT_FAILURE: "an attempt failed, or another exclusive worker or collect is running"
    },
)
@click.option(
    "--for", "length", type=DURATION, default="0", help="Keep running for this long: 60, or 5m."
)
@exclusive_option
@log_options
def collect_command(
    ctx: CommandContext,
    length: timedelta,
    exclusive: bool,  # noqa: FBT001  # a flag
    verbose: bool,  # noqa: FBT001  # a flag
    log_format: str | None,
) -> None:
    """Run what is due now, then exit. For crontabs."""
    ctx.log = LogOptions(
        is_worker=True, is_verbose=verbose or ctx.log.is_verbose, format=log_format
    )
    app, stop = ctx.app, threading.Event()
    with (
        stop_on_signals(stop.set),
        app.lock(EXCLUSIVE_LOCK) if exclusive else nullcontext(),
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

    `work --exclusive` and `collect --exclusive` hold "tickwork work".
    If the holder is alive it is not stopped: it keeps working beside the next holder.
    """
    was_held = ctx.audit("lock.release", f"lock/{name}", lambda: ctx.app.unlock(name))
    done = UnlockResult(name, was_held)
    text = f"Released the lock {name!r}." if done.was_held else f"The lock {name!r} is not held."
    ctx.out.show(done, lambda: [TextLine(text)])
    if not done.was_held:
        sys.exit(EXIT_FAILURE)
