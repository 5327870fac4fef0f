"""The store in a MariaDB or MySQL database."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Concatenate, Final, NoReturn, ParamSpec, TypeVar

from tickwork._domain.identity import RunId
from tickwork.errors import (
    DriverMissing,
    InvalidStoreUrl,
    SchemaMissing,
    StoreBusy,
    StoreError,
    StoreReadOnly,
    WrongConnection,
)
from tickwork.stores._sql.caller_connection import type_name
from tickwork.stores._sql.migrate import check_version
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
from tickwork.stores.contract import Health, Listener
from tickwork.stores.mysql import schema

if TYPE_CHECKING:
    from tickwork.stores.mysql.caller_connection import MysqlCallerConnection
    from tickwork.stores.mysql.connection import MysqlConnection

P = ParamSpec("P")
T = TypeVar("T")

NO_TABLE: Final = "1146"
LOCK_TIMED_OUT: Final = "1205"
_STATEMENT_TIMED_OUT: Final = frozenset({"1969", "3024"})  # MariaDB's, MySQL's
_READ_ONLY: Final = frozenset({"1290", "1836"})
CONFLICTS: Final = frozenset(
    {
        "1213",  # deadlock
        LOCK_TIMED_OUT,
        "1020",  # a row was changed since it was read
        # A duplicate key: another transaction took it, and the next try sees it. A key that
        # stays taken fails in the last try, too.
        "1062",
    }
)
"""Errors after which a transaction is retried."""

_ABOUT_VALUES: Final = frozenset(
    {
        "1048",  # NULL
        "1062",  # a duplicate key
        "1153",  # too long for a packet
        "1264",  # out of range
        "1366",  # not of the type
        "1406",  # too long
        "1690",  # arithmetic out of range
        "3819",  # a CHECK of MySQL
        "4025",  # a CHECK of MariaDB
    }
)
"""Errors of a value: it cannot be stored, or violates a constraint."""


class MysqlStore(ServerStore["MysqlConnection"]):
    """A store in a MariaDB or MySQL database. Threads may share it, and it survives a fork.

    Raises:
        DriverMissing: PyMySQL is not installed.
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
    ) -> None:
        try:
            # Imported here: a program without such a store needs no driver.
            from tickwork.stores.mysql import connection  # noqa: PLC0415
        except ImportError as error:
            raise DriverMissing("PyMySQL", extra="mysql") from error
        super().__init__(
            url,
            package=schema.PACKAGE,
            prefix=prefix,
            pool_max=pool_max,
            statement_timeout=statement_timeout,
            lock_timeout=lock_timeout,
        )
        try:
            self._settings = connection.settings_of(url)
        except ValueError as error:
            raise InvalidStoreUrl(url, str(error)) from None
        self._driver = connection

    def _connect(self) -> "MysqlConnection":
        return self._open_connection(self._statement_timeout)

    def _open_connection(self, statement_timeout: timedelta) -> "MysqlConnection":
        return self._driver.MysqlConnection(
            self._settings, statement_timeout=statement_timeout, lock_timeout=self._lock_timeout
        )

    # ------------------------------------------------------------ a caller's connection

    def using(self, connection: object) -> "MysqlStore":
        from tickwork.stores.mysql.caller_connection import MysqlCallerConnection  # noqa: PLC0415

        return _MysqlCallerStore(self, MysqlCallerConnection(connection, url=self.url))

    def using_async(self, connection: object) -> NoReturn:
        from tickwork.stores.mysql.caller_connection import TAKES  # noqa: PLC0415

        reason = f"It is a {type_name(connection)}, and PyMySQL has no async ones."
        raise WrongConnection(self.url, reason, takes=TAKES)

    # ------------------------------------------------------------ errors

    def _is_retryable(self, error: StatementRejected) -> bool:
        return error.state in CONFLICTS

    def _is_about_values(self, error: StatementRejected) -> bool:
        return error.state in _ABOUT_VALUES

    def _translate_error(self, error: StatementRejected) -> StoreError:
        if error.state == NO_TABLE:
            return SchemaMissing(self.url)
        if error.state == self._driver.TOO_LONG:
            return StoreError(error.message, fix=self._driver.TOO_LONG_FIX)
        if error.state == LOCK_TIMED_OUT:
            return StoreBusy(self.url, waited=self._lock_timeout)
        if error.state in _STATEMENT_TIMED_OUT:
            return StoreBusy(self.url, waited=self._statement_timeout)
        if error.state in _READ_ONLY:
            # A replica. The next connection may reach the primary.
            self._pool.clear()
            return StoreReadOnly(self.url, error.message)
        return StoreError(f"The server rejected a statement ({error.state}).", why=error.message)

    # ------------------------------------------------------------ ids as people type them

    def find_run_ids(self, prefix: str, *, limit: int = 10) -> list[RunId]:
        return super().find_run_ids(prefix, limit=limit) if prefix.isascii() else []

    # ------------------------------------------------------------ schema

    def install(self) -> int:
        found = self.schema_version()
        if schema.is_current(found):
            return found
        return self._with_retries(self._install, is_installing=True)

    def _install(self) -> int:
        with (
            closing(self._open_connection(INSTALL_TIMEOUT)) as keeper,
            closing(self._open_connection(INSTALL_TIMEOUT)) as maker,
        ):
            return schema.install(self.query, prefix=self._prefix, keeper=keeper, maker=maker)

    def schema_version(self) -> int:
        return self._versions()[0]

    def check_schema(self) -> None:
        installed, compatible_from = self._versions()
        check_version(self.url, installed=installed, compatible_from=compatible_from)

    def _versions(self) -> tuple[int, int]:
        return self._read(schema.versions)

    def database_time(self) -> datetime:
        return self._read(schema.server_time)

    def health(self) -> Health:
        found = super().health()
        try:
            oldest = self._read(schema.oldest_transaction)
        except StoreError:  # the user lacks the privilege
            return found
        return replace(found, oldest_transaction_at=oldest)

    def listen(self) -> Listener | None:
        from tickwork.stores.mysql.wakeup import MysqlListener  # noqa: PLC0415  # for workers

        return MysqlListener(self._connect, self.query)


class _MysqlCallerStore(MysqlStore):
    """The store on a caller's connection: see :meth:`MysqlStore.using`."""

    def __init__(self, store: MysqlStore, connection: "MysqlCallerConnection") -> None:
        vars(self).update(vars(store))
        self._store = store
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

    def install(self) -> int:
        return self._store.install()

    def close(self) -> None:
        """Nothing to do: the connection is the caller's."""
