"""Commands that work: ``work``, ``collect``, and ``unlock`` for what they leave behind."""

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
from tickwork._kernel.signals import stop_on_signals
from tickwork._worker.options import WorkerOptions
from tickwork.app import Tickwork
from tickwork.cli.commands import (
    EXIT_BEHIND,
    EXIT_NO,
    EXIT_STUCK,
    LENGTH,
    Call,
    verb,
)
from tickwork.cli.render import Line
from tickwork.errors import mask_url

WORK_LOCK: Final = "tickwork work"
COLLECT_LOCK: Final = "tickwork collect"
SUPERVISOR_VARIABLE: Final = "TICKWORK_SUPERVISOR"
PARENT_EVERY: Final = 0.5


@verb(
    name="work",
    examples="""
tickwork work
tickwork -a shop.jobs:app work -q emails -q reports --slots 20
tickwork work --processes 4 --drain 2m
tickwork work --exclusive --max-missed 10
""",
    exits={
        EXIT_NO: "another worker holds the place (--exclusive)",
        EXIT_STUCK: "a thread ignored its timeout, and only a new process gives it back",
        EXIT_BEHIND: "so many firings in a row started late (--max-missed)",
    },
)
@click.option("-q", "--queue", "queues", multiple=True, help="Only this queue; may be repeated.")
@click.option(
    "--slots", "--threads", "threads", default=10, show_default=True, help="Functions at a time."
)
@click.option("--coroutines", default=100, show_default=True, help="Coroutines at a time.")
@click.option(
    "--processes",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="Worker processes, supervised: those that die are replaced.",
)
@click.option("--children", default=2, show_default=True, help="Jobs with a process of their own.")
@click.option(
    "--drain",
    type=LENGTH,
    default="30s",
    show_default=True,
    help="How long running work may go on after a stop.",
)
@click.option("--exclusive", is_flag=True, help="Refuse to work beside another such worker.")
@click.option(
    "--max-missed",
    type=click.IntRange(1),
    help="End after so many firings in a row that started more than a second late.",
)
def work_command(  # noqa: PLR0917  # click passes them by name
    call: Call,
    queues: tuple[str, ...],
    threads: int,
    coroutines: int,
    processes: int,
    children: int,
    drain: timedelta,
    exclusive: bool,  # noqa: FBT001  # a flag
    max_missed: int | None,
) -> None:
    """Run what is due, until told to stop.

    SIGTERM or Ctrl-C, once: it takes no new work, and what runs may end. Twice: it ends
    there and then.
    """
    app = call.app
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
        from tickwork.cli.supervising import supervise  # noqa: PLC0415  # few need it

        arguments = [*_application(call), "work", *_arguments(options)]
        sys.exit(supervise(app, arguments, processes=processes, drain=drain))


def _application(call: Call) -> list[str]:
    """How another process is told which application this is."""
    if call.app.path:
        return ["-a", call.app.path]
    if call.is_mounted:
        origin = call.app.origin
        return ["-a", f"{origin.module}:{origin.attribute}"]
    return []  # it finds the same tickwork.toml


def _arguments(options: WorkerOptions) -> list[str]:
    """The same command for a single process. What is exclusive is so for all of them."""
    words = [word for queue in options.queues for word in ("--queue", queue)]
    words += ["--slots", str(options.threads), "--coroutines", str(options.coroutines)]
    words += ["--children", str(options.processes), "--drain", format_duration(options.drain)]
    if options.missed_max:
        words += ["--max-missed", str(options.missed_max)]
    return words


def _work(app: Tickwork, options: WorkerOptions) -> None:
    begun = time.monotonic()
    told = _Told(app.stop)
    with stop_on_signals(told.stop):
        app.start(options)
        _greet(app, options)
        told.started()
        left_behind = app.join()
    stats = app.stats
    if stats.is_behind:
        click.echo(
            f"{stats.missed} firings in a row started more than a second late, "
            f"the last of them {human_duration(stats.lateness_last)}: this worker has too "
            "much to do.\nGive it more --slots or --processes, or start another one.",
            err=True,
        )
    click.echo(
        f"Worked for {human_duration(timedelta(seconds=time.monotonic() - begun))}: "
        f"{stats.attempts} attempts, {stats.failures} failed, "
        f"started at most {human_duration(stats.lateness)} late.",
        err=True,
    )
    code = EXIT_STUCK if stats.is_stuck else EXIT_BEHIND if stats.is_behind else 0
    if left_behind:
        # They would keep this process from ending, or fall over what ends around them.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _greet(app: Tickwork, options: WorkerOptions) -> None:
    """Say what goes on, to whoever sits there and would see nothing otherwise."""
    if not sys.stderr.isatty():
        return
    queues = f"queues {', '.join(options.queues)}" if options.queues else "all queues"
    schedules = len(app.registry.schedules())
    click.echo(
        f"Working on {mask_url(app.settings.url)}: {len(app.registry.job_names())} jobs, "
        f"{schedules} {'schedule' if schedules == 1 else 'schedules'}, {queues}. Ctrl-C ends it.",
        err=True,
    )


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


@dataclass(frozen=True, slots=True)
class Collected:
    """What came of a collect."""

    attempts: int
    failures: int


@verb(
    name="collect",
    answer=Collected,
    examples="""
tickwork collect
tickwork collect --for 60 --exclusive
* * * * *  cd /srv/shop && tickwork -a shop.jobs:app collect --for 60
""",
    exits={EXIT_NO: "an attempt failed, or another collect holds the place (--exclusive)"},
)
@click.option(
    "--for", "length", type=LENGTH, default="0", help="Stay that long: 60 from a crontab."
)
@click.option("--exclusive", is_flag=True, help="Refuse to work beside another such collect.")
def collect_command(call: Call, length: timedelta, exclusive: bool) -> None:  # noqa: FBT001
    """Run what is due now, and leave: for a crontab."""
    app, stop = call.app, threading.Event()
    with (
        stop_on_signals(stop.set),
        app.lock(COLLECT_LOCK) if exclusive else nullcontext(),
    ):
        before = app.stats.attempts
        failures = app.collect(length, stop=stop)
        done = Collected(app.stats.attempts - before, failures)
    call.out.show(done, lambda: [Line(f"{done.attempts} attempts, {done.failures} failed.")])
    if failures:
        call.out.note(f"{failures} attempts failed.", "red")
        sys.exit(EXIT_NO)


@dataclass(frozen=True, slots=True)
class Unlocked:
    """What became of a lock."""

    name: str
    was_held: bool


@verb(
    name="unlock",
    answer=Unlocked,
    examples="""
tickwork unlock "tickwork work"
tickwork unlock nightly-import
""",
    exits={EXIT_NO: "nobody held it"},
)
@click.argument("name")
def unlock_command(call: Call, name: str) -> None:
    """Free a named lock whose holder is known to be gone.

    `work --exclusive` holds "tickwork work", `collect --exclusive` holds "tickwork collect".
    A holder that lives goes on all the same, beside whoever takes the lock next.
    """
    done = Unlocked(name, call.app.unlock(name))
    said = f"The lock {name!r} is free now." if done.was_held else f"Nobody holds {name!r}."
    call.out.show(done, lambda: [Line(said)])
    if not done.was_held:
        sys.exit(EXIT_NO)
