"""What stores on database servers share: a pool, patience, and what is made of losses."""

import random
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Final, Generic, Protocol, TypeVar

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.rates import Turn
from tickwork._domain.run import Claim, Run
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable
from tickwork.stores._sql.drive import drive_within
from tickwork.stores._sql.pool import Exhausted, Pool, Pooled
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.statement import Operation, Overtaken, Rows, Statement
from tickwork.stores._sql.store import SqlStore
from tickwork.stores.contract import Canceling, Story

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

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Refused(Exception):  # noqa: N818  # never leaves the stores
    """The server understood, and said no. The connection is as good as before."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.message = message


class Lost(Exception):  # noqa: N818  # never leaves the stores
    """The connection is gone, or was never there.

    When ``is_commit_sent``, what was under way may have been committed.
    """

    def __init__(
        self, reason: str, *, is_commit_sent: bool = False, is_unopened: bool = False
    ) -> None:
        super().__init__(reason)
        self.is_commit_sent = is_commit_sent
        self.is_unopened = is_unopened


class ServerConnection(Pooled, Protocol):
    """A connection of our own, used by one thread at a time.

    It raises nothing but :class:`Refused` and :class:`Lost`.
    """

    def transaction(self, *, is_reading: bool = False) -> AbstractContextManager[None]:
        """One transaction: begun with its first statement, committed with its last."""
        ...

    def execute(self, statement: Statement) -> Rows:
        """Run one statement, inside the transaction that is open."""
        ...


T = TypeVar("T")
S = TypeVar("S", bound=ServerConnection)


class ServerStore(SqlStore, Generic[S]):
    """A store on a server. A dialect says how to connect, and what its refusals mean."""

    url: str

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
        self._prefix = prefix
        self._statement_timeout = statement_timeout
        self._lock_timeout = lock_timeout
        self._connections_max = pool_max
        self._pool: Pool[S] = Pool(self._connect, size=pool_max, patience=statement_timeout)

    @property
    def connections_max(self) -> int:
        """As many as the pool may hold."""
        return self._connections_max

    @property
    def pumps_max(self) -> int:
        return 2

    @abstractmethod
    def _connect(self) -> S:
        """A new connection."""

    @abstractmethod
    def _may_repeat(self, error: Refused) -> bool:
        """Whether it may be over when it is tried again."""

    @abstractmethod
    def _said(self, error: Refused) -> StoreError:
        """What is said when it was not, or will not be."""

    # ------------------------------------------------------------ transactions

    def _write(self, begin: Callable[[], Operation[T]]) -> T:
        return self._patiently(
            lambda: self._once(lambda connection: drive_within(begin(), connection))
        )

    def _read(self, begin: Callable[[], Operation[T]]) -> T:
        return self._patiently(
            lambda: self._once(
                lambda connection: drive_within(begin(), connection), is_reading=True
            ),
            is_reading=True,
        )

    def _patiently(
        self, act: Callable[[], T], *, is_reading: bool = False, is_installing: bool = False
    ) -> T:
        """Do it; again, when others were in the way or the server left."""
        patience = INSTALL_TIMEOUT if is_installing else self._statement_timeout
        give_up_at = time.monotonic() + patience.total_seconds()
        conflicts = losses = 0
        # It ends: both are counted.
        while True:
            try:
                return act()
            except (Overtaken, Refused) as error:
                conflicts += 1
                may_repeat = isinstance(error, Overtaken) or self._may_repeat(error)
                # Whoever installs waits for another who does, however long that takes.
                is_last = conflicts == _CONFLICTS_MAX and not is_installing
                if is_last or not may_repeat or time.monotonic() > give_up_at:
                    if isinstance(error, Overtaken):
                        raise StoreBusy(self.url, waited=self._lock_timeout) from error
                    raise self._said(error) from error
                _sleep(min(conflicts, _CONFLICTS_MAX))
            except Lost as error:
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
            except Exhausted as error:
                raise StoreBusy(self.url, waited=self._statement_timeout) from error

    def _once(self, act: Callable[[S], T], *, is_reading: bool = False) -> T:
        """Do it in one transaction."""
        with self._pool.lent() as connection, connection.transaction(is_reading=is_reading):
            return act(connection)

    def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self._pool.clear()

    # ------------------------------------------------------------ ids that people type

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Several runs; what is unknown is left out."""
        return super().get_runs([run_id for run_id in run_ids if _can_be_an_id(run_id)])

    def story(self, run_id: RunId) -> Story | None:
        """A run with its attempts and its log."""
        return super().story(run_id) if _can_be_an_id(run_id) else None

    def find_turn(self, run_id: RunId) -> Turn | None:
        """Where a run stands that waits for its turn under a rate; None when it does not."""
        return super().find_turn(run_id) if _can_be_an_id(run_id) else None

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


def _can_be_an_id(text: str) -> bool:
    """Whether the server can compare it with its ids. Whatever else there is, is unknown."""
    return _ID.fullmatch(text) is not None


def _sleep(times: int) -> None:
    """Longer each time, and never as long as the others do."""
    time.sleep(random.uniform(0.0005, 0.004) * times * times)  # noqa: S311  # not a secret
