"""The store in a PostgreSQL database."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Self

from tickwork._domain.runs.run import NewRun
from tickwork._stores._sql.era_memory import EraMemory
from tickwork._stores._sql.faults import Rejection, RejectionTable
from tickwork._stores._sql.queries import TABLE_PREFIX, Queries
from tickwork._stores._sql.server_store import (
    INSTALL_TIMEOUT,
    LOCK_TIMEOUT,
    POOL_MAX,
    STATEMENT_TIMEOUT,
    ServerStore,
    StatementRejected,
)
from tickwork._stores._sql.statement import Operation
from tickwork._stores._sql.store import drive, reader_of
from tickwork._stores.contract import AddedRun, AsyncRuns, Listener
from tickwork._stores.postgres import schema
from tickwork.errors import (
    DriverMissing,
    InvalidStoreUrl,
    ServerTooOld,
    StatementFailed,
    StoreBusy,
    StoreError,
    StoreReadOnly,
)

if TYPE_CHECKING:
    from tickwork._stores.postgres.connection import PostgresConnection

_VERSION_MIN: Final = 13
_LOCK_TIMED_OUT: Final = "55P03"
_STATEMENT_TIMED_OUT: Final = "57014"
_NOT_THERE: Final = frozenset({"42P01", "42703"})  # a table, a column
_CONFLICTS: Final = frozenset(
    {
        "40P01",  # deadlock
        "40001",  # serialization
        _LOCK_TIMED_OUT,
        # A duplicate key: another transaction took it, and the next try sees it. A key that
        # stays taken fails in the last try, too.
        "23505",
        # A division by zero: finish_all found that a claim was lost. The next try checks each.
        "22012",
        # Concurrent installations.
        "42P07",
        "42710",
    }
)
"""Errors after which a transaction is retried."""

REJECTIONS: Final = RejectionTable(
    values=frozenset(
        {
            "22",  # data exceptions: out of range, not of the type, not of the encoding
            "23",  # constraints
            "54",  # limits of the server: too large for an index, too many columns
        }
    ),
    triggers=frozenset({"P0"}),  # RAISE of PL/pgSQL
)
"""Classes of SQLSTATEs. All other errors concern no row."""


def find_rejection(state: str, message: str) -> Rejection | None:
    """Return what an error says about a row; None if it concerns no row."""
    return REJECTIONS.find((state, state[:2]), message)


class PostgresStore(ServerStore["PostgresConnection"]):
    """A store in a PostgreSQL database. Threads may share it, and it survives a fork.

    ``prepare=False`` is for poolers that do not support prepared statements. Without it the store
    detects that itself, after one rejected transaction.

    Raises:
        DriverMissing: psycopg is not installed.
        InvalidStoreUrl: The URL is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = TABLE_PREFIX,
        pool_max: int = POOL_MAX,
        statement_timeout: timedelta = STATEMENT_TIMEOUT,
        lock_timeout: timedelta = LOCK_TIMEOUT,
        prepare: bool = True,
    ) -> None:
        try:
            # Imported here: a program without such a store needs no driver.
            from tickwork._stores.postgres import connection  # noqa: PLC0415
        except ImportError as error:
            raise DriverMissing("psycopg", extra="postgres") from error
        super().__init__(
            url,
            package=schema.PACKAGE,
            prefix=prefix,
            pool_max=pool_max,
            statement_timeout=statement_timeout,
            lock_timeout=lock_timeout,
        )
        self._may_prepare = prepare
        self._eras = EraMemory()
        self.query = self.query.with_eras(self._eras)
        try:
            self._conninfo = connection.conninfo_of(url, timeout=statement_timeout)
        except ValueError as error:
            raise InvalidStoreUrl(url, str(error)) from None
        self._driver = connection

    def _connect(self) -> "PostgresConnection":
        connection = self._driver.PostgresConnection(
            self._conninfo,
            statement_timeout=self._statement_timeout,
            lock_timeout=self._lock_timeout,
            may_prepare=self._may_prepare,
        )
        version = connection.server_version
        if version < _VERSION_MIN * 10_000:
            connection.close()
            server_version = f"{version // 10_000}.{version % 10_000}"
            raise ServerTooOld("PostgreSQL", found=server_version, needed=str(_VERSION_MIN))
        self._eras.forget()
        return connection

    # ------------------------------------------------------------ a caller's connection

    def using(self, connection: object) -> Self:
        from tickwork._stores.postgres.caller_connection import PostgresCallerConnection  # noqa: PLC0415

        store = self._with_caller(PostgresCallerConnection(connection, url=self.url))
        store._may_retry = False  # noqa: SLF001  # its own class
        return store

    def using_async(self, connection: object) -> AsyncRuns:
        from tickwork._stores.postgres.caller_connection import PostgresAsyncRuns  # noqa: PLC0415

        return PostgresAsyncRuns(connection, url=self.url, query=self.query)

    def _add_runs_again(self, query: Queries, runs: Sequence[NewRun]) -> Operation[list[AddedRun]]:
        operation = super()._add_runs_again(query, runs)
        if self._caller is None:
            return operation
        from tickwork._stores.postgres.caller_transaction import require_read_committed  # noqa: PLC0415

        return require_read_committed(operation, url=self.url)

    def _find_rejection(self, error: Exception) -> Rejection | None:
        # psycopg and psycopg2 raise their own errors on a caller's connection.
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
        return find_rejection(state, str(error)) or super()._find_rejection(error)

    # ------------------------------------------------------------ transactions

    def _is_retryable(self, error: StatementRejected) -> bool:
        return error.state in _CONFLICTS or self._disable_preparing(error)

    def _is_about_tables(self, error: StatementRejected) -> bool:
        return error.state in _NOT_THERE

    def _disable_preparing(self, error: StatementRejected) -> bool:
        """Whether a prepared statement was the reason; if so, stop preparing statements.

        After a changed column, new connections only prepare them again. Another thread may have
        disabled them while this one used an older connection.
        """
        if error.state not in self._driver.UNPREPARABLE:
            return False
        if error.state != self._driver.FEATURE_NOT_SUPPORTED:
            self._may_prepare = False
        self._pool.clear()
        return True

    def _translate_error(self, error: StatementRejected) -> StoreError:
        if error.state == _LOCK_TIMED_OUT:
            return StoreBusy(self.url, waited=self._lock_timeout)
        if error.state == _STATEMENT_TIMED_OUT:
            return StoreBusy(self.url, waited=self._statement_timeout)
        if error.state == self._driver.READ_ONLY:
            # A standby. The next connection may reach the primary.
            self._pool.clear()
            return StoreReadOnly(self.url, error.message)
        rejection = find_rejection(error.state, error.message)
        return rejection or StatementFailed(self.url, error.message, state=error.state)

    # ------------------------------------------------------------ schema

    def install(self) -> int:
        if self._caller is not None:
            return self._write(schema.install, url=self.url)
        return self._with_retries(self._install, is_installing=True)

    def _install(self) -> int:
        with (
            self._pool.acquire() as connection,
            connection.transaction(statement_timeout=INSTALL_TIMEOUT),
        ):
            return drive(schema.install(self.query, url=self.url), connection)

    database_time = reader_of(schema.server_time)

    def listen(self) -> Listener | None:
        from tickwork._stores.postgres.wakeup import PostgresListener  # noqa: PLC0415  # for workers

        return PostgresListener(self._conninfo)
