"""The store in a PostgreSQL database."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from tickwork._domain.run import NewRun
from tickwork.errors import (
    DriverMissing,
    InvalidStoreUrl,
    SchemaMissing,
    ServerTooOld,
    StoreBusy,
    StoreError,
    StoreReadOnly,
)
from tickwork.stores._sql.migrate import check_version
from tickwork.stores._sql.operations import enqueue
from tickwork.stores._sql.queries import TABLE_PREFIX, Queries
from tickwork.stores._sql.server_store import (
    INSTALL_TIMEOUT,
    LOCK_TIMEOUT,
    POOL_MAX,
    STATEMENT_TIMEOUT,
    ServerStore,
    StatementRejected,
)
from tickwork.stores._sql.statement import Operation
from tickwork.stores._sql.store import drive
from tickwork.stores.contract import AsyncRuns, Enqueued, Listener
from tickwork.stores.postgres import schema

if TYPE_CHECKING:
    from tickwork.stores.postgres.caller_connection import PostgresCallerConnection
    from tickwork.stores.postgres.connection import PostgresConnection

P = ParamSpec("P")
T = TypeVar("T")

_VERSION_MIN: Final = 13
_LOCK_TIMED_OUT: Final = "55P03"
_STATEMENT_TIMED_OUT: Final = "57014"
_NO_TABLE: Final = "42P01"
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

_ABOUT_VALUES: Final = frozenset({"22", "23"})
"""Classes of errors: a value cannot be stored, or violates a constraint."""


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
            from tickwork.stores.postgres import connection  # noqa: PLC0415
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
            found = f"{version // 10_000}.{version % 10_000}"
            raise ServerTooOld("PostgreSQL", found=found, needed=str(_VERSION_MIN))
        return connection

    # ------------------------------------------------------------ a caller's connection

    def using(self, connection: object) -> "PostgresStore":
        from tickwork.stores.postgres.caller_connection import PostgresCallerConnection  # noqa: PLC0415

        return _PostgresCallerStore(self, PostgresCallerConnection(connection, url=self.url))

    def using_async(self, connection: object) -> AsyncRuns:
        from tickwork.stores.postgres.caller_connection import PostgresAsyncRuns  # noqa: PLC0415

        return PostgresAsyncRuns(connection, url=self.url, query=self.query)

    # ------------------------------------------------------------ transactions

    def _is_retryable(self, error: StatementRejected) -> bool:
        return error.state in _CONFLICTS or self._disable_preparing(error)

    def _is_about_values(self, error: StatementRejected) -> bool:
        return error.state[:2] in _ABOUT_VALUES

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
        if error.state == _NO_TABLE:
            return SchemaMissing(self.url)
        if error.state == _LOCK_TIMED_OUT:
            return StoreBusy(self.url, waited=self._lock_timeout)
        if error.state == _STATEMENT_TIMED_OUT:
            return StoreBusy(self.url, waited=self._statement_timeout)
        if error.state == self._driver.READ_ONLY:
            # A standby. The next connection may reach the primary.
            self._pool.clear()
            return StoreReadOnly(self.url, error.message)
        return StoreError(f"PostgreSQL rejected a statement ({error.state}).", why=error.message)

    # ------------------------------------------------------------ schema

    def install(self) -> int:
        return self._with_retries(self._install, is_installing=True)

    def _install(self) -> int:
        with (
            self._pool.acquire() as connection,
            connection.transaction(statement_timeout=INSTALL_TIMEOUT),
        ):
            return drive(schema.install(self.query, prefix=self._prefix), connection)

    def schema_version(self) -> int:
        return self._versions()[0]

    def check_schema(self) -> None:
        installed, compatible_from = self._versions()
        check_version(self.url, installed=installed, compatible_from=compatible_from)

    def _versions(self) -> tuple[int, int]:
        return self._read(schema.versions)

    def database_time(self) -> datetime:
        return self._read(schema.server_time)

    def listen(self) -> Listener | None:
        from tickwork.stores.postgres.wakeup import PostgresListener  # noqa: PLC0415  # for workers

        return PostgresListener(self._conninfo)


class _PostgresCallerStore(PostgresStore):
    """The store on a caller's connection: see :meth:`PostgresStore.using`."""

    _may_retry = False

    def __init__(self, store: PostgresStore, connection: "PostgresCallerConnection") -> None:
        # It shares everything else with the store, and does not use the pool.
        vars(self).update(vars(store))
        self._connection = connection

    def _write(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return self._connection.run(lambda: operation(self.query, *args, **kwargs))

    def _read(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return self._connection.run(lambda: operation(self.query, *args, **kwargs))

    def enqueue(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[Enqueued]:
        if not may_be_stored:
            return super().enqueue(runs)
        from tickwork.stores.postgres.caller_transaction import require_read_committed  # noqa: PLC0415

        return self._write(
            lambda query: require_read_committed(
                enqueue.enqueue(query, runs, may_be_stored=True), url=self.url
            )
        )

    def install(self) -> int:
        return self._write(schema.install, prefix=self._prefix)

    def close(self) -> None:
        """Nothing to do: the connection is the caller's."""
