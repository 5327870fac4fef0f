"""The tables themselves: installed, looked at, and asked for the time."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from tickwork.stores._sql.migrate import COMPATIBLE_FROM, SCHEMA_VERSION, migrations
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import moment, moment_or_none
from tickwork.stores._sql.server_store import StatementRejected
from tickwork.stores._sql.statement import Operation, Statement

if TYPE_CHECKING:
    from tickwork.stores.mysql.connection import MysqlConnection

PACKAGE: Final = "tickwork.stores.mysql"

_DONE: Final = frozenset(
    {
        "1050",  # there is such a table
        "1060",  # there is such a column
        "1061",  # there is such an index
        "1091",  # what is to be dropped is not there
    }
)
"""What is said when a step was done before: whoever did it died before the end of its version."""


def install(
    query: Queries, *, prefix: str, keeper: "MysqlConnection", maker: "MysqlConnection"
) -> int:
    """Create or upgrade the tables; return the version.

    DDL commits by itself, and with it lets go of every lock. So there are two connections: one
    holds the row for which others wait, until the other has made the tables. A process that dies
    loses both.
    """
    with maker.transaction():
        if not maker.execute(query("has_meta"))[0][0]:
            maker.execute(query("create_meta"))
    with keeper.transaction():
        keeper.execute(query("lock_meta"))
        installed = int(keeper.execute(query("get_version"))[0][0])
        for step in migrations(PACKAGE, prefix=prefix):
            if step.version > installed:
                for text in step.statements:
                    _make(text, maker)
        if installed < SCHEMA_VERSION:
            keeper.execute(query("set_version", version=SCHEMA_VERSION, compatible=COMPATIBLE_FROM))
        return max(installed, SCHEMA_VERSION)


def _make(text: str, maker: "MysqlConnection") -> None:
    try:
        with maker.transaction():
            maker.execute(Statement("migration", (text,), {}))
    except StatementRejected as error:
        if error.state not in _DONE:
            raise


def is_current(version: int) -> bool:
    """Whether there is nothing to install: then nobody is waited for."""
    return version >= SCHEMA_VERSION


def versions(query: Queries) -> Operation[tuple[int, int]]:
    """The version that is installed, and the oldest code that can work with it."""
    if not (yield query("has_meta"))[0][0]:
        return 0, 0
    rows = yield query("get_version")
    return (rows[0][0], rows[0][1]) if rows else (0, 0)


def oldest_transaction(query: Queries) -> Operation[datetime | None]:
    """When the oldest transaction began that is open on this server."""
    return moment_or_none((yield query("oldest_transaction"))[0][0])


def server_time(query: Queries) -> Operation[datetime]:
    """What time it is for the server."""
    return moment((yield query("server_time"))[0][0])
