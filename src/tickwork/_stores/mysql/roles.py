"""The roles of a database and their privileges, as statements for an administrator."""

from collections.abc import Sequence
from typing import Final

from tickwork._stores._sql.script import WORK, Tables

_ADMIN: Final = f"{WORK}, CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW"


def role_statements(roles: Sequence[str], found: Tables, grants: list[str]) -> list[str]:
    """Create the roles and grant the privileges; those of the administrator on the database.

    New tables of a later version have no name yet.
    """
    del found  # privileges on the database need no names of tables
    return [
        *(f"CREATE ROLE IF NOT EXISTS {role}" for role in roles),
        *grants,
        f"SET @grant = concat('GRANT {_ADMIN} ON `', database(), '`.* TO tickwork_admin')",
        "PREPARE tickwork_grant FROM @grant",
        "EXECUTE tickwork_grant",
        "DEALLOCATE PREPARE tickwork_grant",
    ]
