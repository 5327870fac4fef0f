"""The roles of a database and their privileges, as statements for an administrator."""

from collections.abc import Sequence
from typing import Final

from tickwork._stores._sql.script import Tables

_CREATE: Final = """DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY[{names}] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I', role);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
    END LOOP;
    EXECUTE format('GRANT CREATE ON SCHEMA %I TO tickwork_admin', current_schema());
END
$$"""


def role_statements(roles: Sequence[str], found: Tables, grants: list[str]) -> list[str]:
    """Create the roles, make one of them the owner of all tables, and grant the privileges."""
    owners = [
        f"ALTER {'VIEW' if table in found.views else 'TABLE'} {table} OWNER TO tickwork_admin"
        for table in found.tables
    ]
    owners += [f"ALTER SEQUENCE {sequence} OWNER TO tickwork_admin" for sequence in found.sequences]
    # A dispatch reads the boundary of eras, and workers move it.
    sequence_grants = [
        f"GRANT {privileges} ON SEQUENCE {sequence} TO {role}"
        for sequence in found.sequences
        for privileges, role in (
            ("SELECT", "tickwork_dispatch"),
            ("SELECT, UPDATE", "tickwork_work"),
        )
    ]
    names = ", ".join(f"'{role}'" for role in roles)
    # The owner of a table grants the privileges on it.
    return [_CREATE.format(names=names), *owners, *grants, *sequence_grants]
