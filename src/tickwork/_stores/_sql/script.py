"""The schema and the privileges as SQL, for tools that execute it themselves.

No driver is needed, and no connection.
"""

import re
from importlib import import_module
from typing import Final, NamedTuple

from tickwork._dialects import DIALECT_BY_NAME
from tickwork._stores._sql.migrate import (
    COMPATIBLE_FROM,
    SCHEMA_VERSION,
    SchemaMigration,
    migrations,
)
from tickwork._stores._sql.queries import TABLE_PREFIX, Queries

_TABLE: Final = re.compile(r"CREATE (?:TABLE|(?:OR REPLACE )?VIEW) (\w+)")
_SEQUENCE: Final = re.compile(r"CREATE SEQUENCE (\w+)")
_HEAD: Final = re.compile(r"\s*[(;]|\s+(?:AS|ON|WITH|ADD|VALUES|SELECT)\b|\n")


class SchemaStep(NamedTuple):
    """One version of the schema, and the beginning of each of its statements."""

    version: int
    statements: list[str]


def schema_steps(dialect: str, *, since: int = 0) -> list[SchemaStep]:
    """The steps from a version to the current one, for people."""
    return [
        SchemaStep(step.version, [_HEAD.split(text, maxsplit=1)[0] for text in step.statements])
        for step in _migrations(dialect, since)
    ]


def schema_statements(dialect: str, *, since: int = 0, to: int) -> list[str]:
    """The statements that create the tables, or upgrade them from version ``since`` to ``to``."""
    steps = [step for step in _migrations(dialect, since) if step.version <= to]
    if not steps:
        return []
    query = Queries(DIALECT_BY_NAME[dialect].package)
    texts = [text for step in steps for text in step.statements]
    if since == 0 and query.optional.create_meta:
        texts = [*query("create_meta").parts, *texts]
    if query.optional.add_meta:
        texts += query("add_meta").parts
    texts += [
        re.sub(
            r":(version|compatible)\b(?:::\w+)?",
            lambda match: str(to if match[1] == "version" else COMPATIBLE_FROM),
            text,
        )
        for text in query("set_version").parts
    ]
    return texts


def schema_script(dialect: str, *, since: int = 0, prefix: str = TABLE_PREFIX) -> str:
    """The same as a script, in a transaction where the database has them for tables."""
    dialect_value = DIALECT_BY_NAME[dialect]
    texts = schema_statements(dialect, since=since, to=SCHEMA_VERSION)
    if not texts:
        return f"-- The tables are at version {since}: nothing to do.\n"
    return _script([*dialect_value.script_opening, *texts, *dialect_value.script_closing], prefix)


def _migrations(dialect: str, since: int) -> list[SchemaMigration]:
    steps = migrations(DIALECT_BY_NAME[dialect].package, prefix=TABLE_PREFIX)
    return [step for step in steps if step.version > since]


def _script(statements: list[str], prefix: str) -> str:
    return "".join(f"{text};\n\n" for text in statements).replace(TABLE_PREFIX, prefix)


# ---------------------------------------------------------------- privileges

ROLES: Final = ("tickwork_dispatch", "tickwork_work", "tickwork_read", "tickwork_admin")

_DISPATCH: Final = {
    "meta": "SELECT",
    "run": "SELECT, INSERT",
    "history": "SELECT",
    "limit": "SELECT",  # of jobs that another program defines
    "unique": "SELECT, INSERT, UPDATE",
    "audit": "INSERT",  # by `tickwork dispatch`
    "change_counter": "SELECT, UPDATE",  # only on MySQL
}
WORK: Final = "SELECT, INSERT, UPDATE, DELETE"


class Tables(NamedTuple):
    """What a schema consists of."""

    tables: list[str]
    views: set[str]
    sequences: list[str]


def grant_script(dialect: str, *, prefix: str = TABLE_PREFIX) -> str:
    """The roles and their privileges, as a script for an administrator of the database.

    The names of the roles have the same prefix as the tables.
    """
    dialect_value = DIALECT_BY_NAME[dialect]
    texts = [text for step in _migrations(dialect, 0) for text in step.statements]
    tables = ["tickwork_meta", *(match[1] for text in texts if (match := _TABLE.match(text)))]
    sequences = [match[1] for text in texts if (match := _SEQUENCE.match(text))]
    found = Tables(tables, {"tickwork_runs"}, sequences)
    module, _, name = dialect_value.roles.partition(":")
    add_roles = getattr(import_module(f"{dialect_value.package}.{module}"), name)
    return _script(add_roles(ROLES, found, _grants(found)), prefix)


def _grants(found: Tables) -> list[str]:
    grants = [
        f"GRANT {privileges} ON {TABLE_PREFIX}{name} TO tickwork_dispatch"
        for name, privileges in _DISPATCH.items()
        if TABLE_PREFIX + name in found.tables
    ]
    for table in found.tables:
        only_read = table in found.views or table == "tickwork_meta"
        grants.append(f"GRANT {'SELECT' if only_read else WORK} ON {table} TO tickwork_work")
        grants.append(f"GRANT SELECT ON {table} TO tickwork_read")
    return grants
