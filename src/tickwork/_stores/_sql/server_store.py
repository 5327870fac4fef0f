"""What the stores on database servers share: the connection pool, retries, lost connections."""

import random
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from datetime import datetime, timedelta
from typing import Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.limits.rates import Turn
from tickwork._domain.runs.handover import Handover
from tickwork._domain.runs.run import Claim, Run
from tickwork._kernel.read_limit import ReadLimit, current_read_limit
from tickwork._stores._sql.faults import reject_unencodable
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.pool import Pool, PooledConnection, PoolExhausted
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Operation, Rows, Statement, WriteConflict
from tickwork._stores._sql.store import SqlStore, drive
from tickwork._stores._sql.table_check import versions
from tickwork._stores.contract import ChangeResult, RunRecord
from tickwork.errors import (
    AccessDenied,
    OutcomeUnknown,
    ReadTimeout,
    SchemaDamaged,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)

POOL_MAX: Final = 8
"""Connections of one store in one process. A thread that needs one more waits."""

STATEMENT_TIMEOUT: Final = timedelta(seconds=30)
LOCK_TIMEOUT: Final = timedelta(seconds=10)

ANSWER_GRACE: Final = timedelta(seconds=5)
ANSWER_GRACE_MIN: Final = timedelta(seconds=2)

INSTALL_TIMEOUT: Final = timedelta(hours=1)
"""The limit for one statement of a migration, and for waiting until another process has migrated.
Creating an index of ten million rows takes longer than the usual limit of a statement."""

_CONFLICTS_MAX: Final = 8
"""How often a transaction is tried that conflicts with others."""

_LOSSES_MAX: Final = 4
"""How often a transaction is tried whose connection breaks before COMMIT was sent."""

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def answer_timeout(statement_timeout: timedelta) -> timedelta:
    """How long a client waits for an answer: longer than the server works on a statement.

    The server ends a statement after its timeout, but not a COMMIT: one that waits for a
    synchronous standby takes until the standby is back.
    """
    return statement_timeout + min(ANSWER_GRACE, max(ANSWER_GRACE_MIN, statement_timeout))


class StatementRejected(Exception):  # noqa: N818  # never leaves the stores
    """The server rejected a statement. The connection can be used further."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.message = message


class ConnectionLost(Exception):  # noqa: N818  # never leaves the stores
    """The connection broke, or could not be opened.

    When ``is_commit_sent``, the transaction may have been committed. When ``has_timed_out``, the
    server did not answer in time. When ``is_denied``, it answered, and does not accept the user,
    the password or the database.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_commit_sent: bool = False,
        has_timed_out: bool = False,
        is_unopened: bool = False,
        is_denied: bool = False,
    ) -> None:
        super().__init__(reason)
        self.is_commit_sent = is_commit_sent
        self.has_timed_out = has_timed_out
        self.is_unopened = is_unopened
        self.is_denied = is_denied


class ServerConnection(PooledConnection, Protocol):
    """A connection of the pool.

    It raises only :class:`StatementRejected` and :class:`ConnectionLost`.
    """

    def transaction(
        self, *, is_reading: bool = False, statement_timeout: timedelta | None = None
    ) -> AbstractContextManager[None]: ...

    def execute(self, statement: Statement) -> Rows: ...


P = ParamSpec("P")
T = TypeVar("T")


class CallerConnection(Protocol):
    """The caller's own connection: operations take part in its transaction."""

    def run(self, begin: Callable[[], Operation[T]]) -> T: ...


S = TypeVar("S", bound=ServerConnection)


