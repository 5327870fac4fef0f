"""`make demo`: two workers on an SQLite file, one of which is killed.

    python examples/demo.py [--seconds 20] [--folder build/demo]

On a terminal it shows a live table, in a pipe one line per event. At the end it prints a summary
and checks each promise (the exit status is 1 if one was broken). The database stays in the folder
for inspection.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tickwork import RunStatus, Tickwork

EXAMPLES: Final = Path(__file__).resolve().parent
POLL: Final = 0.1
WAIT_MAX: Final = 30.0
"""Extra seconds that the demo waits for unfinished runs."""
KILL_AT_PAGE: Final = 3
EMAILS: Final = tuple(
    f"{name}@example.org" for name in ("ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal")
)
SPRING: Final = datetime(2027, 3, 26, 12, tzinfo=UTC)
COLOURS: Final = {
    "completed": "green",
    "running": "cyan",
    "failed": "yellow",
    "failed_permanent": "red",
    "killed": "bold red",
    "taken over": "bold green",
}
SHOWN: Final = {
    "tick": "cron with seconds: */2 * * * * *",
    "sample": "an interval: every 3 seconds",
    "send_email": "a queue with a limit of 2, now and delayed",
    "fetch_rates": "fails twice, is retried",
    "charge_card": "fails permanently",
    "import_pages": "its worker is killed",
    "backup": "daily at 02:30 in Berlin, across a clock change",
}


@dataclass
class DemoState:
    """The state of the demo, read from the database."""

    began: float = field(default_factory=time.monotonic)
    runs: dict[str, Any] = field(default_factory=dict)
    lines: deque[tuple[float, str, str, str]] = field(default_factory=lambda: deque(maxlen=12))
    emails_at_once: int = 0
    killed_pid: int = 0
    killed_at: float = 0.0
    killed_on_page: int = 0
    new_pid: int = 0
    recovery_seconds: float = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began


class Workers:
    """Worker processes, started with ``tickwork work``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
        self._env = {**os.environ, "PYTHONPATH": path}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start one more worker."""
        command = [sys.executable, "-m", "tickwork", "-a", "demo_jobs:app", "work"]
        log = self._folder / f"worker-{len(self.processes) + 1}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603  # our own command
                command, env=self._env, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self.processes.append(process)

    def check(self) -> None:
        """Check that no worker has ended by itself.

        Raises:
            click.ClickException: One has ended. The message contains its output.
        """
        for number, process in enumerate(self.processes, 1):
            if process.poll() not in {None, -signal.SIGKILL}:
                log = self._folder / f"worker-{number}.log"
                output = log.read_text(encoding="utf-8", errors="replace")
                raise click.ClickException(f"A worker has ended: {output[-2000:]}")

    def kill(self, pid: int) -> None:
        """Kill one without a warning, as the out-of-memory killer would."""
        [victim] = [process for process in self.processes if process.pid == pid]
        victim.send_signal(signal.SIGKILL)
        victim.wait(10)

    def stop(self) -> None:
        """Drain and stop all workers."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


class Display:
    """A live table on a terminal, or lines in a pipe."""

    def __init__(self, console: Console, state: DemoState, seconds: float) -> None:
        self._console = console
        self._state = state
        self._seconds = seconds
        self._live: Live | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Show the live table during the block, if there is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            self._table(), console=self._console, auto_refresh=False, transient=True
        ) as self._live:
            yield
        self._live = None

    def report(self, what: str, status: str, more: str = "") -> None:
        """Add one event."""
        at = self._state.elapsed
        self._state.lines.append((at, what, status, more))
        if self._live is None:
            self._console.print(_line(at, what, status, more), soft_wrap=True)

    def draw(self) -> None:
        """Redraw the live table."""
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Group:
        table = Table(expand=True, box=None, header_style="bold")
        for column in ("job", "what it shows", "done", "running", "failed"):
            table.add_column(
                column, justify="left" if column in {"job", "what it shows"} else "right"
            )
        for job, what in SHOWN.items():
            found = [run for run in self._state.runs.values() if run.job == job]
            counts = [
                sum(run.status in statuses for run in found)
                for statuses in (
                    {RunStatus.COMPLETED},
                    {RunStatus.RUNNING},
                    {RunStatus.FAILED, RunStatus.FAILED_PERMANENT},
                )
            ]
            table.add_row(job, f"[dim]{what}", *(str(count or "·") for count in counts))
        events = Group(*(_line(*line) for line in self._state.lines))
        title = f"tickwork demo, {self._state.elapsed:4.1f} of {self._seconds:.0f} s"
        return Group(Panel(table, title=title), Panel(events, title="events"))


def _line(at: float, what: str, status: str, more: str) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{at:5.1f} s  ", style="dim")
    line.append(f"{what:<13}", style="bold")
    line.append(status, style=COLOURS.get(status, ""))
    line.append(f"  {more}" if more else "", style="dim")
    return line


# ---------------------------------------------------------------- reading the database


