"""Errors of the disk, as an SQLite connection reports them."""

import sqlite3
from datetime import timedelta
from typing import Any

import pytest

from tickwork._stores.sqlite.caller_connection import SqliteCallerConnection
from tickwork._stores.sqlite.connection import SqliteConnection
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import OutcomeUnknown, StatementFailed, StoreDamaged, StoreUnavailable
from tickwork_conformance.builders import a_run


class FailingConnection:
    """A connection whose COMMIT fails with a code."""

    in_transaction = False

    def __init__(self, code: int) -> None:
        self.code = code

    def execute(self, text: str) -> None:
        if text == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self.code
            raise error

    def close(self) -> None:
        """Before a fork in another test: the connection may not be collected yet."""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # The commit may be on the disk: it was written, and only the flush failed.
        (sqlite3.SQLITE_IOERR_FSYNC, OutcomeUnknown),
        (sqlite3.SQLITE_IOERR_WRITE, StoreUnavailable),
        (sqlite3.SQLITE_FULL, StatementFailed),
        (sqlite3.SQLITE_CORRUPT, StoreDamaged),
    ],
)
def test_a_commit_that_fails(tmp_path, code, expected):
    connection = SqliteConnection(
        str(tmp_path / "jobs.db"), synchronous="FULL", busy_timeout=timedelta(0)
    )
    failing: Any = FailingConnection(code)
    connection._connection = failing

    with pytest.raises(StoreUnavailable) as caught, connection.transaction():
        pass

    assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, OutcomeUnknown),
        (sqlite3.SQLITE_IOERR_WRITE, sqlite3.OperationalError),  # nothing is stored
    ],
)
def test_a_commit_that_fails_on_a_connection_of_the_caller(tmp_path, monkeypatch, code, expected):
    store = SqliteStore(tmp_path / "jobs.db")
    store.install()
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    borrowed = store.using(connection)
    command = SqliteCallerConnection._command

    def fail_commit(self: SqliteCallerConnection, text: str) -> None:
        command(self, text)
        if text == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = code
            raise error

    monkeypatch.setattr(SqliteCallerConnection, "_command", fail_commit)

    with pytest.raises(expected):
        borrowed.add_runs([a_run()])
    connection.close()
    store.close()
