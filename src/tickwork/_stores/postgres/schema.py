"""Installs the tables, reads their version and the time of the server."""

from datetime import datetime
from typing import Final

from tickwork._stores._sql.migrate import COMPATIBLE_FROM, SCHEMA_VERSION, migrations
from tickwork._stores._sql.operations.eras import restart_eras
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import moment
from tickwork._stores._sql.statement import Operation, Statement
from tickwork._stores._sql.table_check import versions

PACKAGE: Final = "tickwork._stores.postgres"


def install(query: Queries, *, url: str) -> Operation[int]:
    """Create or upgrade the tables; return the version."""
    if not (yield query("has_meta"))[0][0]:
        # Of two concurrent installations, one fails here and is retried.
        yield query("create_meta")
    yield query("lock_meta")
    installed, _ = yield from versions(query, url=url)
    for step in migrations(PACKAGE, prefix=query.prefix):
        if step.version > installed:
            yield Statement("migration", tuple(step.statements), {})
    if installed < SCHEMA_VERSION:
        yield query("set_version", version=SCHEMA_VERSION, compatible=COMPATIBLE_FROM)
    if installed:
        yield from restart_eras(query)
    return max(installed, SCHEMA_VERSION)


def server_time(query: Queries) -> Operation[datetime]:
    return moment((yield query("server_time"))[0][0])
