"""What `make demo` shows: two workers on an SQLite file, and one of them is killed.

    python examples/demo.py [--seconds 20] [--folder build/demo]

On a terminal it is one picture that changes; into a pipe it is a line for each thing that
happens. At the end it says what happened and whether that is what was promised (the exit
status is 1 if it is not). The database stays in the folder, to be looked at.
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
PATIENCE: Final = 30.0
"""Seconds beyond its time that the demo waits for what it dispatched."""
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
    "send_email": "a queue that runs 2 at a time, now and later",
    "fetch_rates": "fails twice, is tried again",
    "charge_card": "fails for good",
    "import_pages": "its worker is killed on the way",
    "backup": "02:30 in Berlin, also when clocks change",
}


@dataclass
class Seen:
    """What the demo has seen so far, from rows alone."""

    began: float = field(default_factory=time.monotonic)
    runs: dict[str, Any] = field(default_factory=dict)
    lines: deque[tuple[float, str, str, str]] = field(default_factory=lambda: deque(maxlen=12))
    emails_at_once: int = 0
    looks: int = 0
    killed_pid: int = 0
    killed_at: float = 0.0
    killed_on_page: int = 0
    heir_pid: int = 0
    taken_after: float = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began


class Workers:
    """Processes that run ``tickwork work``, as anybody would start them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
        self._env = {**os.environ, "PYTHONPATH": path}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """One more."""
        command = [sys.executable, "-m", "tickwork", "-a", "demo_jobs:app", "work"]
        log = self._folder / f"worker-{len(self.processes) + 1}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603  # our own command
                command, env=self._env, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self.processes.append(process)

    def check(self) -> None:
        """See that none has ended by itself.

        Raises:
            click.ClickException: One has; with what it wrote.
        """
        for number, process in enumerate(self.processes, 1):
            if process.poll() not in {None, -signal.SIGKILL}:
                log = self._folder / f"worker-{number}.log"
                told = log.read_text(encoding="utf-8", errors="replace")
                raise click.ClickException(f"A worker has ended: {told[-2000:]}")

    def kill(self, pid: int) -> None:
        """End one without a warning, as a machine that runs out of memory does."""
        [victim] = [process for process in self.processes if process.pid == pid]
        victim.send_signal(signal.SIGKILL)
        victim.wait(10)

    def stop(self) -> None:
        """Let them end what they are at."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


class Show:
    """A picture that changes, or lines."""

    def __init__(self, console: Console, seen: Seen, seconds: float) -> None:
        self._console = console
        self._seen = seen
        self._seconds = seconds
        self._live: Live | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """For as long as there is something to see."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            self._picture(), console=self._console, auto_refresh=False, transient=True
        ) as self._live:
            yield
        self._live = None

    def tell(self, what: str, word: str, more: str = "") -> None:
        """Something has happened."""
        at = self._seen.elapsed
        self._seen.lines.append((at, what, word, more))
        if self._live is None:
            self._console.print(_line(at, what, word, more), soft_wrap=True)

    def draw(self) -> None:
        """Show how things are now."""
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def _picture(self) -> Group:
        table = Table(expand=True, box=None, header_style="bold")
        for column in ("job", "what it shows", "done", "running", "failed"):
            table.add_column(
                column, justify="left" if column in {"job", "what it shows"} else "right"
            )
        for job, what in SHOWN.items():
            found = [run for run in self._seen.runs.values() if run.job == job]
            counts = [
                sum(run.status in statuses for run in found)
                for statuses in (
                    {RunStatus.COMPLETED},
                    {RunStatus.RUNNING},
                    {RunStatus.FAILED, RunStatus.FAILED_PERMANENT},
                )
            ]
            table.add_row(job, f"[dim]{what}", *(str(count or "·") for count in counts))
        told = Group(*(_line(*line) for line in self._seen.lines))
        title = f"tickwork demo, {self._seen.elapsed:4.1f} of {self._seconds:.0f} s"
        return Group(Panel(table, title=title), Panel(told, title="what happens"))


def _line(at: float, what: str, word: str, more: str) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{at:5.1f} s  ", style="dim")
    line.append(f"{what:<13}", style="bold")
    line.append(word, style=COLOURS.get(word, ""))
    line.append(f"  {more}" if more else "", style="dim")
    return line


# ---------------------------------------------------------------- what is seen