def read_runs(app: Tickwork, state: DemoState, display: Display) -> None:
    """Read the recent runs and report what has changed."""
    found = app.runs.recent(limit=200)
    at_once = sum(run.job == "send_email" and run.status is RunStatus.RUNNING for run in found)
    state.emails_at_once = max(state.emails_at_once, at_once)
    for run in reversed(found):
        before = state.runs.get(run.id)
        state.runs[run.id] = run
        if before is not None and (before.status, before.attempt, before.worker) == (
            run.status,
            run.attempt,
            run.worker,
        ):
            continue
        if run.status in {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.FAILED_PERMANENT}:
            display.report(run.job, run.status.value, _more(run))
        elif run.status is RunStatus.RUNNING and run.job == "import_pages":
            display.report(run.job, "running", f"by worker {_pid_of(app, run)}")


def _more(run: Any) -> str:
    if run.status is RunStatus.COMPLETED:
        attempts = f" (attempt {run.attempt})" if run.attempt > 1 else ""
        return str(json.loads(run.result or "null")) + attempts
    if run.status is RunStatus.FAILED:
        return f"{run.reason}; attempt {run.attempt + 1} at {run.due_at:%H:%M:%S}"
    return str(run.reason)


def _pid_of(app: Tickwork, run: Any) -> int:
    pids = {worker["id"]: worker["pid"] for worker in app.status()["workers"]}
    return int(pids.get(run.worker, 0))


# ---------------------------------------------------------------- the scenario


def run_scenario(
    jobs: Any, workers: Workers, state: DemoState, display: Display, seconds: float
) -> None:
    """Start the workers, dispatch, kill one worker, and wait for the end."""
    app: Tickwork = jobs.app

    def until(check: Callable[[], bool], limit: float) -> None:
        deadline = time.monotonic() + limit
        while not check() and time.monotonic() < deadline:
            time.sleep(POLL)
            workers.check()
            read_runs(app, state, display)
            display.draw()

    for _ in range(2):
        workers.start()
    display.report("workers", "starting", "two processes on one SQLite file")
    until(lambda: len(app.status()["workers"]) == 2, WAIT_MAX)
    display.report("workers", "running", " and ".join(str(one.pid) for one in workers.processes))
    state.began = time.monotonic()

    jobs.send_email.dispatch_many({"to": to} for to in EMAILS)
    for number, to in enumerate(EMAILS, 1):  # the same again, spread over the demo
        jobs.send_email.delay(number * seconds / 10).dispatch(to=f"{to}, later")
    jobs.fetch_rates.dispatch()
    jobs.charge_card.dispatch(order=7)
    until(lambda: False, seconds / 5)
    run = jobs.import_pages.dispatch()
    until(lambda: (json.loads(run.read().checkpoint or "0")) >= KILL_AT_PAGE, WAIT_MAX)
    _kill_its_worker(app, run, workers, state, display)

    def taken_over() -> bool:
        now = run.read()
        is_other = _pid_of(app, now) not in {0, state.killed_pid}
        return now.status.is_final or (now.status is RunStatus.RUNNING and is_other)

    until(taken_over, WAIT_MAX)
    state.new_pid = _pid_of(app, run.read())
    state.recovery_seconds = time.monotonic() - state.killed_at
    page = json.loads(run.read().checkpoint or "0") + 1
    more = f"by worker {state.new_pid} after {state.recovery_seconds:.1f} s, at page {page}"
    display.report("import_pages", "taken over", more)
    until(lambda: False, seconds - state.elapsed)
    until(lambda: _unfinished(state) == 0, WAIT_MAX)
    workers.stop()
    read_runs(app, state, display)


def _kill_its_worker(
    app: Tickwork, run: Any, workers: Workers, state: DemoState, display: Display
) -> None:
    now = run.read()
    state.killed_pid = _pid_of(app, now)
    if now.status is not RunStatus.RUNNING or not state.killed_pid:
        raise click.ClickException(
            "This machine is too busy: the import ended before its worker was killed."
        )
    state.killed_on_page = json.loads(now.checkpoint or "0")
    workers.kill(state.killed_pid)
    state.killed_at = time.monotonic()
    more = f"kill -9 {state.killed_pid}, at page {state.killed_on_page} of the import"
    display.report("worker", "killed", more)


def _unfinished(state: DemoState) -> int:
    return sum(not run.is_finished for run in state.runs.values() if run.schedule is None)


# ---------------------------------------------------------------- the summary


