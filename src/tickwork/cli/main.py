"""The command ``tickwork``."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Final

import click

from tickwork._kernel.durations import human_duration, parse_duration
from tickwork._kernel.signals import stopping_on_signals
from tickwork._worker.options import WorkerOptions
from tickwork.app import Tickwork
from tickwork.cli.loading import load_app
from tickwork.errors import TickworkError

EXIT_FAILED: Final = 1
EXIT_STUCK: Final = 70
"""The worker ended because a thread ignored its timeout: a supervisor starts it again."""
WORK_LOCK: Final = "tickwork work"
COLLECT_LOCK: Final = "tickwork collect"
SUPERVISOR_VARIABLE: Final = "TICKWORK_SUPERVISOR"
PARENT_EVERY: Final = 0.5


class Length(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions
    """A length of time: ``90s``, ``5m``, or a number of seconds."""

    name = "length"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read it, or say what is wrong with it."""
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(seconds=float(value))
        except ValueError:
            pass
        try:
            return parse_duration(value)
        except TickworkError as fault:
            self.fail(fault.what, param, ctx)


@click.group()
@click.option("-a", "--app", "path", help="The application: module:attribute, or TICKWORK_APP.")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, not only what goes wrong.")
@click.pass_context
def cli(ctx: click.Context, path: str | None, verbose: bool) -> None:  # noqa: FBT001  # a flag
    """Jobs, schedules and runs on the database you have."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    ctx.obj = lambda: load_app(path)
    ctx.meta["tickwork.path"] = path


@cli.command()
@click.option("-q", "--queue", "queues", multiple=True, help="Only this queue; may be repeated.")
@click.option("--threads", default=10, show_default=True, help="Functions at the same time.")
@click.option("--coroutines", default=100, show_default=True, help="Coroutines at the same time.")
@click.option("--processes", default=1, show_default=True, help="Worker processes, supervised.")
@click.option("--children", default=2, show_default=True, help="Jobs with a process of their own.")
@click.option("--drain", type=Length(), default="30s", show_default=True, help="Time to end.")
@click.option("--exclusive", is_flag=True, help="Refuse to work beside another such worker.")
@click.pass_context
def work(  # noqa: PLR0917  # click passes them by name
    ctx: click.Context,
    queues: tuple[str, ...],
    threads: int,
    coroutines: int,
    processes: int,
    children: int,
    drain: timedelta,
    exclusive: bool,  # noqa: FBT001  # a flag
) -> None:
    """Run what is due, until told to stop."""
    if processes > 1:
        from tickwork.cli.supervising import supervise  # noqa: PLC0415  # few need it

        app = _app(ctx)
        with _refusals(), app.lock(WORK_LOCK) if exclusive else nullcontext():
            sys.exit(supervise(app, sys.argv[1:], processes=processes, drain=drain))
    app = _app(ctx)
    with _refusals():
        options = WorkerOptions(
            queues=queues, threads=threads, coroutines=coroutines, processes=children, drain=drain
        )
        with app.lock(WORK_LOCK) if exclusive else nullcontext():
            _work(app, options)


def _work(app: Tickwork, options: WorkerOptions) -> None:
    begun = time.monotonic()
    told = _Told(app.stop)
    with stopping_on_signals(told.stop):
        app.start(options)
        told.started()
        left_behind = app.join()
    stats = app.stats
    click.echo(
        f"Worked for {human_duration(timedelta(seconds=time.monotonic() - begun))}: "
        f"{stats.attempts} attempts, {stats.failures} failed, "
        f"started at most {human_duration(stats.lateness)} late.",
        err=True,
    )
    code = EXIT_STUCK if stats.is_stuck else 0
    if left_behind:
        # They would keep this process from ending, or fall over what ends around them.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


class _Told:
    """A stop that may come before there is anything to stop."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._is_told = False
        # Taken out: what a handler starts is no child of our supervisor.
        supervisor = os.environ.pop(SUPERVISOR_VARIABLE, None)
        if supervisor is not None:
            parent = partial(self._watch, int(supervisor))
            threading.Thread(target=parent, name="tickwork-parent", daemon=True).start()

    def stop(self) -> None:
        self._is_told = True
        self._stop()

    def started(self) -> None:
        if self._is_told:
            self._stop()

    def _watch(self, supervisor: int) -> None:
        """A worker ends with its supervisor: nobody else would end it."""
        while os.getppid() == supervisor:
            time.sleep(PARENT_EVERY)
        self.stop()


@cli.command()
@click.option("--for", "length", type=Length(), default="0", help="Stay that long.")
@click.option("--exclusive", is_flag=True, help="Refuse to work beside another such worker.")
@click.pass_context
def collect(ctx: click.Context, length: timedelta, exclusive: bool) -> None:  # noqa: FBT001
    """Run what is due now, and leave: for a crontab."""
    app, stop = _app(ctx), threading.Event()
    with (
        _refusals(),
        stopping_on_signals(stop.set),
        app.lock(COLLECT_LOCK) if exclusive else nullcontext(),
    ):
        failures = app.collect(length, stop=stop)
    if failures:
        click.echo(f"{failures} attempts failed.", err=True)
        sys.exit(EXIT_FAILED)


@cli.command()
@click.option("--json", "is_json", is_flag=True, help="For programs.")
@click.pass_context
def status(ctx: click.Context, is_json: bool) -> None:  # noqa: FBT001  # a flag
    """Show what there is: runs, schedules, workers."""
    app = _app(ctx)
    with _refusals():
        found = app.status()
    if is_json:
        click.echo(json.dumps(found, default=str, indent=2))
        return
    for name, value in found.items():
        click.echo(f"{name}: {json.dumps(value, default=str)}")


def _app(ctx: click.Context) -> Tickwork:
    load: Callable[[], Tickwork] = ctx.obj
    return load()


class _refusals:  # noqa: N801  # reads as a sentence
    """Errors of tickwork are told in words, without a traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, TickworkError):
            raise click.ClickException(str(error)) from error


def main() -> None:
    """Run the command."""
    cli(prog_name="tickwork")
