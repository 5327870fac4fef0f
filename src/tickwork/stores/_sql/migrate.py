"""Numbered migrations, and the check that the schema and this code fit together."""

from typing import Final, NamedTuple

from tickwork.errors import SchemaMissing, SchemaOutdated, SchemaTooNew
from tickwork.stores._sql.queries import TABLE_PREFIX, read_sql, split_statements

SCHEMA_VERSION: Final = 5
"""The version of the schema that this code installs."""

COMPATIBLE_FROM: Final = 1
"""The oldest schema version whose code can still work with this schema."""


class SchemaMigration(NamedTuple):
    version: int
    statements: list[str]


def migrations(package: str, *, prefix: str = TABLE_PREFIX) -> list[SchemaMigration]:
    found = [
        SchemaMigration(int(name), split_statements(text.replace(TABLE_PREFIX, prefix)))
        for name, text in read_sql(package, "migrations").items()
    ]
    found.sort()
    assert [step.version for step in found] == list(range(1, SCHEMA_VERSION + 1)), found
    return found


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
