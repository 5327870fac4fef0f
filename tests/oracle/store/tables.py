"""The tables of the memory store, and its transactions."""

from bisect import bisect_left, insort
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import datetime
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from tickwork._domain.alert_history import AlertRow
from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import ScheduleRow
from tickwork._domain.limits.rates import Rate
from tickwork._domain.rollups import Rollup
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.steps import Step
from tickwork._domain.runs.stored_events import EventName, NewEvent
from tickwork._domain.shared_names import DefinitionKind, DefinitionRow
from tickwork._domain.skips import ScheduleName, SkipMark
from tickwork._stores.contract import (
    Attempt,
    AuditEntry,
    IdempotentRequest,
    JobRow,
    LimitRow,
    LockRow,
    LogLine,
    Pause,
    PauseKind,
    WorkerRow,
)

K = TypeVar("K")
V = TypeVar("V")

_NOTHING: Final[Any] = object()


Journal = list[tuple["OracleTable[Any, Any]", Any, Any]]
"""What changes have replaced, in order: the table, the key, and the old row if there was one."""


class OracleTable(dict[K, V]):
    """Rows by primary key, with a journal of changes for roll back.

    A history of a hundred thousand runs need not be copied to add one more to it.
    """

    __slots__ = ("journal",)

    def __init__(self) -> None:
        super().__init__()
        self.journal: Journal = []

    def __setitem__(self, key: K, row: V) -> None:
        self.journal.append((self, key, self.get(key, _NOTHING)))
        super().__setitem__(key, row)

    def __delitem__(self, key: K) -> None:
        self.journal.append((self, key, self[key]))
        super().__delitem__(key)

    def pop(self, key: K, default: Any = _NOTHING) -> Any:
        if default is not _NOTHING and key not in self:
            return default
        row = self[key]
        del self[key]
        return row

    def put_back(self, key: K, row: V) -> None:
        """Undo one change."""
        if row is _NOTHING:
            super().__delitem__(key)
        else:
            super().__setitem__(key, row)

    # These would change the dict without an entry in the journal.
    clear = popitem = setdefault = update = __ior__ = None  # type: ignore[assignment]


class Protected(NamedTuple):
    """The run that holds a unique key, and until when; None: until the run is finished."""

    run_id: RunId
    until: datetime | None


@dataclass(slots=True)
class Tables:
    """Every table is a dict by primary key. Rows are values that never change."""

    runs: dict[RunId, Run] = field(default_factory=OracleTable)  # unfinished
    history: dict[RunId, Run] = field(default_factory=OracleTable)
    claim_tags: dict[RunId, str] = field(default_factory=OracleTable)
    attempts: dict[RunId, tuple[Attempt, ...]] = field(default_factory=OracleTable)
    logs: dict[RunId, tuple[LogLine, ...]] = field(default_factory=OracleTable)
    steps: dict[RunId, dict[str, Step]] = field(default_factory=OracleTable)  # by name
    events: dict[EventName, NewEvent] = field(default_factory=OracleTable)
    waits: dict[RunId, EventName] = field(default_factory=OracleTable)
    # An event, or the id of a run that ended without success and has called others.
    outbox: dict[str, EventName | RunId] = field(default_factory=OracleTable)
    # Calls whose run has not ended, by that run, the caller and the step: is the run its own?
    edges: dict[tuple[RunId, RunId, str], bool] = field(default_factory=OracleTable)
    slots: dict[RunId, frozenset[str]] = field(default_factory=OracleTable)  # keys, by run
    uniques: dict[str, Protected] = field(default_factory=OracleTable)
    schedules: dict[ScheduleId, ScheduleRow] = field(default_factory=OracleTable)
    # Of each schedule, the row of its newest skips, if it has one.
    skip_marks: dict[ScheduleName, SkipMark[datetime] | None] = field(default_factory=OracleTable)
    jobs: dict[tuple[str, str], JobRow] = field(default_factory=OracleTable)
    definitions: dict[tuple[DefinitionKind, str, str], DefinitionRow] = field(
        default_factory=OracleTable
    )
    limits: dict[str, LimitRow] = field(default_factory=OracleTable)
    rates: dict[str, Rate] = field(
        default_factory=OracleTable
    )  # with the limit at the time of writing
    pauses: dict[tuple[PauseKind, str], Pause] = field(default_factory=OracleTable)
    locks: dict[str, LockRow] = field(default_factory=OracleTable)
    workers: dict[WorkerId, WorkerRow] = field(default_factory=OracleTable)
    audit: dict[str, AuditEntry] = field(default_factory=OracleTable)
    requests: dict[str, IdempotentRequest] = field(default_factory=OracleTable)
    alerts: dict[str, AlertRow] = field(default_factory=OracleTable)
    ended: dict[int, Rollup] = field(default_factory=OracleTable)

    journal: Journal = field(default_factory=list)
    # By schedule: its runs in the order of their instants. Entries are never removed, so readers
    # ignore runs that do not exist.
    firings: dict[tuple[str, str], list[tuple[datetime, RunId]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in fields(self):
            table = getattr(self, each.name)
            if isinstance(table, OracleTable):
                table.journal = self.journal

    def roll_back(self) -> None:
        """Undo what is in the journal, the last change first."""
        while self.journal:
            table, key, row = self.journal.pop()
            table.put_back(key, row)

    def note_firing(self, run: Run) -> None:
        """Add a run to ``firings``."""
        if run.schedule is not None and run.nominal_at is not None:
            noted = self.firings.setdefault((run.tenant, run.schedule), [])
            insort(noted, (run.nominal_at, run.id))

    def firings_between(
        self, schedule: ScheduleName, *, since: datetime, since_id: RunId, before: datetime
    ) -> list[datetime]:
        """The instants between two skips that have a run which was not skipped.

        Of finished runs, those that have a later id than the first skip.
        """
        noted = self.firings.get(schedule, [])
        found = noted[bisect_left(noted, (since, "")) : bisect_left(noted, (before, ""))]
        return [
            instant
            for instant, run_id in found
            if instant > since
            and (run_id in self.runs or (run_id > since_id and self._is_unskipped(run_id)))
        ]

    def _is_unskipped(self, run_id: RunId) -> bool:
        return run_id in self.history and self.history[run_id].status is not RunStatus.SKIPPED

    def next_turn_at(self) -> datetime | None:
        return min(
            (rate.next_start_at for rate in self.rates.values() if rate.next_start_at), default=None
        )

    def unfinished_of(self, tenant: str, schedule: str) -> list[Run]:
        found = (run for run in self.runs.values() if run.schedule == schedule)
        return sorted((run for run in found if run.tenant == tenant), key=lambda run: run.id)


class TableHolder:
    def __init__(self) -> None:
        tables, lock = Tables(), Lock()
        self._read_transaction = ReadTransaction(tables, lock)
        self._write_transaction = WriteTransaction(tables, lock)

    def _reading(self) -> "ReadTransaction":
        return self._read_transaction

    def _writing(self) -> "WriteTransaction":
        return self._write_transaction


class ReadTransaction(AbstractContextManager[Tables]):
    """Locks the tables for reading."""

    def __init__(self, tables: Tables, lock: Lock) -> None:
        self._tables = tables
        self._lock = lock

    def __enter__(self) -> Tables:
        self._lock.acquire()
        return self._tables

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._lock.release()


class WriteTransaction(ReadTransaction):
    """Locks the tables for writing, and rolls back when the block raises."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._tables.journal.clear()
        else:
            self._tables.roll_back()
        self._lock.release()
