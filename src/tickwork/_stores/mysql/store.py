"""The store in a MariaDB or MySQL database."""

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NoReturn, Self

from tickwork._domain.identity import RunId
from tickwork._stores._sql.caller_connection import type_name
from tickwork._stores._sql.faults import Rejection, RejectionTable
from tickwork._stores._sql.queries import TABLE_PREFIX
from tickwork._stores._sql.server_store import (
    INSTALL_TIMEOUT,
    LOCK_TIMEOUT,
    POOL_MAX,
    STATEMENT_TIMEOUT,
    ServerStore,
    StatementRejected,
)
from tickwork._stores._sql.store import reader_of
from tickwork._stores.contract import Health, Listener
from tickwork._stores.mysql import schema
from tickwork.errors import (
    DriverMissing,
    InvalidStoreUrl,
    StatementFailed,
    StoreBusy,
    StoreError,
    StoreReadOnly,
    ValueRejected,
    WrongConnection,
)

if TYPE_CHECKING:
    from tickwork._stores.mysql.connection import MysqlConnection

_NOT_THERE: Final = frozenset({"1146", "1054"})  # a table, a column
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

REJECTIONS: Final = RejectionTable(
    values=frozenset(
        {
            "1048",  # NULL
            "1062",  # a duplicate key
            "1118",  # the row is too large
            "1153",  # too long for a packet
            "1216",  # a foreign key
            "1217",  # the same
            "1264",  # out of range
            "1265",  # truncated
            "1292",  # not of the type
            "1300",  # not of the character set
            "1301",  # the result of a function is too long for a packet
            "1365",  # a division by zero
            "1366",  # not of the type
            "1406",  # too long
            "1451",  # a foreign key
            "1452",  # the same
            "1586",  # a duplicate key
            "1690",  # arithmetic out of range
            "1977",  # not of the character set, on MariaDB
            "3140",  # not JSON
            "3157",  # JSON that is nested too deeply
            "3819",  # a CHECK of MySQL
            "3854",  # not of the character set, on MySQL
            "4025",  # a CHECK of MariaDB
        }
    ),
    triggers=frozenset({"1644"}),  # SIGNAL without a number of its own
)
"""Numbers of errors. All other errors concern no row."""


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
            from tickwork._stores.mysql import connection  # noqa: PLC0415
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

    def using(self, connection: object) -> Self:
        from tickwork._stores.mysql.caller_connection import MysqlCallerConnection  # noqa: PLC0415

        return self._with_caller(MysqlCallerConnection(connection, url=self.url))

    def using_async(self, connection: object) -> NoReturn:
        from tickwork._stores.mysql.caller_connection import TAKES  # noqa: PLC0415

        reason = f"It is a {type_name(connection)}, and PyMySQL has no async ones."
        raise WrongConnection(self.url, reason, takes=TAKES)

    # ------------------------------------------------------------ errors

    def _find_rejection(self, error: Exception) -> Rejection | None:
        # Drivers raise their own errors on a caller's connection.
        rejection = REJECTIONS.find((str(self._driver.code_of(error)),), str(error))
        return rejection or super()._find_rejection(error)

    def _is_retryable(self, error: StatementRejected) -> bool:
        return error.state in CONFLICTS

    def _is_about_tables(self, error: StatementRejected) -> bool:
        return error.state in _NOT_THERE

    def _translate_error(self, error: StatementRejected) -> StoreError:
        if error.state == self._driver.TOO_LONG:
            fix = self._driver.TOO_LONG_FIX
            return ValueRejected(error.message, state=error.state, fix=fix)
        if error.state == LOCK_TIMED_OUT:
            return StoreBusy(self.url, waited=self._lock_timeout)
        if error.state in _STATEMENT_TIMED_OUT:
            return StoreBusy(self.url, waited=self._statement_timeout)
        if error.state in _READ_ONLY:
            # A replica. The next connection may reach the primary.
            self._pool.clear()
            return StoreReadOnly(self.url, error.message)
        rejection = REJECTIONS.find((error.state,), error.message)
        return rejection or StatementFailed(self.url, error.message, state=error.state)

    # ------------------------------------------------------------ ids as people type them

    def find_run_ids(self, prefix: str, *, limit: int = 10) -> list[RunId]:
        return super().find_run_ids(prefix, limit=limit) if prefix.isascii() else []

    # ------------------------------------------------------------ schema

    def install(self) -> int:
        if self._caller is not None:
            # Creating a table would commit the caller's transaction.
            return self._with_caller(None).install()
        version = self.schema_version()
        if schema.is_current(version):
            return version
        return self._with_retries(self._install, is_installing=True)

    def _install(self) -> int:
        with (
            closing(self._open_connection(INSTALL_TIMEOUT)) as keeper,
            closing(self._open_connection(INSTALL_TIMEOUT)) as maker,
        ):
            return schema.install(self.query, url=self.url, keeper=keeper, maker=maker)

    database_time = reader_of(schema.server_time)

    def health(self) -> Health:
        measured = super().health()
        try:
            oldest = self._read(schema.oldest_transaction)
        except StoreError:  # the user lacks the privilege
            return measured
        return replace(measured, oldest_transaction=oldest)

    def listen(self) -> Listener | None:
        from tickwork._stores.mysql.wakeup import MysqlListener  # noqa: PLC0415  # for workers

        return MysqlListener(self._connect, self.query)
