"""The tables of the memory store, and its transactions."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import datetime
from threading import Lock
from typing import NamedTuple

from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import ScheduleRow
from tickwork._domain.run import Run
from tickwork.stores.contract import (
    Attempt,
    JobRow,
    LimitRow,
    LockRow,
    LogLine,
    Pause,
    PauseKind,
    WorkerRow,
)


class Protected(NamedTuple):
    """Who protects a unique key, and until when; None: for as long as it is unfinished."""

    run_id: RunId
    until: datetime | None


@dataclass(slots=True)
class Tables:
    """Every table is a dict by primary key. Rows are values that never change."""

    runs: dict[RunId, Run] = field(default_factory=dict)  # the unfinished ones
    history: dict[RunId, Run] = field(default_factory=dict)
    claim_tags: dict[RunId, str] = field(default_factory=dict)
    attempts: dict[RunId, tuple[Attempt, ...]] = field(default_factory=dict)
    logs: dict[RunId, tuple[LogLine, ...]] = field(default_factory=dict)
    slots: dict[RunId, frozenset[str]] = field(default_factory=dict)  # keys, by who holds them
    uniques: dict[str, Protected] = field(default_factory=dict)
    schedules: dict[ScheduleId, ScheduleRow] = field(default_factory=dict)
    jobs: dict[tuple[str, str], JobRow] = field(default_factory=dict)
    limits: dict[str, LimitRow] = field(default_factory=dict)
    pauses: dict[tuple[PauseKind, str], Pause] = field(default_factory=dict)
    locks: dict[str, LockRow] = field(default_factory=dict)
    workers: dict[WorkerId, WorkerRow] = field(default_factory=dict)

    def copied(self) -> "Tables":
        """The same rows in other dicts."""
        return Tables(*(copy(getattr(self, table.name)) for table in fields(self)))

    def unfinished_of(self, tenant: str, schedule: str) -> list[Run]:
        """The unfinished runs of a schedule, by id."""
        found = (run for run in self.runs.values() if run.schedule == schedule)
        return sorted((run for run in found if run.tenant == tenant), key=lambda run: run.id)


class TableHolder:
    """What the parts of the store share."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tables = Tables()

    @contextmanager
    def _reading(self) -> Iterator[Tables]:
        with self._lock:
            yield self._tables

    @contextmanager
    def _writing(self) -> Iterator[Tables]:
        """One transaction: when an error leaves the block, nothing in it has happened."""
        with self._lock:
            draft = self._tables.copied()
            yield draft
            self._tables = draft
