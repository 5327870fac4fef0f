"""Numbered migrations: which there are, and which a database still needs."""

from importlib.resources import files
from typing import Final, NamedTuple

from tickwork.errors import SchemaMissing, SchemaOutdated, SchemaTooNew
from tickwork.stores._sql.queries import TABLE_PREFIX, split_statements

SCHEMA_VERSION: Final = 3
"""What this code installs."""

COMPATIBLE_FROM: Final = 1
"""The oldest code that can still work with what this code installs."""


class Migration(NamedTuple):
    """One step from a version of the schema to the next."""

    version: int
    statements: list[str]


def migrations(package: str, *, prefix: str = TABLE_PREFIX) -> list[Migration]:
    """All steps of a dialect, in order, without a gap."""
    found = []
    for file in files(package).joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            text = file.read_text(encoding="utf-8").replace(TABLE_PREFIX, prefix)
            found.append(Migration(int(file.name.removesuffix(".sql")), split_statements(text)))
    found.sort()
    assert [step.version for step in found] == list(range(1, SCHEMA_VERSION + 1)), found
    return found


def check_version(url: str, *, installed: int, compatible_from: int) -> None:
    """Raise when this code and the installed schema do not fit.

    Raises:
        SchemaMissing: nothing is installed.
        SchemaOutdated: the schema is older than this code needs.
        SchemaTooNew: a newer version has left this code behind.
    """
    if installed == 0:
        raise SchemaMissing(url)
    if compatible_from > SCHEMA_VERSION:
        raise SchemaTooNew(known=SCHEMA_VERSION, compatible_from=compatible_from)
    if installed < SCHEMA_VERSION:
        raise SchemaOutdated(found=installed, needed=SCHEMA_VERSION)
