"""Records what a test kills, for the checker of chaos, and how soon the runs were ready again."""

import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from chaos import audit
from chaos.checker import judge
from chaos.checker.evidence import SECOND, Evidence, read_journals, read_tables
from chaos.checker.holds import steps
from chaos.checker.verdict import Verdict
from chaos.databases import connect
from chaos.journal import Journal
from chaos.workload import JobFacts, LimitFacts


class Rerun(NamedTuple):
    """A run whose process was killed: seconds until it was ready, and until a handler began.

    ``is_watched`` means that a worker of tickwork was up all the time. Otherwise none could notice.
    """

    to_ready: float
    to_begin: float
    past_lease: float  # from the end of the lease, as it was when the process was killed
    is_watched: bool


class KillRecord:
    """The journal of one test, and the audit of its database.

    Handlers append to ``handlers``, with an ``AttemptJournal``.
    """

    def __init__(
        self, folder: Path, url: str, *, jobs: Sequence[JobFacts], limits: Sequence[LimitFacts]
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.url = url
        self.handlers = folder / "handlers.log"
        self._journal = Journal(folder / "test.log", "test")
        manifest = {
            "jobs": [asdict(job) for job in jobs],
            "limits": [asdict(limit) for limit in limits],
            "rates": [],
            "schedules": [],
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))

    def prepare(self) -> None:
        """Add the audit to the tables, before the first dispatch."""
        kind = "postgres" if self.url.startswith("postgresql") else "sqlite"
        with closing(connect(self.url)) as connection:
            cursor = connection.cursor()
            for statement in audit.statements(kind):
                cursor.execute(statement)
            connection.commit()

    def note_dispatched(self, runs: Iterable[str]) -> None:
        for run in runs:
            self._journal.write("dispatched", run=run)

    def note_cancel(self, run: str) -> None:
        self._journal.write("cancel", run=run)

    def note_kill(self, actor: str, pids: Iterable[int]) -> None:
        """Note it before the kill."""
        for pid in pids:
            self._journal.write("signal", actor=actor, child=pid, number="SIGKILL")

    def judge(self) -> Verdict:
        return judge(self.folder, self.url)

    def reruns(self) -> list[Rerun]:
        """Find the runs that were taken back from killed processes."""
        evidence = Evidence.of(
            read_journals(self.folder), read_tables(self.url), {"jobs": [], "limits": []}
        )
        killed_at = {line.facts["child"]: line.at for line in evidence.lines_of("signal")}
        up = _times_of_workers(evidence, killed_at)
        begins: dict[str, list[int]] = {}
        for line in evidence.lines_of("begin"):
            begins.setdefault(line.facts["run"], []).append(line.at)
        found: list[Rerun] = []
        for run, changes in evidence.changes_by_run.items():
            lease_until = token = 0
            for before, after in steps(changes):
                dead_at = killed_at.get(evidence.pids.get(before.worker or "", 0))
                if dead_at is None or not before.is_running:
                    continue
                if before.at <= dead_at or before.token != token:
                    # Not as the reaper has ended it.
                    lease_until, token = before.lease_until or 0, before.token
                if after.is_running or after.op == "DELETE" or after.at < dead_at:
                    continue
                later = [at for at in begins.get(run, []) if at >= after.at]
                begun_at = min(later, default=after.at)
                found.append(
                    Rerun(
                        (after.at - dead_at) / SECOND,
                        (begun_at - dead_at) / SECOND,
                        (after.at - lease_until) / SECOND,
                        any(first <= dead_at and after.at <= last for first, last in up),
                    )
                )
        return found

    def describe_reruns(self) -> str:
        reruns = self.reruns()
        if not reruns:
            return "No run was executed again."

        def spread(values: list[float]) -> str:
            return (
                f"{min(values):.2f} to {max(values):.2f} s (median {statistics.median(values):.2f})"
            )

        watched = [each for each in reruns if each.is_watched]
        text = (
            f"{len(reruns)} runs were taken back from killed processes, {len(watched)} while "
            f"a worker of tickwork was up. Handlers began again after "
            f"{spread([each.to_begin for each in reruns])}."
        )
        if not watched:
            return text
        late = max(each.past_lease for each in watched)
        ready = spread([each.to_ready for each in watched])
        return f"{text} These were ready after {ready}, {late:+.2f} s from the lease."


def _times_of_workers(evidence: Evidence, killed_at: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return from when to when each worker of tickwork was up: from its first claim on."""
    first: dict[str, int] = {}
    for changes in evidence.changes_by_run.values():
        for before, after in steps(changes):
            if after.is_running and not before.is_running and after.worker is not None:
                first[after.worker] = min(after.at, first.get(after.worker, after.at))
    return [
        (at, killed_at.get(evidence.pids.get(worker, 0), sys.maxsize))
        for worker, at in first.items()
    ]
