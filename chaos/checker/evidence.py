"""The evidence: the journals of the actors, and the tables at the end."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

SECOND: Final = 1_000_000


class Line(NamedTuple):
    """One line of a journal."""

    at: int  # microseconds since 1970
    who: str
    pid: int
    event: str
    facts: Mapping[str, Any]


class Change(NamedTuple):
    """One change of a run's row, as the audit trigger recorded it."""

    seq: int
    at: int
    op: str  # INSERT, UPDATE, DELETE
    run: str
    args: str | None = None
    job: str = ""
    queue: str = ""
    priority: int = 100
    status: str = "pending"
    phase: str = "ready"
    due_at: int = 0
    attempt: int = 0
    crashes: int = 0
    token: int = 0
    lease_until: int | None = None
    worker: str | None = None
    tenant: str = ""
    schedule: str | None = None
    nominal_at: int | None = None
    reason: str = ""
    checkpoint: str | None = None
    cancel_requested_at: int | None = None
    created_at: int = 0
    claim_tag: str | None = None
    external_id: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether a worker holds the run after this change."""
        return self.status == "running" and self.op != "DELETE"


class Finished(NamedTuple):
    """One row of history."""

    id: str
    tenant: str
    job: str
    status: str
    attempt: int
    attempts_max: int
    crashes: int
    token: int
    outcome: str
    reason: str
    args: str
    ended_at: int
    result: str | None = None
    schedule: str | None = None
    nominal_at: int | None = None
    last_nominal_at: int | None = None
    instants: int = 1


class Attempt(NamedTuple):
    """One row of an attempt."""

    run: str
    token: int
    attempt: int
    outcome: str
    error: str


class Effect(NamedTuple):
    """A row that a handler wrote in the transaction that completed its run."""

    run: str
    token: int
    nonce: str


class Schedule(NamedTuple):
    """One row of a schedule."""

    tenant: str
    name: str
    created_at: int
    paused_at: int | None


class JobRow(NamedTuple):
    """One row of a job."""

    tenant: str
    name: str
    last_success_at: int | None


_QUERIES: Final[Mapping[str, tuple[str, type[Any]]]] = {
    "changes": ("chaos_audit ORDER BY seq", Change),
    "finished": ("tickwork_history", Finished),
    "attempts": ("tickwork_attempt ORDER BY run, token", Attempt),
    "effects": ("chaos_effect", Effect),
    "schedules": ("tickwork_schedule", Schedule),
    "jobs": ("tickwork_job", JobRow),
}
_COLUMNS: Final[Mapping[str, str]] = {
    "live": "SELECT id FROM tickwork_run",
    "slots": "SELECT run FROM tickwork_slot",
    "orders": "SELECT uid FROM chaos_order",
}


@dataclass(frozen=True)
class Evidence:
    """Everything that the rules read."""

    lines: Sequence[Line] = ()
    changes: Sequence[Change] = ()
    live: Sequence[str] = ()
    finished: Sequence[Finished] = ()
    attempts: Sequence[Attempt] = ()
    slots: Sequence[str] = ()
    effects: Sequence[Effect] = ()
    orders: Sequence[str] = ()
    schedules: Sequence[Schedule] = ()
    jobs: Sequence[JobRow] = ()
    pids: Mapping[str, int] = field(default_factory=dict)  # of workers, by their ids
    manifest: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        lines: Sequence[Line],
        tables: Mapping[str, Any],
        manifest: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> "Evidence":
        found: dict[str, Any] = {
            name: [kind(*row) for row in tables[name]] for name, (_, kind) in _QUERIES.items()
        }
        found |= {name: [str(row[0]) for row in tables[name]] for name in _COLUMNS}
        # Rows that were edited may end in any way: only that they end, and hold nothing, counts.
        edited = {line.facts["run"] for line in lines if line.event == "edit"}
        lines = [
            line
            for line in lines
            if line.event not in {"begin", "end"} or line.facts["run"] not in edited
        ]
        for name, key in (("changes", "run"), ("finished", "id"), ("attempts", "run")):
            found[name] = [row for row in found[name] if getattr(row, key) not in edited]
        pids = {str(worker): pid for worker, pid in tables["workers"]}
        return cls(lines=lines, **found, pids=pids, manifest=manifest)

    def lines_of(self, *events: str) -> list[Line]:
        """The lines of these events, in order."""
        return [line for line in self.lines if line.event in events]

    @cached_property
    def finished_by_id(self) -> Mapping[str, Finished]:
        """History, by run."""
        return {row.id: row for row in self.finished}

    @cached_property
    def changes_by_run(self) -> Mapping[str, Sequence[Change]]:
        """The audit, by run."""
        found: dict[str, list[Change]] = defaultdict(list)
        for change in self.changes:
            found[change.run].append(change)
        return found

    @cached_property
    def births(self) -> Mapping[str, Change]:
        """The first insert of each run."""
        found: dict[str, Change] = {}
        for change in self.changes:
            if change.op == "INSERT":
                found.setdefault(change.run, change)
        return found

    @cached_property
    def facts_by_job(self) -> Mapping[str, Mapping[str, Any]]:
        """The facts of each job in the manifest."""
        return {facts["name"]: facts for facts in self.manifest.get("jobs", ())}

    def args_of(self, run: str) -> Mapping[str, Any]:
        """The arguments of the dispatch."""
        born = self.births.get(run)
        return json.loads(born.args or "{}") if born else {}


# ---------------------------------------------------------------- reading


def read_journals(folder: Path) -> list[Line]:
    """Every line of every actor, in order of time."""
    lines = [
        _line(json.loads(text))
        for path in sorted(folder.glob("*.log"))
        for text in path.read_text(encoding="utf-8").splitlines()
    ]
    return sorted(lines, key=lambda line: line.at)


def _line(facts: dict[str, Any]) -> Line:
    at = round(facts.pop("at") * SECOND)
    return Line(at, facts.pop("who"), facts.pop("pid"), facts.pop("event"), facts)


def read_tables(url: str) -> dict[str, list[list[Any]]]:
    """The tables that the rules read, as plain values."""
    found: dict[str, list[list[Any]]] = {}
    with closing(_connect(url)) as connection:
        cursor = connection.cursor()
        for name, (source, kind) in _QUERIES.items():
            found[name] = _rows(cursor, f"SELECT {', '.join(kind._fields)} FROM {source}")
        for name, text in _COLUMNS.items():
            found[name] = _rows(cursor, text)
        found["workers"] = _rows(cursor, "SELECT id, pid FROM chaos_worker")
    return found


def _rows(cursor: Any, text: str) -> list[list[Any]]:
    cursor.execute(text)
    return [[_plain(value) for value in row] for row in cursor.fetchall()]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return value if value is None or isinstance(value, int | str) else str(value)


def _connect(url: str) -> Any:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite3.connect(f"file:{parts.path[1:]}?mode=ro", uri=True)
    if parts.scheme == "postgresql":
        import psycopg  # noqa: PLC0415  # loaded on demand

        return psycopg.connect(url)
    import pymysql  # noqa: PLC0415  # as above

    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        database=parts.path.strip("/"),
        ssl_disabled=True,
        charset="utf8mb4",
    )
