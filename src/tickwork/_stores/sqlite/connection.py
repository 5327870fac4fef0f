"""SQLite connections: each process has one for writing and one for reading."""

import json
import os
import random
import re
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from tickwork._kernel.fork import pause_for_fork
from tickwork._kernel.read_limit import ReadLimit
from tickwork._stores._sql.faults import Rejection, RejectionTable, reject_unencodable
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.statement import Row, Rows, Statement
from tickwork.errors import (
    FolderMissing,
    OutcomeUnknown,
    ReadTimeout,
    SchemaDamaged,
    StatementFailed,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreLinked,
    StoreReplaced,
    StoreUnavailable,
    ValueRejected,
)

_PLACEHOLDER: Final = re.compile(r"\?(\d*)")
_PLAIN_INSERT: Final = re.compile(r"(INSERT INTO \w+) \(([^()]*)\)\s*VALUES\s*\(([^()]*)\);?\s*")
_NOT_UNICODE: Final = "Could not decode to UTF-8"
PLACEHOLDERS_MAX: Final = 999
"""The number of parameters that every version of SQLite accepts in one statement."""

STEPS_UNCHECKED: Final = 20_000
"""Steps of SQLite between two checks of the time: less than a millisecond."""

BULK_MIN: Final = 32
"""The number of rows from which on an INSERT with a text of its own takes less time."""

MEMORY: Final = ":memory:"
LOG_BYTES: Final = 8 * 1024 * 1024
"""SQLite cuts the write-ahead log to this size when it starts to write it from the beginning.
Without a limit it never becomes smaller again after a program has read for a long time."""

_SHARED_MEMORY: Final = re.compile(r"file:.*[?&]mode=memory\b.*")
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNAVAILABLE: Final = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM}
)
"""Errors of the disk or the machine, not of the statement: a later try may succeed."""

REJECTIONS: Final = RejectionTable(
    values=frozenset(
        {
            "SQLITE_CONSTRAINT",
            "SQLITE_MISMATCH",  # not of the type
            "SQLITE_TOOBIG",
        }
    ),
    triggers=frozenset({"SQLITE_CONSTRAINT_TRIGGER"}),  # RAISE(ABORT), RAISE(FAIL)
)
"""Names of errors. All other errors concern no row."""

_NOT_THERE: Final = re.compile(r"^no such (?:table|column): | has no column named ")
_DAMAGED: Final = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})

FORK_WAIT: Final = 5.0
"""Seconds that a fork waits for the end of a transaction in another thread."""

FORKED_INSIDE: Final = "this process was forked in the middle of a transaction of its parent."
_inherited: Final[dict[str, list[sqlite3.Connection]]] = {}
"""Connections that could not be closed before a fork, by path. They must not be closed here."""


def is_shared_memory(path: str) -> bool:
    """Whether it is the URI of a database in memory that several connections of a process share.

    >>> is_shared_memory("file:tests?mode=memory&cache=shared"), is_shared_memory("jobs.db")
    (True, False)
    """
    return _SHARED_MEMORY.fullmatch(path) is not None


def is_in_memory(path: str) -> bool:
    return path == MEMORY or is_shared_memory(path)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds a lock."""
    return error.sqlite_errorcode & 0xFF in _BUSY


def is_unknown_commit(error: sqlite3.Error) -> bool:
    """Whether a COMMIT with this error may be stored: the log was written, and not synced."""
    return error.sqlite_errorcode == sqlite3.SQLITE_IOERR_FSYNC


def is_table_missing(error: sqlite3.Error) -> bool:
    """Whether a table does not exist. SQLite has no code for it."""
    return str(error).startswith("no such table: ")


def is_about_tables(error: sqlite3.Error) -> bool:
    """Whether a table or a column does not exist. SQLite has no code for it."""
    return isinstance(error, sqlite3.OperationalError) and bool(_NOT_THERE.search(str(error)))


def find_rejection(error: Exception) -> Rejection | None:
    """Return what an error says about a row; None if it concerns no row."""
    if isinstance(error, sqlite3.DataError):  # of the module itself: it has no code
        return ValueRejected(str(error), state="SQLITE_TOOBIG")
    if not isinstance(error, sqlite3.DatabaseError):
        return None
    # "SQLITE_CONSTRAINT_TRIGGER" is of the class "SQLITE_CONSTRAINT". Python 3.11 has no name for
    # a value of another type than its column in a STRICT table.
    name = getattr(error, "sqlite_errorname", "")
    if name == "unknown" and isinstance(error, sqlite3.IntegrityError):
        name = "SQLITE_CONSTRAINT_DATATYPE"
    return REJECTIONS.find((name, "_".join(name.split("_")[:2])), str(error))


def translate_error(error: sqlite3.DatabaseError, path: str) -> StoreError:
    """Turn an error of SQLite into one of ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY:
        return StoreBusy(f"sqlite:///{path}", waited=timedelta(0))
    if code in _UNAVAILABLE:
        return StoreUnavailable(f"sqlite:///{path}", str(error))
    if code in _DAMAGED:
        return StoreDamaged(path, str(error))
    if is_about_tables(error):
        return SchemaDamaged(f"sqlite:///{path}", version=SCHEMA_VERSION, reason=f"{error}.")
    state = getattr(error, "sqlite_errorname", type(error).__name__)
    return find_rejection(error) or StatementFailed(f"sqlite:///{path}", str(error), state=state)


