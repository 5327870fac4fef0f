"""The operation of the migrations: the tables of one version of the schema."""

from typing import Any

from django.db.migrations.operations.base import Operation

from tickwork._stores import schema_statements
from tickwork.integrations.django.application import database_alias


class InstallSchema(Operation):
    """Create the tables of version 1, or upgrade them from the version before.

    Tables that ``tickwork install`` has created are left as they are. To migrate back to zero
    drops all tables. Backwards to another version nothing changes: older code can use them.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, version: int) -> None:
        self.version = version

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Nothing: the models of the admin are not managed."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Execute the statements of this version, unless the tables have it already."""
        connection = schema_editor.connection
        if connection.alias != database_alias():
            return
        if not schema_editor.collect_sql and _installed_version(connection) >= self.version:
            return
        for text in schema_statements(connection.vendor, since=self.version - 1, to=self.version):
            schema_editor.execute(text, params=None)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Drop all tables, if this is the first version."""
        connection = schema_editor.connection
        if connection.alias != database_alias() or self.version > 1:
            return
        schema_editor.execute("DROP VIEW tickwork_runs", params=None)
        for name in _tables(connection):
            if name.startswith("tickwork_") and name != "tickwork_runs":
                schema_editor.execute(f"DROP TABLE {name}", params=None)
        if connection.vendor == "postgresql":
            # A column of a table has it for its default.
            for sequence in ("tickwork_era", "tickwork_slot_number"):
                schema_editor.execute(f"DROP SEQUENCE IF EXISTS {sequence}", params=None)

    def describe(self) -> str:
        """For ``manage.py migrate --plan``."""
        return f"Install version {self.version} of the tables of tickwork"

    @property
    def migration_name_fragment(self) -> str:
        """For generated names of migrations."""
        return f"schema_{self.version}"


def _installed_version(connection: Any) -> int:
    if "tickwork_meta" not in _tables(connection):
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT version FROM tickwork_meta")
        row = cursor.fetchone()
    return 0 if row is None else int(row[0])


def _tables(connection: Any) -> list[str]:
    with connection.cursor() as cursor:
        tables = connection.introspection.get_table_list(cursor)
    return [table.name for table in tables]
