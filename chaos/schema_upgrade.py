"""Installs the tables of the next release while workers of this release are running.

There is no next release yet, so its migration is made up: one more column in the tables that all
workers use.
"""

import os
from importlib import import_module
from typing import Final

from chaos.journal import own_journal
from tickwork._stores import open_store
from tickwork._stores._sql import migrate
from tickwork._stores._sql.migrate import SCHEMA_VERSION, SchemaMigration

NEXT: Final = SCHEMA_VERSION + 1
STEP: Final = SchemaMigration(
    NEXT,
    [
        "ALTER TABLE tickwork_run ADD COLUMN chaos_colour INTEGER",
        "ALTER TABLE tickwork_history ADD COLUMN chaos_colour INTEGER",
        "CREATE INDEX chaos_colours ON tickwork_run (chaos_colour)",
    ],
)
HOMES: Final = {
    "sqlite": "tickwork._stores.sqlite.store",
    "postgresql": "tickwork._stores.postgres.schema",
    "mysql": "tickwork._stores.mysql.schema",
}


def main() -> None:
    """Install as the next release would."""
    url = os.environ["CHAOS_URL"]
    home = import_module(HOMES[url.partition(":")[0]])
    home.migrations = lambda package, *, prefix: [  # type: ignore[attr-defined]
        *migrate.migrations(package, prefix=prefix),
        STEP,
    ]
    home.SCHEMA_VERSION = NEXT  # type: ignore[attr-defined]
    journal = own_journal()
    for _ in range(20):
        try:
            journal.write("upgraded", version=open_store(url).install())
        except Exception as error:  # noqa: BLE001  # the database may be down
            journal.write("upgrade failed", error=f"{type(error).__name__}: {error}"[:300])
        else:
            return


if __name__ == "__main__":
    main()
