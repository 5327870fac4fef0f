"""Installs the tables, reads their version and the time of the server."""

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
        "1050",  # the table exists
        "1060",  # the column exists
        "1061",  # the index exists
        "1091",  # the index to be dropped does not exist
    }
)
"""Errors of a statement that was executed before, by an installation that was interrupted."""


def install(
    query: Queries, *, prefix: str, keeper: "MysqlConnection", maker: "MysqlConnection"
) -> int:
    """Create or upgrade the tables; return the version.

    DDL commits implicitly and releases all locks. So there are two connections: one keeps the row
    of tickwork_meta locked until the other has created the tables. If the process dies, the server
    closes both.
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
    """Whether there is nothing to install: then no lock is taken."""
    return version >= SCHEMA_VERSION


def versions(query: Queries) -> Operation[tuple[int, int]]:
    """The installed version, and the oldest version whose code can work with it."""
    if not (yield query("has_meta"))[0][0]:
        return 0, 0
    rows = yield query("get_version")
    return (rows[0][0], rows[0][1]) if rows else (0, 0)


def oldest_transaction(query: Queries) -> Operation[datetime | None]:
    return moment_or_none((yield query("oldest_transaction"))[0][0])


def server_time(query: Queries) -> Operation[datetime]:
    return moment((yield query("server_time"))[0][0])