def look(app: Tickwork, seen: Seen, show: Show) -> None:
    """Compare what the rows say with what they said before."""
    seen.looks += 1
    found = app.runs.recent(limit=200)
    at_once = sum(run.job == "send_email" and run.status is RunStatus.RUNNING for run in found)
    seen.emails_at_once = max(seen.emails_at_once, at_once)
    for run in reversed(found):
        before = seen.runs.get(run.id)
        seen.runs[run.id] = run
        if before is not None and (before.status, before.attempt, before.worker) == (
            run.status,
            run.attempt,
            run.worker,
        ):
            continue
        if run.status in {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.FAILED_PERMANENT}:
            show.tell(run.job, run.status.value, _more(run))
        elif run.status is RunStatus.RUNNING and run.job == "import_pages":
            show.tell(run.job, "running", f"by the worker {_pid_of(app, run)}")


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


# ---------------------------------------------------------------- the play


def play(jobs: Any, workers: Workers, seen: Seen, show: Show, seconds: float) -> None:
    """Everything that happens, in order."""
    app: Tickwork = jobs.app

    def until(check: Callable[[], bool], limit: float) -> None:
        deadline = time.monotonic() + limit
        while not check() and time.monotonic() < deadline:
            time.sleep(POLL)
            workers.check()
            look(app, seen, show)
            show.draw()

    for _ in range(2):
        workers.start()
    show.tell("workers", "starting", "two processes on one SQLite file")
    until(lambda: len(app.status()["workers"]) == 2, PATIENCE)
    show.tell("workers", "running", " and ".join(str(one.pid) for one in workers.processes))
    seen.began = time.monotonic()

    jobs.send_email.dispatch_many({"to": to} for to in EMAILS)
    for number, to in enumerate(EMAILS, 1):  # the same again, spread over the time
        jobs.send_email.delay(number * seconds / 10).dispatch(to=f"{to}, later")
    jobs.fetch_rates.dispatch()
    jobs.charge_card.dispatch(order=7)
    until(lambda: False, seconds / 5)
    run = jobs.import_pages.dispatch()
    until(lambda: (json.loads(run.read().checkpoint or "0")) >= KILL_AT_PAGE, PATIENCE)
    _kill_its_worker(app, run, workers, seen, show)

    def taken_over() -> bool:
        now = run.read()
        is_other = _pid_of(app, now) not in {0, seen.killed_pid}
        return now.status.is_final or (now.status is RunStatus.RUNNING and is_other)

    until(taken_over, PATIENCE)
    seen.heir_pid = _pid_of(app, run.read())
    seen.taken_after = time.monotonic() - seen.killed_at
    page = json.loads(run.read().checkpoint or "0") + 1
    more = f"by the worker {seen.heir_pid} after {seen.taken_after:.1f} s, at page {page}"
    show.tell("import_pages", "taken over", more)
    until(lambda: False, seconds - seen.elapsed)
    until(lambda: _unfinished(seen) == 0, PATIENCE)
    workers.stop()
    look(app, seen, show)


def _kill_its_worker(app: Tickwork, run: Any, workers: Workers, seen: Seen, show: Show) -> None:
    now = run.read()
    seen.killed_pid = _pid_of(app, now)
    if now.status is not RunStatus.RUNNING or not seen.killed_pid:
        raise click.ClickException("This machine is too busy: the import ended before its time.")
    seen.killed_on_page = json.loads(now.checkpoint or "0")
    workers.kill(seen.killed_pid)
    seen.killed_at = time.monotonic()
    more = f"kill -9 {seen.killed_pid}, at page {seen.killed_on_page} of its import"
    show.tell("worker", "killed", more)


def _unfinished(seen: Seen) -> int:
    return sum(not run.is_finished for run in seen.runs.values() if run.schedule is None)


# ---------------------------------------------------------------- the summary


