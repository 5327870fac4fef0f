"""Keeps the log lines of attempts until they are written to the database."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._engines.log_records import RECORD_CAPTURE
from tickwork._stores.contract import LogLine

LINES_MAX: Final = 500
"""Log lines of one run that are stored, the first ones: a loop that logs must not fill a table."""


class LogCapture:
    """The log lines of runs, until the writer takes them."""

    def __init__(self, *, lines_max: int = LINES_MAX) -> None:
        self._lines_max = lines_max
        self._guard = Lock()
        self._lines: dict[RunId, list[LogLine]] = {}

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Capture the records of attempts in the block. Blocks may overlap."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Capture the records of attempts."""
        RECORD_CAPTURE.start()

    def stop(self) -> None:
        """Stop capturing, when each start had its stop."""
        RECORD_CAPTURE.stop()

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
