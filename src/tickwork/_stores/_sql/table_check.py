"""Checks the installed tables: their version, and whether every table and column exists."""

import re
from collections.abc import Iterator
from typing import Final

from tickwork._stores._sql.migrate import SCHEMA_VERSION, migrations
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Operation, Rows, Statement
from tickwork.errors import SchemaDamaged

_CREATE: Final = re.compile(r"CREATE TABLE (\w+) \(\n(.*?)\n\)", re.DOTALL)
_COLUMN: Final = re.compile(r"^    (`?[a-z_]+`?) ", re.MULTILINE)
_ADDED: Final = re.compile(r"ALTER TABLE (\w+) ADD COLUMN (`?[a-z_]+`?) ")


def versions(query: Queries, *, url: str) -> Operation[tuple[int, int]]:
    """The installed version, and the oldest version whose code can work with it.

    Both are 0 when there are no tables.

    Raises:
        SchemaDamaged: There are tables, and their version cannot be read.
    """
    rows: Rows = ()
    if (yield query("has_meta"))[0][0]:
        rows = yield query("get_version")
    # In MySQL, DDL commits by itself: tables without a version, or with the version 0, are those of
    # an installation that was interrupted, and the next one continues it.
    is_atomic = query.optional.has_run_table
    if not rows and is_atomic and (yield query("has_run_table"))[0][0]:
        raise _meta_damaged(query, url, "is missing or has no row, and the other tables exist")
    if len(rows) > 1:
        raise _meta_damaged(query, url, f"has {len(rows)} rows instead of one")
    for value in rows[0] if rows else ():
        if type(value) is not int or value < (1 if is_atomic else 0):
            raise _meta_damaged(query, url, f"has {value!r:.80} instead of a version")
    return (rows[0][0], rows[0][1]) if rows else (0, 0)


def check_tables(query: Queries) -> Operation[None]:
    """Name every column of every table: the database rejects the statement if one is missing."""
    for table, columns in table_columns(query).items():
        text = f"SELECT {', '.join(columns)} FROM {table} WHERE 1 = 0"  # noqa: S608  # our names
        yield Statement("check_table", (text,), {}, needs_result=False)


def table_columns(query: Queries) -> dict[str, list[str]]:
    """The columns of each table, as the migrations create them."""
    columns_by_table: dict[str, list[str]] = {}
    for text in _texts(query):
        for table, body in _CREATE.findall(text):
            columns_by_table[table] = _COLUMN.findall(body)
        for table, column in _ADDED.findall(text):
            columns_by_table[table].append(column)
    return columns_by_table


def _texts(query: Queries) -> Iterator[str]:
    for step in migrations(query.package, prefix=query.prefix):
        yield from step.statements


def _meta_damaged(query: Queries, url: str, fault: str) -> SchemaDamaged:
    reason = f"The table {query.prefix}meta {fault}."
    return SchemaDamaged(url, version=SCHEMA_VERSION, reason=reason)