class ServerStore(SqlStore, Generic[S]):
    """A store on a database server. A dialect adds how to connect and what its errors mean."""

    url: str
    _caller: CallerConnection | None = None  # instead of the pool: see using()

    def __init__(
        self,
        url: str,
        *,
        package: str,
        prefix: str,
        pool_max: int,
        statement_timeout: timedelta,
        lock_timeout: timedelta,
    ) -> None:
        self.url = url
        self.query = Queries(package, prefix=prefix)
        self._statement_timeout = statement_timeout
        self._lock_timeout = lock_timeout
        self._connections_max = pool_max
        self._pool: Pool[S] = Pool(self._connect, size=pool_max, timeout=statement_timeout)

    @property
    def connections_max(self) -> int:
        return self._connections_max

    @property
    def clock_seconds(self) -> float:
        return 30.0

    @property
    def pumps_max(self) -> int:
        return 2

    @abstractmethod
    def _connect(self) -> S: ...

    @abstractmethod
    def _is_retryable(self, error: StatementRejected) -> bool:
        """Whether the transaction may succeed when it is tried again."""

    @abstractmethod
    def _is_about_tables(self, error: StatementRejected) -> bool:
        """Whether a table or a column does not exist."""

    @abstractmethod
    def _translate_error(self, error: StatementRejected) -> StoreError:
        """Turn an error of the server into one of ours."""

    # ------------------------------------------------------------ transactions

    def _write(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._caller is not None:
            return self._caller.run(lambda: operation(self.query, *args, **kwargs))

        def run() -> T:
            with self._pool.acquire() as connection, connection.transaction():
                return drive(operation(self.query, *args, **kwargs), connection)

        try:
            return self._with_retries(run)
        except SchemaDamaged:
            self.check_schema()  # the tables may be of another version, or gone
            raise

    def _read(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._caller is not None:
            return self._caller.run(lambda: operation(self.query, *args, **kwargs))

        def run() -> T:
            with self._pool.acquire() as connection, connection.transaction(is_reading=True):
                return drive(operation(self.query, *args, **kwargs), connection)

        limit = current_read_limit()
        try:
            if limit is not None:
                return self._read_within(limit, lambda: operation(self.query, *args, **kwargs))
            return self._with_retries(run, is_reading=True)
        except SchemaDamaged:
            if operation is not versions:
                self.check_schema()  # as above
            raise

    def _read_within(self, limit: ReadLimit, begin: Callable[[], Operation[T]]) -> T:
        def run() -> T:
            if limit.is_over:
                raise ReadTimeout(self.url, limit=limit.length)
            with (
                self._pool.acquire(timeout=limit.left) as connection,
                connection.transaction(is_reading=True, statement_timeout=limit.left),
            ):
                return drive(begin(), connection)

        try:
            return self._with_retries(run, is_reading=True)
        except StoreBusy as error:
            raise ReadTimeout(self.url, limit=limit.length) from error

    def _with_retries(
        self, act: Callable[[], T], *, is_reading: bool = False, is_installing: bool = False
    ) -> T:
        """Run a transaction; again after a conflict or a lost connection."""
        limit = INSTALL_TIMEOUT if is_installing else self._statement_timeout
        deadline = time.monotonic() + limit.total_seconds()
        conflicts = losses = 0
        # Ends: conflicts and losses are counted.
        while True:
            try:
                return act()
            except (WriteConflict, StatementRejected) as error:
                conflicts += 1
                may_retry = isinstance(error, WriteConflict) or self._is_retryable(error)
                # An installation waits for another one, however long that takes.
                is_last = conflicts == _CONFLICTS_MAX and not is_installing
                if is_last or not may_retry or time.monotonic() > deadline:
                    if isinstance(error, WriteConflict):
                        raise StoreBusy(self.url, waited=self._lock_timeout) from error
                    if self._is_about_tables(error):
                        raise SchemaDamaged(
                            self.url, version=SCHEMA_VERSION, reason=error.message
                        ) from error
                    raise self._translate_error(error) from error
                _sleep(min(conflicts, _CONFLICTS_MAX))
            except ConnectionLost as error:
                # The other connections of the pool are probably broken, too.
                self._pool.clear()
                if error.is_commit_sent and not is_reading:
                    raise OutcomeUnknown(
                        self.url, str(error), has_timed_out=error.has_timed_out
                    ) from error
                losses += 1
                is_last = losses == _LOSSES_MAX or time.monotonic() > deadline
                # A server that cannot be reached is reported at once.
                if is_last or (losses == 1 and error.is_unopened):
                    kind = AccessDenied if error.is_denied else StoreUnavailable
                    raise kind(self.url, str(error)) from error
                _sleep(8 * losses)
            except PoolExhausted as error:
                raise StoreBusy(self.url, waited=self._statement_timeout) from error
            except (UnicodeError, OverflowError) as error:
                raise reject_unencodable(error) from error

    def close(self) -> None:
        if self._caller is None:
            self._pool.clear()

    def _with_caller(self, caller: CallerConnection | None) -> Self:
        """A store that shares everything else with this one."""
        store = copy(self)
        store._caller = caller  # noqa: SLF001  # its own class
        # The caller may have begun its transaction before what is remembered was seen.
        store.query = self.query.with_eras(None)
        return store

    # ------------------------------------------------------------ ids as people type them

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        return super().get_runs([run_id for run_id in run_ids if _is_uuid(run_id)])

    def run_record(self, run_id: RunId) -> RunRecord | None:
        return super().run_record(run_id) if _is_uuid(run_id) else None

    def find_turn(self, run_id: RunId) -> Turn | None:
        return super().find_turn(run_id) if _is_uuid(run_id) else None

    def claim_run(
        self, run_id: RunId, *, worker: WorkerId, tag: str, now: datetime, lease: timedelta
    ) -> Claim | None:
        if not _is_uuid(run_id):
            return None
        return super().claim_run(run_id, worker=worker, tag=tag, now=now, lease=lease)

    def accept(
        self,
        handovers: Sequence[Handover],
        *,
        worker: WorkerId,
        tag: str,
        until: datetime,
        started_at: datetime | None,
    ) -> list[Claim]:
        handovers = [handover for handover in handovers if _is_uuid(handover.run_id)]
        return super().accept(handovers, worker=worker, tag=tag, until=until, started_at=started_at)

    def cancel(self, run_id: RunId, *, now: datetime, reason: str = "") -> ChangeResult:
        if not _is_uuid(run_id):
            return ChangeResult.UNKNOWN
        return super().cancel(run_id, now=now, reason=reason)

    def reschedule(self, run_id: RunId, *, due_at: datetime, now: datetime) -> ChangeResult:
        if not _is_uuid(run_id):
            return ChangeResult.UNKNOWN
        return super().reschedule(run_id, due_at=due_at, now=now)


def _is_uuid(text: str) -> bool:
    """Whether it is a UUID. The server would reject a comparison with anything else."""
    return _ID.fullmatch(text) is not None


def _sleep(times: int) -> None:
    """Sleep longer each time, for a random time, so that competitors do not meet again."""
    time.sleep(random.uniform(0.0005, 0.004) * times * times)  # noqa: S311  # not a secret
