"""Installs the tables, reads their version and the time of the server."""

from datetime import datetime
from typing import Final

from tickwork.stores._sql.migrate import COMPATIBLE_FROM, SCHEMA_VERSION, migrations
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import moment
from tickwork.stores._sql.statement import Operation, Rows, Statement

PACKAGE: Final = "tickwork.stores.postgres"


def install(query: Queries, *, prefix: str) -> Operation[int]:
    """Create or upgrade the tables; return the version."""
    if not (yield query("has_meta"))[0][0]:
        # Of two concurrent installations, one fails here and is retried.
        yield query("create_meta")
    yield query("lock_meta")
    installed = _installed((yield query("get_version")))[0]
    for step in migrations(PACKAGE, prefix=prefix):
        if step.version > installed:
            yield Statement("migration", tuple(step.statements), {})
    if installed < SCHEMA_VERSION:
        yield query("set_version", version=SCHEMA_VERSION, compatible=COMPATIBLE_FROM)
    return max(installed, SCHEMA_VERSION)


def versions(query: Queries) -> Operation[tuple[int, int]]:
    """The installed version, and the oldest version whose code can work with it."""
    if not (yield query("has_meta"))[0][0]:
        return 0, 0
    return _installed((yield query("get_version")))


def server_time(query: Queries) -> Operation[datetime]:
    return moment((yield query("server_time"))[0][0])


def _installed(rows: Rows) -> tuple[int, int]:
    return (rows[0][0], rows[0][1]) if rows else (0, 0)
