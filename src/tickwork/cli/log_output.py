"""The log that commands write to standard error: for people, or as JSON.

A program that configures logging itself keeps its own configuration, unless the command line asks
for a format.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from tickwork._kernel.plain_text import escape_lines

WORKER_LOGGER: Final = "tickwork.worker"
RUNS_LOGGER: Final = "tickwork.worker.runs"
TEXT: Final = "text"
JSON: Final = "json"

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes that every record has. The others are fields of the program."""


class LogOptions(NamedTuple):
    """How a command logs. A worker also shows its start and its stop."""

    is_worker: bool = False
    is_verbose: bool = False
    format: str | None = None  # None: text, unless the program has configured logging itself


class TextFormatter(logging.Formatter):
    """One line for each record. Further lines are indented, so that no text can forge a record."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's
        line = super().formatMessage(record)
        run_id = getattr(record, "run_id", None)
        if run_id is None or record.name.startswith(WORKER_LOGGER):
            return line
        return f"{line} [{getattr(record, 'job', '')} {run_id}]"

    def format(self, record: logging.LogRecord) -> str:
        return escape_lines(super().format(record)).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, with the fields that the program gave it."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        entry |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_text:
            entry["traceback"] = record.exc_text
        elif record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure_log(options: LogOptions) -> None:
    """Log to standard error, if the program has not configured logging itself."""
    root = logging.getLogger()
    if root.handlers and options.format is None:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if options.format == JSON else TextFormatter())
    if not options.is_verbose:
        handler.addFilter(_is_important if options.is_worker else _is_warning)
        # One record for each run would cost time, and nothing would show it.
        logging.getLogger(RUNS_LOGGER).setLevel(logging.WARNING)
    # A worker keeps the INFO records of its handlers with their runs, shown or not.
    level = logging.INFO if options.is_verbose or options.is_worker else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


def _is_important(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name == WORKER_LOGGER