def verdicts(jobs: Any, state: DemoState) -> Iterator[tuple[str, bool, str]]:
    """Yield for each job: its name, whether its promise was kept, and the result."""
    by_job: dict[str, list[Any]] = {job: [] for job in SHOWN}
    for run in state.runs.values():
        by_job[run.job].append(run)
    for job in ("tick", "sample"):
        fired = [run for run in by_job[job] if run.status is RunStatus.COMPLETED]
        late = max((run.started_at - run.due_at for run in fired), default=timedelta(0))
        text = f"fired {len(fired)} times, each instant once, at most {_ms(late)} late"
        # On a busy machine a firing is skipped if the last run is unfinished.
        skipped = sum(run.instants for run in by_job[job] if run.status is RunStatus.SKIPPED)
        text += f", {skipped} skipped" if skipped else ""
        instants = [run.nominal_at for run in by_job[job]]
        yield job, len(set(instants)) == len(instants) > 0, text
    sent = sum(run.status is RunStatus.COMPLETED for run in by_job["send_email"])
    text = f"{sent} of {2 * len(EMAILS)} sent, never more than {state.emails_at_once} at a time"
    yield "send_email", sent == 2 * len(EMAILS) and 0 < state.emails_at_once <= 2, text
    [rates] = by_job["fetch_rates"]
    failures = sum("ConnectionError" in one.error for one in jobs.app.get_run(rates.id).attempts())
    text = f"failed {failures} times, then returned {json.loads(rates.result or 'null')}"
    yield "fetch_rates", rates.status is RunStatus.COMPLETED and failures > 0, text
    [card] = by_job["charge_card"]
    text = f"failed permanently after {card.attempt} attempts: {card.reason}"
    yield "charge_card", card.status is RunStatus.FAILED_PERMANENT, text
    [pages] = by_job["import_pages"]
    text = (
        f"worker {state.killed_pid} killed at page {state.killed_on_page}; worker {state.new_pid} "
        f"continued after {state.recovery_seconds:.1f} s: {json.loads(pages.result or 'null')}"
    )
    is_kept = pages.status is RunStatus.COMPLETED and state.new_pid not in {
        0,
        state.killed_pid,
    }
    yield "import_pages", is_kept, text
    instants = jobs.backup.preview(3, after=SPRING)
    text = "in spring 2027: " + ", ".join(f"{instant:%d %b %H:%M}" for instant in instants)
    yield (
        "backup",
        [f"{instant:%H:%M}" for instant in instants] == ["02:30", "03:00", "02:30"],
        text,
    )


def _ms(length: timedelta) -> str:
    return f"{1000 * length.total_seconds():.0f} ms"


def summary(console: Console, jobs: Any, state: DemoState, folder: Path) -> bool:
    """Print the results and the next steps; return whether all promises were kept."""
    found = list(verdicts(jobs, state))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for job, is_kept, text in found:
        table.add_row("[green]ok" if is_kept else "[bold red]FAILED", f"[bold]{job}", text)
    finished = [run for run in state.runs.values() if run.is_finished]
    done = sum(run.status is RunStatus.COMPLETED for run in finished)
    failed = sum(run.status is RunStatus.FAILED_PERMANENT for run in finished)
    left = _unfinished(state)
    counts = (
        f"{len(finished)} runs: {done} completed, {failed} failed permanently, {left} unfinished"
    )
    console.print("\n[bold]Results[/]")
    console.print(table)
    console.print(f"{counts}.", f"[bold red]{left} were lost." if left else "Nothing was lost.")
    [import_pages] = [run.id for run in state.runs.values() if run.job == "import_pages"]
    console.print(_next_steps(folder, import_pages), soft_wrap=True)
    return left == 0 and all(is_kept for _, is_kept, _ in found)


def _next_steps(folder: Path, run_id: str) -> str:
    here, examples = os.path.relpath(folder), os.path.relpath(EXAMPLES)
    command = Path(sys.executable).parent / "tickwork"
    command = Path(os.path.relpath(command)) if command.exists() else Path("tickwork")
    return f"""
[bold]Next steps[/]
  Inspect the database of the demo:
    export TICKWORK_URL=sqlite:///{here}/jobs.db TICKWORK_APP=demo_jobs:app PYTHONPATH={examples}
    {command} status
    {command} runs
    {command} inspect {run_id}    # the run that was taken over
    {command} ui                  # a link to the dashboard
  Start your own project in an empty folder:
    tickwork init && tickwork work
  Read: docs/guide/install.md, docs/guide/jobs.md, and examples/ for FastAPI, systemd, Docker.
"""


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="Duration of the demo.")
@click.option(
    "--folder",
    default="build/demo",
    show_default=True,
    help="Folder for the database and the logs.",
)
def main(seconds: float, folder: str) -> None:
    """Run two workers on an SQLite file and kill one of them."""
    place = Path(folder).resolve()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    console, state = Console(highlight=False), DemoState()
    if not console.is_terminal:
        console.width = 200  # do not wrap lines in a pipe
    os.environ["TICKWORK_URL"] = f"sqlite:///{place}/jobs.db"
    jobs: Any = import_module("demo_jobs")  # after TICKWORK_URL is set
    workers, display = Workers(place), Display(console, state, seconds)
    with jobs.app:
        try:
            with display.running():
                run_scenario(jobs, workers, state, display, seconds)
        finally:
            workers.stop()
        is_kept = summary(console, jobs, state, place)
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
