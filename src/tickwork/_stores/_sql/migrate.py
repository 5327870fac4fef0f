"""Numbered migrations, and the check that the schema and this code fit together.

A migration is one text for all databases. ``{id}`` and other words stand for what a dialect calls
them in its ``queries/words.sql``; in ``{time due_at}``, the word is a text in which ``#`` is the
column. Lines between ``-- for: postgres sqlite`` and ``-- end`` are for these dialects only.
"""

import re
from typing import Final, NamedTuple

from tickwork._stores._sql.queries import (
    COMMON_PACKAGE,
    TABLE_PREFIX,
    fragments_of,
    read_sql,
    split_statements,
)
from tickwork.errors import SchemaMissing, SchemaOutdated, SchemaTooNew

SCHEMA_VERSION: Final = 1
"""The version of the schema that this code installs."""

COMPATIBLE_FROM: Final = 1
"""The oldest schema version whose code can still work with this schema."""


class SchemaMigration(NamedTuple):
    version: int
    statements: list[str]


_FOR: Final = re.compile(r"^-- for: ([a-z ]+)\n(.*?)^-- end\n", re.MULTILINE | re.DOTALL)
_WORD: Final = re.compile(r"( ?)\{(\w+)(?: (\w+))?\}")


def migrations(package: str, *, prefix: str = TABLE_PREFIX) -> list[SchemaMigration]:
    """The migrations in the dialect of a package."""
    numbered = [
        SchemaMigration(int(name), render_migration(text, package, prefix=prefix))
        for name, text in read_sql(COMMON_PACKAGE, "migrations").items()
    ]
    numbered.sort()
    assert [step.version for step in numbered] == list(range(1, SCHEMA_VERSION + 1)), numbered
    return numbered


def render_migration(text: str, package: str, *, prefix: str = TABLE_PREFIX) -> list[str]:
    """The statements of a migration in the dialect of a package."""
    dialect = package.rpartition(".")[2]
    words = fragments_of(read_sql(package, "queries")["words"])

    def select(match: re.Match[str]) -> str:
        return match[2] if dialect in match[1].split() else ""

    def replace(match: re.Match[str]) -> str:
        space, name, column = match.groups(default="")
        word = words[name].replace("#", column)
        return _WORD.sub(replace, space + word) if word else ""

    return [
        _WORD.sub(replace, statement).replace(TABLE_PREFIX, prefix)
        for statement in split_statements(_FOR.sub(select, text))
    ]


def check_version(url: str, *, installed: int, compatible_from: int) -> None:
    """Raise when the installed schema does not fit this code.

    Raises:
        SchemaMissing: No schema is installed.
        SchemaOutdated: The schema is older than this code needs.
        SchemaTooNew: The schema needs newer code.
    """
    if installed == 0:
        raise SchemaMissing(url)
    if compatible_from > SCHEMA_VERSION:
        raise SchemaTooNew(known=SCHEMA_VERSION, compatible_from=compatible_from)
    if installed < SCHEMA_VERSION:
        raise SchemaOutdated(found=installed, needed=SCHEMA_VERSION)
