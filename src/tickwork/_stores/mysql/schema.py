"""Installs the tables, reads their version and the time of the server."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from tickwork._stores._sql.migrate import COMPATIBLE_FROM, SCHEMA_VERSION, migrations
from tickwork._stores._sql.operations.reads import open_transaction
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import moment
from tickwork._stores._sql.server_store import StatementRejected
from tickwork._stores._sql.statement import Operation, Statement
from tickwork._stores._sql.store import drive
from tickwork._stores._sql.table_check import versions
from tickwork._stores.contract import OpenTransaction

if TYPE_CHECKING:
    from tickwork._stores.mysql.connection import MysqlConnection

PACKAGE: Final = "tickwork._stores.mysql"

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
    query: Queries, *, url: str, keeper: "MysqlConnection", maker: "MysqlConnection"
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
        keeper.execute(query("add_meta"))
        keeper.execute(query("lock_meta"))
        installed, _ = drive(versions(query, url=url), keeper)
        for step in migrations(PACKAGE, prefix=query.prefix):
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


def oldest_transaction(query: Queries) -> Operation[OpenTransaction | None]:
    rows = yield query("oldest_transaction")
    return open_transaction(rows[0]) if rows else None


def server_time(query: Queries) -> Operation[datetime]:
    return moment((yield query("server_time"))[0][0])