CHECK_EVERY: Final = 0.2
"""Seconds between two checks of the file: each takes microseconds."""


class OpenFile:
    """The file that a path named when it was first opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._id: tuple[int, int] | None = None
        self._checked_at = 0.0

    def remember(self) -> None:
        """Remember the file that was opened just now, unless one was opened before."""
        if self._id is None and not is_in_memory(self._path):
            self._id = _file_id(self._path)

    def forget(self) -> None:
        self._id = None

    def resolve(self) -> str:
        """The path without symbolic links: all processes use the log beside that file.

        Raises:
            StoreLinked: The file has hard links, and each of them would have its own log.
        """
        if is_in_memory(self._path):
            return self._path
        check_links(self._path)
        return os.path.realpath(self._path)

    def check(self) -> None:
        """Check every CHECK_EVERY seconds that the path still names the file that is open.

        Raises:
            StoreReplaced: It names another one, or none.
        """
        now = time.monotonic()
        if self._id is None or now < self._checked_at + CHECK_EVERY:
            return
        if (file_id := _file_id(self._path)) != self._id:
            raise StoreReplaced(self._path, is_deleted=file_id is None)
        self._checked_at = now


class SqliteConnection:
    """One connection, used by one thread at a time.

    SQLite's own busy handler can starve a late connection (9 s were seen). So it is disabled:
    we try again after a short random time, until a deadline.
    """

    def __init__(
        self,
        path: str,
        *,
        synchronous: str,
        busy_timeout: timedelta,
        file: OpenFile | None = None,
    ) -> None:
        self._path = path
        self._file = file or OpenFile(path)
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._is_paused = False
        pause_for_fork(self)

    @contextmanager
    def transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        """A write transaction takes the write lock first: after a read, SQLite may refuse it."""
        with self._lock:
            connection = self._connection or self._open()
            self._file.check()
            self._with_retries(connection, begin)
            try:
                yield
                self._with_retries(connection, "COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.DatabaseError):  # the file is damaged
                        connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A snapshot, or the open transaction. Writers do not wait for it."""
        with self._lock:
            connection = self._connection or self._open()
            # The lock is enough for a database that has no other connection.
            if self._path == MEMORY or connection.in_transaction:
                yield
            else:
                with self.transaction("BEGIN"):
                    yield

    @contextmanager
    def reading_within(self, limit: ReadLimit) -> Iterator[None]:
        """The same; SQLite ends a statement that takes longer.

        Raises:
            ReadTimeout: It took longer, or others used the connection for so long.
        """
        if limit.is_over or not self._lock.acquire(timeout=limit.left.total_seconds()):
            raise ReadTimeout(f"sqlite:///{self._path}", limit=limit.length)
        try:
            with self.reading():
                connection = self._connection or self._open()
                connection.set_progress_handler(lambda: limit.is_over, STEPS_UNCHECKED)
                try:
                    yield
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                        raise
                    raise ReadTimeout(f"sqlite:///{self._path}", limit=limit.length) from error
                finally:
                    connection.set_progress_handler(None, 0)
        finally:
            self._lock.release()

    def execute(self, statement: Statement) -> Rows:
        """Run one statement, inside the transaction that is open.

        Raises:
            StoreUnavailable: The disk is full or fails.
            StoreDamaged: The file is no database, or it is damaged.
            StoreBusy: Another process has locked the whole file.
            ValueRejected: A value cannot be stored.
            RowRejected: A trigger rejected a row.
        """
        try:
            return run_statement(statement, self._connection or self._open())
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise  # a read that took too long
            raise translate_error(error, self._path) from error
        except (UnicodeError, OverflowError) as error:
            raise reject_unencodable(error) from error

    def execute_script(self, statements: list[str]) -> None:
        for text in statements:
            self.execute(Statement("migrate", (text,), {}))

    def copy_from(self, source: "SqliteConnection") -> None:
        """Replace this database, which is in memory, by a copy of another one."""
        with source._lock, self._lock:  # noqa: SLF001  # its own class
            (source._connection or source._open()).backup(self._connection or self._open())  # noqa: SLF001

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    # ------------------------------------------------------------ forks

    def before_fork(self) -> None:
        """Close the file. SQLite keeps the locks of a process in memory, for each file.

        A child would inherit that memory, but not the locks: it would wait for locks that no
        thread holds, or write without one. The next statement opens the file again.
        """
        self._is_paused = self._lock.acquire(timeout=FORK_WAIT)
        if self._is_paused and self._is_closable:
            self.close()

    def after_fork_in_parent(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._lock.release()

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        self._is_paused = False
        if self._connection is not None and not is_in_memory(self._path):
            _inherited.setdefault(self._path, []).append(self._connection)
            self._connection = None

    @property
    def _is_closable(self) -> bool:
        is_idle = self._connection is not None and not self._connection.in_transaction
        return is_idle and not is_in_memory(self._path)

    def _open(self) -> sqlite3.Connection:
        if self._path in _inherited:
            raise StoreUnavailable(f"sqlite:///{self._path}", FORKED_INSIDE)
        self._file.check()  # a connection would create a file that is not there
        path = self._file.resolve()
        try:
            connection = sqlite3.connect(
                path,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
                uri=is_shared_memory(self._path),
                cached_statements=256,
            )
        except sqlite3.Error as error:
            url, folder = f"sqlite:///{self._path}", Path(path).parent
            if not is_in_memory(self._path) and not folder.is_dir():
                raise FolderMissing(url, f"The folder {folder} does not exist.") from error
            raise StoreUnavailable(url, str(error)) from error
        try:
            self._with_retries(connection, "PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA cache_size = -16000")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        except BaseException:
            connection.close()
            raise
        self._file.remember()
        self._connection = connection
        return connection

    def _with_retries(self, connection: sqlite3.Connection, text: str) -> None:
        """Run a statement that needs a lock; try again while another connection holds it."""
        deadline: float | None = None
        while True:
            try:
                connection.execute(text)
            except sqlite3.DatabaseError as error:
                if text == "COMMIT" and is_unknown_commit(error):
                    raise OutcomeUnknown(f"sqlite:///{self._path}", str(error)) from error
                translated = translate_error(error, self._path)
                if not isinstance(translated, StoreBusy):
                    raise translated from error
            else:
                return
            now = time.monotonic()
            if deadline is None:
                deadline = now + self._busy_timeout.total_seconds()
            if now >= deadline:
                raise StoreBusy(f"sqlite:///{self._path}", waited=self._busy_timeout)
            time.sleep(random.uniform(0.0002, 0.0012))  # noqa: S311  # not a secret


def check_links(path: str) -> None:
    """Check that a file has one name. Symbolic links do not count: SQLite follows them.

    Raises:
        StoreLinked: It has more.
    """
    try:
        links = Path(path).stat().st_nlink
    except OSError:
        return  # it does not exist yet
    if links > 1:
        raise StoreLinked(path, links=links)


def _file_id(path: str) -> tuple[int, int] | None:
    """What identifies a file on this machine; None when there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def run_statement(statement: Statement, on: sqlite3.Connection | sqlite3.Cursor) -> Rows:
    """Run one statement in the open transaction."""
    rows: Rows = ()
    if statement.many is not None:
        changed, *_ = [_run_part(part, statement.many, on) for part in statement.parts]
        rows = [(changed,)]
    else:
        params = _bind(statement.params)
        for part in statement.parts:
            rows = _fetch_all(part, params, on)
    return rows if statement.needs_result else ()


def _fetch_all(
    part: str, params: Mapping[str, Any], on: sqlite3.Connection | sqlite3.Cursor
) -> Rows:
    """The rows of a statement; for one that has none, how many rows it changed."""
    try:
        cursor = on.execute(part, params)
        return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]
    except sqlite3.OperationalError as error:
        if _NOT_UNICODE not in str(error):
            raise
    # Another program stored a text that is no Unicode. It is read as bytes, so that only its own
    # row cannot be read.
    connection = on if isinstance(on, sqlite3.Connection) else on.connection
    kept, connection.text_factory = connection.text_factory, _decode_or_keep
    try:
        return on.execute(part, params).fetchall()
    finally:
        connection.text_factory = kept


def _decode_or_keep(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _run_part(part: str, rows: Rows, on: sqlite3.Connection | sqlite3.Cursor) -> int:
    """Run one part for each of these rows; return how many rows it changed."""
    if ":rows" in part:
        size = PLACEHOLDERS_MAX // len(rows[0])
        return sum(
            on.execute(
                _with_places(part, len(some[0]), len(some)), list(chain.from_iterable(some))
            ).rowcount
            for some in _batches(rows, size)
        )
    text, columns = _split_placeholders(part)
    insert = _bulk_insert(text, columns)
    if insert is not None and len(rows) >= BULK_MIN:
        return _insert_many(insert, rows, on)
    is_whole_row = columns == tuple(range(len(rows[0])))
    return on.executemany(text, rows if is_whole_row else _pick_columns(rows, columns)).rowcount


class _BulkInsert(NamedTuple):
    """A plain INSERT of one row: its table, its columns, and a value or ``?`` for each."""

    table: str
    columns: tuple[str, ...]
    values: tuple[str, ...]


@lru_cache(maxsize=512)
def _bulk_insert(text: str, columns: tuple[int, ...]) -> _BulkInsert | None:
    match = _PLAIN_INSERT.fullmatch(text)
    if match is None or not columns or columns != tuple(range(len(columns))):
        return None
    return _BulkInsert(match[1], *(tuple(list_.split(", ")) for list_ in match.groups()[1:]))


def _insert_many(insert: _BulkInsert, rows: Rows, on: sqlite3.Connection | sqlite3.Cursor) -> int:
    """Insert rows with few statements. A value that all rows share is bound once: half the time."""
    columns = list(zip(*rows, strict=True))
    is_shared = [column.count(column[0]) == len(rows) for column in columns]
    is_shared[0] = False  # there must be one of each row
    shared = [column[0] for column, is_one in zip(columns, is_shared, strict=True) if is_one]
    varying = [column for column, is_one in zip(columns, is_shared, strict=True) if not is_one]
    own = list(zip(*varying, strict=True))
    for some in _batches(own, (PLACEHOLDERS_MAX - len(shared)) // len(varying)):
        text = _insert_text(insert, tuple(is_shared), len(some))
        on.execute(text, [*shared, *chain.from_iterable(some)])
    return len(rows)


def _batches(rows: Rows, size: int) -> Iterator[Rows]:
    """Rows in batches of this size, then halves of it: so there are few different statements."""
    first = 0
    while first < len(rows):  # it ends: a batch has at least one row
        while size > len(rows) - first:
            size = (size + 1) // 2
        yield rows[first : first + size]
        first += size


@lru_cache(maxsize=64)
def _insert_text(insert: _BulkInsert, is_shared: tuple[bool, ...], count: int) -> str:
    fixed: list[str] = []
    shared: list[str] = []
    own: list[str] = []
    values: list[str] = []
    are_shared = iter(is_shared)
    for column, value in zip(insert.columns, insert.values, strict=True):
        if value != "?":
            fixed.append(column)
            values.append(value)
        else:
            (shared if next(are_shared) else own).append(column)
    sources = [f"(VALUES {_places(len(own), count)}) AS own"]
    if shared:
        sources.insert(0, f"(VALUES {_places(len(shared), 1)}) AS shared")
        values.append("shared.*")
    columns, selected = ", ".join(fixed + shared + own), ", ".join([*values, "own.*"])
    target, source = f"{insert.table} ({columns})", ", ".join(sources)
    return f"{target} SELECT {selected} FROM {source}"  # noqa: S608  # texts of our own queries


@lru_cache(maxsize=64)
def _with_places(part: str, width: int, count: int) -> str:
    """A statement whose ``VALUES :rows`` has this many rows of this many columns."""
    return part.replace(":rows", _places(width, count))


def _places(width: int, count: int) -> str:
    return ", ".join([f"({', '.join('?' * width)})"] * count)


@lru_cache(maxsize=512)
def _split_placeholders(part: str) -> tuple[str, tuple[int, ...]]:
    """Replace each placeholder by a plain ``?``; return also which column of a row it takes.

    Placeholders are written as ``?`` or ``?1``. From Python 3.14 on, sqlite3 rejects sequences for
    the latter.
    """
    columns = tuple(
        int(number) - 1 if number else index
        for index, number in enumerate(_PLACEHOLDER.findall(part))
    )
    return _PLACEHOLDER.sub("?", part), columns


def _pick_columns(rows: Rows, columns: tuple[int, ...]) -> Iterable[Row]:
    if len(columns) == 1:
        return [(row[columns[0]],) for row in rows]
    return map(itemgetter(*columns), rows)


def _bind(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value, default=_replace_invalid) if isinstance(value, list) else value
        for name, value in params.items()
    }


def _replace_invalid(value: object) -> str:
    """A text for a key that is no Unicode (see :func:`_decode_or_keep`): it matches no row."""
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} cannot be a value of a list.")
    return value.decode(errors="replace")
