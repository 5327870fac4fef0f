"""PostgreSQL: many machines, every promise."""

import random
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.run import Claim, Run
from tickwork.errors import (
    DriverMissing,
    InvalidStoreUrl,
    OutcomeUnknown,
    SchemaMissing,
    ServerTooOld,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from tickwork.stores._sql.drive import drive_within
from tickwork.stores._sql.migrate import check_version
from tickwork.stores._sql.queries import TABLE_PREFIX, Queries
from tickwork.stores._sql.statement import Operation, Overtaken
from tickwork.stores._sql.store import SqlStore
from tickwork.stores.contract import AsyncRuns, Canceling, Listener, Story
from tickwork.stores.postgres import schema

if TYPE_CHECKING:
    from tickwork.stores.postgres.borrowed import BorrowedConnection
    from tickwork.stores.postgres.connection import PostgresConnection, Refused

T = TypeVar("T")

_VERSION_MIN: Final = 13
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

POOL_MAX: Final = 8
"""Connections of one store in one process. Whoever needs one more waits for it."""

STATEMENT_TIMEOUT: Final = timedelta(seconds=30)
LOCK_TIMEOUT: Final = timedelta(seconds=10)

INSTALL_TIMEOUT: Final = timedelta(hours=1)
"""How long one step of a migration may take, and how long one waits for another's. No index of
ten million rows is made within the limit of a statement."""

_CONFLICTS_MAX: Final = 8
"""How often a transaction is tried that others keep getting in the way of."""

_LOSSES_MAX: Final = 4
"""How often one is tried whose connection goes before its end was asked for."""

_LOCK_TIMED_OUT: Final = "55P03"
_STATEMENT_TIMED_OUT: Final = "57014"
_NO_TABLE: Final = "42P01"
_READ_ONLY: Final = "25006"
_CONFLICTS: Final = frozenset(
    {
        "40P01",  # deadlock
        "40001",  # serialization
        _LOCK_TIMED_OUT,
        # A key that was taken while we did not see it yet: we will, the next time. One that is
        # taken for good is so at the last try, too.
        "23505",
        # Two who install at once.
        "42P07",
        "42710",
    }
)
"""What may be over when it is tried again."""


class PostgresStore(SqlStore):
    """A store in a PostgreSQL database. Any number of threads may use it, and forks too.

    ``prepare=False`` is for poolers that cannot bear prepared statements. Without it the store
    notices that by itself, at the price of one refused transaction.

    Raises:
        DriverMissing: psycopg is not installed.
        InvalidStoreUrl: The URL cannot be read.
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
            # Whoever never opens such a store needs no driver.
            from tickwork.stores.postgres import connection, pool  # noqa: PLC0415
        except ImportError as error:
            raise DriverMissing("psycopg", extra="postgres") from error
        self.url = url
        self.query = Queries(schema.PACKAGE, prefix=prefix)
        self._prefix = prefix
        self._statement_timeout = statement_timeout
        self._lock_timeout = lock_timeout
        self._may_prepare = prepare
        try:
            self._conninfo = connection.conninfo_of(url, patience=statement_timeout)
        except ValueError as error:
            raise InvalidStoreUrl(url, str(error)) from None
        self._driver = connection
        self._exhausted = pool.Exhausted
        self._connections_max = pool_max
        self._pool = pool.Pool(self._connect, size=pool_max, patience=statement_timeout)

    @property
    def connections_max(self) -> int:
        """As many as the pool may hold."""
        return self._connections_max

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
        """The same store, every verb of which happens in the transaction of this connection."""
        from tickwork.stores.postgres.borrowed import BorrowedConnection  # noqa: PLC0415

        return _LentStore(self, BorrowedConnection(connection, url=self.url))

    def using_async(self, connection: object) -> AsyncRuns:
        """The verbs that programs need in the transaction of an async connection."""
        from tickwork.stores.postgres.borrowed import AsyncBorrowedRuns  # noqa: PLC0415

        return AsyncBorrowedRuns(connection, url=self.url, query=self.query)

    # ------------------------------------------------------------ transactions

    def _write(self, begin: Callable[[], Operation[T]]) -> T:
        return self._patiently(lambda connection: drive_within(begin(), connection))

    def _read(self, begin: Callable[[], Operation[T]]) -> T:
        return self._patiently(
            lambda connection: drive_within(begin(), connection), is_reading=True
        )

    def _patiently(
        self,
        act: Callable[["PostgresConnection"], T],
        *,
        is_reading: bool = False,
        is_installing: bool = False,
    ) -> T:
        """Do it in one transaction; again, when others were in the way or the server left."""
        patience = INSTALL_TIMEOUT if is_installing else self._statement_timeout
        give_up_at = time.monotonic() + patience.total_seconds()
        conflicts = losses = 0
        # It ends: both are counted.
        while True:
            try:
                timeout = INSTALL_TIMEOUT if is_installing else None
                return self._once(act, is_reading=is_reading, statement_timeout=timeout)
            except (Overtaken, self._driver.Refused) as error:
                conflicts += 1
                may_repeat = (
                    isinstance(error, Overtaken)
                    or error.state in _CONFLICTS
                    or (self._may_prepare and self._gave_up_preparing(error))
                )
                # Whoever installs waits for another who does, however long that takes.
                is_last = conflicts == _CONFLICTS_MAX and not is_installing
                if is_last or not may_repeat or time.monotonic() > give_up_at:
                    raise self._said(error) from error
                _sleep(min(conflicts, _CONFLICTS_MAX))
            except self._driver.Lost as error:
                # What else is in the pool went the same way.
                self._pool.clear()
                if error.is_commit_sent and not is_reading:
                    raise OutcomeUnknown(self.url, str(error)) from error
                losses += 1
                is_last = losses == _LOSSES_MAX or time.monotonic() > give_up_at
                # Whoever was never reached is reported at once.
                if is_last or (losses == 1 and error.is_unopened):
                    raise StoreUnavailable(self.url, str(error)) from error
                _sleep(8 * losses)
            except self._exhausted as error:
                raise StoreBusy(self.url, waited=self._statement_timeout) from error

    def _once(
        self,
        act: Callable[["PostgresConnection"], T],
        *,
        is_reading: bool,
        statement_timeout: timedelta | None = None,
    ) -> T:
        with (
            self._pool.lent() as connection,
            connection.transaction(is_reading=is_reading, statement_timeout=statement_timeout),
        ):
            return act(connection)

    def _gave_up_preparing(self, error: "Refused") -> bool:
        """Whether the server stumbled over a prepared statement: then no more of them."""
        if error.state not in self._driver.UNPREPARABLE:
            return False
        self._may_prepare = error.state == self._driver.COLUMN_CHANGED
        self._pool.clear()
        return True

    def _said(self, error: "Overtaken | Refused") -> StoreError:
        if isinstance(error, Overtaken):
            return StoreBusy(self.url, waited=self._lock_timeout)
        if error.state == _NO_TABLE:
            return SchemaMissing(self.url)
        if error.state == _LOCK_TIMED_OUT:
            return StoreBusy(self.url, waited=self._lock_timeout)
        if error.state == _STATEMENT_TIMED_OUT:
            return StoreBusy(self.url, waited=self._statement_timeout)
        if error.state == _READ_ONLY:
            # A standby. The next connection may find the primary.
            self._pool.clear()
            return StoreUnavailable(self.url, error.message)
        return StoreError(f"PostgreSQL refused a statement ({error.state}).", why=error.message)

    # ------------------------------------------------------------ ids that people type

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Several runs; what is unknown is left out."""
        return super().get_runs([run_id for run_id in run_ids if _can_be_an_id(run_id)])

    def story(self, run_id: RunId) -> Story | None:
        """A run with its attempts and its log."""
        return super().story(run_id) if _can_be_an_id(run_id) else None

    def claim_run(
        self, run_id: RunId, *, worker: WorkerId, tag: str, now: datetime, lease: timedelta
    ) -> Claim | None:
        """Claim exactly this run; None when it cannot start."""
        if not _can_be_an_id(run_id):
            return None
        return super().claim_run(run_id, worker=worker, tag=tag, now=now, lease=lease)

    def cancel(self, run_id: RunId, *, now: datetime, reason: str = "") -> Canceling:
        """Cancel a waiting run at once; ask a running one's worker to stop it."""
        if not _can_be_an_id(run_id):
            return Canceling.UNKNOWN
        return super().cancel(run_id, now=now, reason=reason)

    def reschedule(self, run_id: RunId, *, due_at: datetime, now: datetime) -> Canceling:
        """Change when a run is due, while it was never claimed."""
        if not _can_be_an_id(run_id):
            return Canceling.UNKNOWN
        return super().reschedule(run_id, due_at=due_at, now=now)

    # ------------------------------------------------------------ schema

    def install(self) -> int:
        """Create or upgrade the tables; return the version. Safe to run many at once."""
        return self._patiently(self._install, is_installing=True)

    def _install(self, connection: "PostgresConnection") -> int:
        return drive_within(schema.install(self.query, prefix=self._prefix), connection)

    def schema_version(self) -> int:
        """The version that is installed; 0 when there is none."""
        return self._versions()[0]

    def check_schema(self) -> None:
        """Raise when the installed schema and this code do not fit."""
        installed, compatible_from = self._versions()
        check_version(self.url, installed=installed, compatible_from=compatible_from)

    def _versions(self) -> tuple[int, int]:
        return self._read(lambda: schema.versions(self.query))

    def database_time(self) -> datetime:
        """What time it is for the server."""
        return self._read(lambda: schema.server_time(self.query))

    def listen(self) -> Listener | None:
        """Hears NOTIFY."""
        from tickwork.stores.postgres.wakeup import PostgresListener  # noqa: PLC0415  # for workers

        return PostgresListener(self._conninfo)

    def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self._pool.clear()


def _can_be_an_id(text: str) -> bool:
    """Whether the server can compare it with its ids. Whatever else there is, is unknown."""
    return _ID.fullmatch(text) is not None


class _LentStore(PostgresStore):
    """The same store on a caller's connection: see :meth:`PostgresStore.using`."""

    def __init__(self, store: PostgresStore, connection: "BorrowedConnection") -> None:
        # All the rest is the store's own; a lent one never asks its pool for anything.
        vars(self).update(vars(store))
        self._connection = connection

    def _write(self, begin: Callable[[], Operation[T]]) -> T:
        return self._connection.run(begin)

    def _read(self, begin: Callable[[], Operation[T]]) -> T:
        return self._connection.run(begin)

    def install(self) -> int:
        """Create or upgrade the tables; return the version."""
        return self._write(lambda: schema.install(self.query, prefix=self._prefix))

    def close(self) -> None:
        """Leave it as it is: the connection is the caller's."""


def _sleep(times: int) -> None:
    """Longer each time, and never as long as the others do."""
    time.sleep(random.uniform(0.0005, 0.004) * times * times)  # noqa: S311  # not a secret
