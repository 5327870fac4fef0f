"""Captures log records of attempts, to be stored with their runs."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import Final

from tickwork._define.context import CURRENT, RunContext
from tickwork._domain.identity import RunId
from tickwork._domain.outcome import shorten
from tickwork.stores.contract import LogLine

LINES_MAX: Final = 500
"""Log lines of one run that are stored: the first ones."""

MESSAGE_MAX: Final = 2_000
"""Characters of one line."""


class LogCapture(logging.Handler):
    """Keeps log records by run, until the writer takes them.

    It also gives every record the fields ``run_id``, ``job`` and ``attempt``, so that other
    handlers can show them.
    """

    def __init__(self, *, now: Callable[[], datetime], lines_max: int = LINES_MAX) -> None:
        super().__init__()
        self._now = now
        self._is_busy = False
        self._lines_max = lines_max
        self._guard = Lock()
        self._lines: dict[RunId, list[LogLine]] = {}
        self._users = 0

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Capture the records of all loggers in the block. Blocks may overlap."""
        self.enable()
        try:
            yield
        finally:
            self.enable(is_on=False)

    def enable(self, *, is_on: bool = True) -> None:
        """Start or stop capturing. It stops when each start had its stop."""
        with self._guard:
            self._users += 1 if is_on else -1
            root = logging.getLogger()
            (root.addHandler if self._users else root.removeHandler)(self)

    def forget(self) -> None:
        """Remove this handler from the loggers, in a child process after a fork."""
        self._guard, self._users = Lock(), 0
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record, if this thread or task makes an attempt."""
        ctx = CURRENT.get()
        if ctx is None or self._is_busy:
            return
        # The clock may query the database, which may log something in this thread.
        self._is_busy = True
        try:
            self._capture(record, ctx)
        finally:
            self._is_busy = False

    def _capture(self, record: logging.LogRecord, ctx: RunContext) -> None:
        record.run_id, record.job, record.attempt = ctx.run_id, ctx.job, ctx.attempt
        try:
            message = self.format(record)
        except Exception:  # noqa: BLE001  # a record with the wrong arguments must not fail a run
            message = str(record.msg)
        line = LogLine(self._now(), record.levelname, record.name, shorten(message, MESSAGE_MAX))
        self.add(ctx.run_id, line)

    def add(self, run_id: RunId, line: LogLine) -> None:
        with self._guard:
            lines = self._lines.setdefault(run_id, [])
            if len(lines) < self._lines_max:
                lines.append(line)

    def put_back(self, taken: Mapping[RunId, list[LogLine]]) -> None:
        """Keep lines that could not be written, as far as there is room."""
        with self._guard:
            for run_id, lines in taken.items():
                self._lines[run_id] = (lines + self._lines.get(run_id, []))[: self._lines_max]

    def take(self) -> dict[RunId, list[LogLine]]:
        """Remove and return all lines."""
        with self._guard:
            taken, self._lines = self._lines, {}
        return taken
