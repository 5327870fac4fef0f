"""An independent store: the whole contract in plain Python, in memory.

Tests compare the other stores with this one, so it is written to be obviously right: rows are
frozen values in dicts, methods scan all of them, and one lock serializes the calls.
"""

from datetime import datetime
from typing import Self

from oracle.store.audit import OracleAudit
from oracle.store.control import OracleControl
from oracle.store.reads import OracleReads
from oracle.store.runs import OracleRuns
from oracle.store.schedules import OracleSchedules
from tickwork._kernel.clock import Clock, SystemClock
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores.cipher import Cipher
from tickwork._stores.contract import AsyncRuns
from tickwork.errors import WrongConnection


class OracleStore(OracleRuns, OracleSchedules, OracleControl, OracleAudit, OracleReads):
    """A store in plain Python. It judges the others.

    Threads may share it. ``clock`` is the clock of this "database".
    """

    caller_transaction: object = None

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()

    @property
    def connections_max(self) -> int:
        return 1

    @property
    def clock_seconds(self) -> float:
        return 1.0  # it is the clock of this machine, which costs nothing to read

    @property
    def pumps_max(self) -> int:
        return 1

    def install(self) -> int:
        return SCHEMA_VERSION

    def would_install_wait(self) -> bool:
        return False

    def schema_version(self) -> int:
        return SCHEMA_VERSION

    def check_schema(self) -> None:
        """The schema always fits."""

    def check_tables(self) -> None:
        """Nothing can be missing."""

    def database_time(self) -> datetime:
        return self._clock.now()

    def listen(self) -> None:
        """Nothing notifies: workers poll."""

    def close(self) -> None:
        """Nothing to close: the rows stay."""

    def with_cipher(self, cipher: Cipher) -> Self:
        raise NotImplementedError("The oracle has no rows that another program could read.")

    def using(self, connection: object) -> Self:  # of the contract
        raise WrongConnection(
            "oracle",
            "It keeps its rows in the memory of this process.",
            takes="no connection, or use a store on SQLite, PostgreSQL or MySQL",
        )

    def using_async(self, connection: object) -> AsyncRuns:
        raise AssertionError(self.using(connection))  # it raises its own error
