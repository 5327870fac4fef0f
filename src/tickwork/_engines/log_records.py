"""Adds the run to log records that are made during an attempt, and stores them with the run.

While a worker or a pass runs, a factory for log records is installed that calls the program's own
factory. It gets every record of every logger. The root logger is not touched: its level and its
handlers belong to the program.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any, Final, TypeAlias

from tickwork._handlers.context import CURRENT, RunContext
from tickwork._kernel.fork import reset_after_fork

_Factory: TypeAlias = Callable[..., logging.LogRecord]

_FORMATTER: Final = logging.Formatter()


class RunFields(dict[str, Any]):
    """The attributes of a record, with fields that ``extra`` of a log call may overwrite.

    A logger raises an error for an ``extra`` whose name the record already has. A program that logs
    ``extra={"job": ...}`` in a handler must not fail because of that.
    """

    NAMES: Final = frozenset({"run_id", "job", "attempt"})

    def __contains__(self, name: object) -> bool:
        return name not in self.NAMES and super().__contains__(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # the reader may not know this class


def add_run_fields(record: logging.LogRecord, run: Any) -> None:
    """Add ``run_id``, ``job`` and ``attempt`` to a record, unless the host uses these names."""
    fields = RunFields(record.__dict__)
    for name in RunFields.NAMES:
        fields.setdefault(name, getattr(run, name))
    record.__dict__ = fields


def message_of(record: logging.LogRecord) -> str:
    """Return the text of a record with its traceback. It leaves the record as it is."""
    try:
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{_FORMATTER.formatException(record.exc_info)}"
        if record.stack_info:
            message = f"{message}\n{record.stack_info}"
    except Exception:  # noqa: BLE001  # a record with the wrong arguments must not fail a run
        message = str(record.msg)
    return message


class RecordFactory:
    """Makes records with the factory of the host, and handles those of attempts."""

    def __init__(self, previous: _Factory) -> None:
        self.previous = previous
        self.is_on = True

    def __call__(self, name: Any, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self.previous(name, *args, **kwargs)
        ctx = CURRENT.get()
        # logging.makeLogRecord() passes no name: the record comes from another process.
        if ctx is not None and self.is_on and name is not None:
            _keep(record, ctx)
            add_run_fields(record, ctx)
        return record


def _keep(record: logging.LogRecord, ctx: RunContext) -> None:
    # Formatting the record, or reading the clock, may log something itself.
    token = CURRENT.set(None)
    try:
        with suppress(Exception):  # a log call must not raise because its line cannot be kept
            ctx.keep_line(record.levelname, record.name, message_of(record))
    finally:
        CURRENT.reset(token)


class RecordCapture:
    """Installs the factory while anything in this process makes attempts."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._factory: RecordFactory | None = None
        reset_after_fork(self)

    def start(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._install()

    def stop(self) -> None:
        """Remove the factory after the last user has stopped."""
        with self._lock:
            self._users = max(self._users - 1, 0)
            if not self._users:
                self._remove()

    def after_fork(self) -> None:
        """Remove the factory: no attempt is made in the child."""
        self._lock, self._users = Lock(), 0
        self._remove()

    def _install(self) -> None:
        current = logging.getLogRecordFactory()
        if self._factory is not None:
            self._factory.is_on = False  # it may still be behind the factory of the host
        self._factory = RecordFactory(current)
        logging.setLogRecordFactory(self._factory)

    def _remove(self) -> None:
        factory = self._factory
        if factory is None:
            return
        if logging.getLogRecordFactory() is factory:
            logging.setLogRecordFactory(factory.previous)
            self._factory = None
        else:
            # The host put its own factory in front meanwhile, which calls this one.
            factory.is_on = False


RECORD_CAPTURE: Final = RecordCapture()