def verdicts(jobs: Any, seen: Seen) -> Iterator[tuple[str, bool, str]]:
    """For each job: its name, whether it kept its promise, and what it came to."""
    by_job: dict[str, list[Any]] = {job: [] for job in SHOWN}
    for run in seen.runs.values():
        by_job[run.job].append(run)
    for job in ("tick", "sample"):
        fired = [run for run in by_job[job] if run.status is RunStatus.COMPLETED]
        late = max((run.started_at - run.due_at for run in fired), default=timedelta(0))
        text = f"fired {len(fired)} times, each instant once, at most {_ms(late)} late"
        # Where the machine is too busy for the last one to have ended: a row says so.
        skipped = sum(run.instants for run in by_job[job] if run.status is RunStatus.SKIPPED)
        text += f", {skipped} skipped" if skipped else ""
        instants = [run.nominal_at for run in by_job[job]]
        yield job, len(set(instants)) == len(instants) > 0, text
    sent = sum(run.status is RunStatus.COMPLETED for run in by_job["send_email"])
    text = f"{sent} of {2 * len(EMAILS)} sent, never more than {seen.emails_at_once} at a time"
    yield "send_email", sent == 2 * len(EMAILS) and 0 < seen.emails_at_once <= 2, text
    [rates] = by_job["fetch_rates"]
    failures = sum("ConnectionError" in one.error for one in jobs.app.get_run(rates.id).attempts())
    text = f"failed {failures} times, then {json.loads(rates.result or 'null')}"
    yield "fetch_rates", rates.status is RunStatus.COMPLETED and failures > 0, text
    [card] = by_job["charge_card"]
    text = f"failed for good after {card.attempt} attempts: {card.reason}"
    yield "charge_card", card.status is RunStatus.FAILED_PERMANENT, text
    [pages] = by_job["import_pages"]
    text = (
        f"worker {seen.killed_pid} killed at page {seen.killed_on_page}; worker {seen.heir_pid} "
        f"went on after {seen.taken_after:.1f} s: {json.loads(pages.result or 'null')}"
    )
    is_kept = pages.status is RunStatus.COMPLETED and seen.heir_pid not in {0, seen.killed_pid}
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


def summary(console: Console, jobs: Any, seen: Seen, folder: Path) -> bool:
    """Say what happened, and how to go on; return whether all was as promised."""
    found = list(verdicts(jobs, seen))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for job, is_kept, text in found:
        table.add_row("[green]ok" if is_kept else "[bold red]NO", f"[bold]{job}", text)
    finished = [run for run in seen.runs.values() if run.is_finished]
    done = sum(run.status is RunStatus.COMPLETED for run in finished)
    gone = sum(run.status is RunStatus.FAILED_PERMANENT for run in finished)
    left = _unfinished(seen)
    counts = f"{len(finished)} runs: {done} completed, {gone} failed for good, {left} unfinished"
    console.print("\n[bold]What happened[/]")
    console.print(table)
    console.print(f"{counts}.", f"[bold red]{left} were lost." if left else "Nothing was lost.")
    [import_pages] = [run.id for run in seen.runs.values() if run.job == "import_pages"]
    console.print(_ways_on(folder, import_pages), soft_wrap=True)
    return left == 0 and all(is_kept for _, is_kept, _ in found)


def _ways_on(folder: Path, run_id: str) -> str:
    here, examples = os.path.relpath(folder), os.path.relpath(EXAMPLES)
    command = Path(sys.executable).parent / "tickwork"
    command = Path(os.path.relpath(command)) if command.exists() else Path("tickwork")
    return f"""
[bold]How to go on[/]
  The database is still there. Look at it:
    export TICKWORK_URL=sqlite:///{here}/jobs.db TICKWORK_APP=demo_jobs:app PYTHONPATH={examples}
    {command} status
    {command} runs
    {command} inspect {run_id}    # the run that changed hands
  Begin your own, in an empty folder:
    pip install tickwork && tickwork init && tickwork work
  Read: docs/guide/install.md, docs/guide/jobs.md, and examples/ for FastAPI, systemd, Docker.
"""


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="How long it is shown.")
@click.option("--folder", default="build/demo", show_default=True, help="For the database.")
def main(seconds: float, folder: str) -> None:
    """Two workers on an SQLite file, one of which is killed."""
    place = Path(folder).resolve()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    console, seen = Console(highlight=False), Seen()
    if not console.is_terminal:
        console.width = 200  # lines of a pipe are as long as they are
    os.environ["TICKWORK_URL"] = f"sqlite:///{place}/jobs.db"
    jobs: Any = import_module("demo_jobs")  # now that it can know where its database is
    workers, show = Workers(place), Show(console, seen, seconds)
    with jobs.app:
        try:
            with show.running():
                play(jobs, workers, seen, show, seconds)
        finally:
            workers.stop()
        is_kept = summary(console, jobs, seen, place)
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
