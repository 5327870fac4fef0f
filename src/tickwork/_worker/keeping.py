"""Log records that are made during an attempt, kept with the run."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import Final

from tickwork._define.context import CURRENT, RunContext
from tickwork._domain.identity import RunId
from tickwork._domain.outcome import bounded
from tickwork.stores.contract import LogLine

LINES_MAX: Final = 500
"""Log lines of one run that are kept: the first ones."""

MESSAGE_MAX: Final = 2_000
"""Characters of one line."""


class LogKeeper(logging.Handler):
    """Keeps what handlers log, by run, until it is taken.

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
        self._listeners = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what is logged in the block, by whatever logger. Several may overlap."""
        self.listen()
        try:
            yield
        finally:
            self.listen(is_on=False)

    def listen(self, *, is_on: bool = True) -> None:
        """Begin to keep what is logged, or end it. Each beginning has its own end."""
        with self._guard:
            self._listeners += 1 if is_on else -1
            root = logging.getLogger()
            (root.addHandler if self._listeners else root.removeHandler)(self)

    def forget(self) -> None:
        """Leave the loggers, whatever was under way: in a child process, after a fork."""
        self._guard, self._listeners = Lock(), 0
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record, if an attempt is being made here."""
        ctx = CURRENT.get()
        if ctx is None or self._is_busy:
            return
        # A clock that asks its database may log something itself, in this very thread.
        self._is_busy = True
        try:
            self._keep(record, ctx)
        finally:
            self._is_busy = False

    def _keep(self, record: logging.LogRecord, ctx: RunContext) -> None:
        record.run_id, record.job, record.attempt = ctx.run_id, ctx.job, ctx.attempt
        try:
            message = self.format(record)
        except Exception:  # noqa: BLE001  # a record with the wrong arguments must not fail a run
            message = str(record.msg)
        line = LogLine(self._now(), record.levelname, record.name, bounded(message, MESSAGE_MAX))
        self.keep(ctx.run_id, line)

    def keep(self, run_id: RunId, line: LogLine) -> None:
        """Keep one line of a run."""
        with self._guard:
            lines = self._lines.setdefault(run_id, [])
            if len(lines) < self._lines_max:
                lines.append(line)

    def put_back(self, taken: Mapping[RunId, list[LogLine]]) -> None:
        """Keep what could not be written for the next time, as far as there is room."""
        with self._guard:
            for run_id, lines in taken.items():
                self._lines[run_id] = (lines + self._lines.get(run_id, []))[: self._lines_max]

    def take(self) -> dict[RunId, list[LogLine]]:
        """Everything that was kept since the last time."""
        with self._guard:
            taken, self._lines = self._lines, {}
        return taken
