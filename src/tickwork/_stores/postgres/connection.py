"""One connection to PostgreSQL, with few round trips, each with a timeout.

Statements are sent in pipelines. BEGIN is sent with the first statement, and a statement whose
result is not read is sent with the next one. COMMIT is sent with the last statement if its result
is not read, or if it is known to be the last. Adding a run, accepting runs and recording successes
take one round trip, claiming takes two.

The session has almost no state, so that a pooler may use another server connection for each
transaction. Timeouts are set for the transaction. The few statements that run all the time are
prepared, which halves their cost on the server. The name of a prepared statement is a hash of its
text, so that the same name always means the same statement. If a pooler does not support them,
the first such error disables them: see :data:`UNPREPARABLE`.
"""

import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGresult
from psycopg.types.string import TextLoader

from tickwork._kernel.fork import leave_to_parent
from tickwork._stores._sql.server_store import (
    ConnectionLost,
    StatementRejected,
    answer_timeout,
)
from tickwork._stores._sql.statement import Rows, Statement
from tickwork._stores.postgres.values import Message, messages

CONNECT_TIMEOUT: Final = timedelta(seconds=10)
APPLICATION_NAME: Final = "tickwork"

_WRITING: Final = Message(b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
# All statements share one snapshot: a run that is just being finished is found in tickwork_run or
# in tickwork_history.
_READING: Final = Message(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_TIMEOUTS: Final = (
    b"SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)"
)
# The table of unfinished runs is empty at one moment and has a million rows at the next, so its
# statistics are always wrong: a claim might sort all ready runs, and recording a batch might read
# the whole table. These tables are in memory, where an index look-up costs no more than the next
# row of a scan. With these settings the planner uses the indexes, in their order.
_BY_INDEX: Final = (
    _TIMEOUTS + b", set_config('random_page_cost', '0.1', true), set_config('jit', 'off', true)"
    b", set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)
# For a claim, plans fit any value: with its values, the planner would trust its statistics. And it
# would sort the runs of several eras instead of merging them, if it believes that there are few.
_CLAIMING: Final = (
    _BY_INDEX + b", set_config('plan_cache_mode', 'force_generic_plan', true)"
    b", set_config('enable_sort', 'off', true)"
)
_FIRST_OF_CLAIM: Final = frozenset({"count_dead", "look_at_eras", "pick_ready"})
_READ, _WRITE = 1, 4  # POLLIN and POLLOUT, which Windows does not have

_COMMIT: Final = Message(b"COMMIT")
_ROLLBACK: Final = Message(b"ROLLBACK")

_PREPARED: Final = frozenset(
    {
        "accept_and_read",
        "count_dead",
        "count_head",
        "extend_leases",
        "finish_all",
        "finish_plain",
        "finish_runs",
        "free_keys",
        "held_rows",
        "insert_runs",
        "look_at_eras",
        "next_due",
        "notify",
        "pick_ready",
        "take_runs",
        "touch_jobs",
    }
)
"""Statements that run all the time. Their plans are good for any number of rows."""

_DENIAL: Final = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|not permitted to log in"
    r"|permission denied for database|(role|database) .* does not exist|no such (user|database)"
)
"""Errors of a server, or of PgBouncer, that rejects the user, the password or the database.

The driver has no error code for them. If the messages of the server are translated, the server
seems to be unavailable.
"""

READ_ONLY: Final = "25006"
FEATURE_NOT_SUPPORTED: Final = "0A000"
UNPREPARABLE: Final = frozenset(
    {
        "26000",  # no such statement: it was prepared on another server connection
        "42P05",  # another client prepared it, on a server connection that a pooler shares
        FEATURE_NOT_SUPPORTED,  # cached plan must not change result type: a column has changed
    }
)
"""Errors of a prepared statement that is missing or differs on the server."""


class _TransactionSetup(NamedTuple):
    """The first messages of each kind of transaction, and how long to wait for an answer."""

    reading: tuple[Message, Message]
    writing: tuple[Message, Message]
    adding: tuple[Message, Message]
    claiming: tuple[Message, Message]
    timeout: int  # milliseconds


def _transaction_setup(statement_timeout: timedelta, lock_timeout: timedelta) -> _TransactionSetup:
    values = [b"%d" % _milliseconds(limit) for limit in (statement_timeout, lock_timeout)]
    by_index = Message(_BY_INDEX, values)
    return _TransactionSetup(
        (_READING, by_index),
        (_WRITING, by_index),
        (_WRITING, Message(_TIMEOUTS, values)),
        (_WRITING, Message(_CLAIMING, values)),
        _milliseconds(answer_timeout(statement_timeout)),
    )


class _QuietConnection(psycopg.Connection[tuple[Any, ...]]):
    def __del__(self, *_: object) -> None:
        """No warning: the pool closes it, and after a fork it belongs to the parent."""


class PostgresConnection:
    """A connection of the pool, used by one thread at a time."""

    def __init__(
        self,
        conninfo: str,
        *,
        statement_timeout: timedelta,
        lock_timeout: timedelta,
        may_prepare: bool = True,
    ) -> None:
        try:
            self._connection = _QuietConnection.connect(
                conninfo, autocommit=True, prepare_threshold=None
            )
        except psycopg.Error as error:
            is_denied = _DENIAL.search(str(error)) is not None
            raise ConnectionLost(str(error), is_unopened=True, is_denied=is_denied) from error
        self._connection.adapters.register_loader("uuid", TextLoader)
        self._pgconn = self._connection.pgconn
        self._pgconn.enter_pipeline_mode()
        self._loader = Transformer(self._connection)
        self._lock_timeout = lock_timeout
        self._setup = self._default_setup = _transaction_setup(statement_timeout, lock_timeout)
        self._name_by_text: dict[bytes, bytes] = {}
        self._to_prepare = {_BY_INDEX, _CLAIMING, _TIMEOUTS} if may_prepare else set()
        self._may_prepare = may_prepare
        self._unsent: list[Message] = []
        self._is_reading = False
        self._is_begun = False
        self._is_broken = False
        self._is_commit_sent = False
        leave_to_parent(self)

    def fileno(self) -> int:
        return self._pgconn.socket

    @property
    def server_version(self) -> int:
        return self._connection.info.server_version

    # ------------------------------------------------------------ transactions

    @contextmanager
    def transaction(
        self, *, is_reading: bool = False, statement_timeout: timedelta | None = None
    ) -> Iterator[None]:
        self._setup = self._default_setup
        if statement_timeout is not None:
            self._setup = _transaction_setup(statement_timeout, self._lock_timeout)
        self._is_reading = is_reading
        self._is_begun = self._is_commit_sent = False
        self._unsent = []
        try:
            yield
            self._commit()
        except BaseException:
            self._roll_back()
            raise

    def execute(self, statement: Statement) -> Rows:
        if not self._is_begun:
            self._begin(statement.name)
        sent = messages(statement)
        self._unsent.extend(sent)
        if self._may_prepare and statement.name in _PREPARED:
            self._to_prepare.update(message.text for message in sent)
        if not statement.needs_result:
            return ()
        if statement.is_last:
            *results, _ = self._commit()
        else:
            results = self._send()
        last = results[-1]
        if last.status == pq.ExecStatus.TUPLES_OK:
            self._loader.set_pgresult(last)
            return self._loader.load_rows(0, last.ntuples, tuple)
        changed = last if statement.many is None else results[-len(sent)]
        return [(changed.command_tuples or 0,)]

    # ------------------------------------------------------------ for the pool

    @property
    def is_reusable(self) -> bool:
        return not self._is_broken

    def is_alive(self) -> bool:
        """Whether the connection seems to be open, checked without a round trip.

        Between transactions the server sends nothing, unless it closes the connection.
        """
        return not _ready(self._pgconn.socket, _READ, milliseconds=0)

    def close(self) -> None:
        self._connection.close()

    # ------------------------------------------------------------ round trips

    def _begin(self, first: str) -> None:
        self._is_begun = True
        setup = self._setup
        if self._is_reading:
            self._unsent.extend(setup.reading)
        elif first == "insert_runs":
            # A transaction that starts by adding runs needs no settings for the planner.
            self._unsent.extend(setup.adding)
        else:
            self._unsent.extend(setup.claiming if first in _FIRST_OF_CLAIM else setup.writing)

    def _commit(self) -> list[PGresult]:
        """Send COMMIT with the pending messages, unless the last statement has done so."""
        if not self._is_begun or self._is_commit_sent:
            return []
        self._unsent.append(_COMMIT)
        self._is_commit_sent = True
        return self._send()

    def _roll_back(self) -> None:
        is_begun_on_server = self._pgconn.transaction_status != pq.TransactionStatus.IDLE
        if is_begun_on_server and not self._is_broken:
            self._unsent = [_ROLLBACK]
            with suppress(ConnectionLost, StatementRejected):
                self._send()

    def _send(self) -> list[PGresult]:
        """Send the pending messages, and return one result for each."""
        sent, self._unsent = self._unsent, []
        # Until every answer is read, the connection cannot be used for anything else.
        self._is_broken = True
        pgconn = self._pgconn
        prepared: list[bytes | None] = []  # for each expected answer: the text that it prepares
        try:
            for text, values in sent:
                name = self._name_by_text.get(text)
                if name is None and text in self._to_prepare:
                    name = _name_of(text)
                    if text not in prepared:
                        pgconn.send_prepare(name, text)
                        prepared.append(text)
                if name is None:
                    pgconn.send_query_params(text, values)
                else:
                    pgconn.send_query_prepared(name, values)
                prepared.append(None)
            pgconn.pipeline_sync()
            self._flush()
            results, error = self._read_results()
        except psycopg.OperationalError as lost:
            raise self._lost(str(lost)) from lost
        self._is_broken = pgconn.status != pq.ConnStatus.OK
        # Statements before an error were prepared all the same.
        for prepares, _ in zip(prepared, results, strict=False):
            if prepares is not None:
                self._name_by_text[prepares] = _name_of(prepares)
                self._to_prepare.discard(prepares)
        if error is not None:
            raise _rejection(error)
        assert len(results) == len(prepared), results
        return [result for prepares, result in zip(prepared, results, strict=True) if not prepares]

    def _flush(self) -> None:
        pgconn = self._pgconn
        # Ends when all is written, or after the timeout.
        while pgconn.flush():
            if self._await(_READ | _WRITE) & _READ:
                pgconn.consume_input()

    def _read_results(self) -> tuple[list[PGresult], PGresult | None]:
        pgconn = self._pgconn
        results: list[PGresult] = []
        error: PGresult | None = None
        # Ends at the end of the pipeline, or after the timeout.
        while True:
            while pgconn.is_busy():
                self._await(_READ)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                if pgconn.status != pq.ConnStatus.OK:
                    raise self._lost(pgconn.get_error_message())
                continue
            match result.status:
                case pq.ExecStatus.TUPLES_OK | pq.ExecStatus.COMMAND_OK:
                    results.append(result)
                case pq.ExecStatus.PIPELINE_SYNC:
                    return results, error
                case pq.ExecStatus.PIPELINE_ABORTED:
                    pass
                case _:
                    error = error or result
                    if pgconn.status != pq.ConnStatus.OK:
                        raise self._lost(result.get_error_message())

    def _await(self, events: int) -> int:
        """Wait for the socket until the timeout: a frozen server never answers."""
        timeout = self._setup.timeout
        ready = _ready(self._pgconn.socket, events, milliseconds=timeout)
        if not ready:
            seconds = timeout / 1000
            reason = f"The server did not answer within {seconds:g} seconds."
            raise self._lost(reason, has_timed_out=True)
        return ready

    def _lost(self, reason: str, *, has_timed_out: bool = False) -> ConnectionLost:
        return ConnectionLost(
            reason, is_commit_sent=self._is_commit_sent, has_timed_out=has_timed_out
        )


def _name_of(text: bytes) -> bytes:
    return b"tickwork_" + blake2b(text, digest_size=12).hexdigest().encode()


def _rejection(result: PGresult) -> StatementRejected:
    def field(code: pq.DiagnosticField) -> str:
        return (result.error_field(code) or b"").decode(errors="replace")

    state = field(pq.DiagnosticField.SQLSTATE)
    if state == FEATURE_NOT_SUPPORTED and field(pq.DiagnosticField.SOURCE_FILE) == "guc.c":
        # BEGIN READ WRITE on a standby has the same code.
        state = READ_ONLY
    return StatementRejected(state, result.get_error_message())


def conninfo_of(url: str, *, timeout: timedelta) -> str:
    """The parameters for libpq: those of the URL, and our defaults.

    Raises:
        ValueError: The URL is invalid.
    """
    scheme, mark, rest = url.partition("://")
    try:
        parameters = conninfo_to_dict(f"{scheme.partition('+')[0].lower()}{mark}{rest}")
    except psycopg.ProgrammingError as error:
        raise ValueError(str(error).strip()) from None
    defaults: dict[str, str | int | None] = {
        "connect_timeout": round(CONNECT_TIMEOUT.total_seconds()),
        "application_name": APPLICATION_NAME,
        "client_encoding": "UTF8",
        # A machine that disappeared is detected in less than a minute.
        "keepalives": 1,
        "keepalives_idle": 20,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": _milliseconds(answer_timeout(timeout)),
    }
    return make_conninfo("", **{**defaults, **parameters})


def _ready(socket: int, events: int, *, milliseconds: int) -> int:
    """Wait until a socket can be read or written; return which, or 0 after the timeout."""
    if sys.platform == "win32":
        readers, writers = [[socket] if events & one else [] for one in (_READ, _WRITE)]
        can_read, can_write, _ = select.select(readers, writers, [], milliseconds / 1000)
        return _READ * len(can_read) | _WRITE * len(can_write)
    else:  # noqa: RET505  # type checkers check only one branch
        poll = select.poll()
        poll.register(socket, events)
        # A socket that was closed counts as readable: the read reports it.
        happened = sum(event for _, event in poll.poll(milliseconds))
        return (happened & _WRITE) | (_READ if happened & ~_WRITE else 0)


def _milliseconds(length: timedelta) -> int:
    return max(1, round(length.total_seconds() * 1000))
