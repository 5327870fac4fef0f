"""The dialects of SQL: what their URLs are, and what they can do.

A new dialect is a package with queries and a store, and one more value in :data:`DIALECTS`. Its
package and its driver are loaded when a URL names it. This layer imports nothing of tickwork.
"""

from typing import Final, NamedTuple


class OptionalStatements(NamedTuple):
    """The named queries that only some dialects have; an operation does without the others.

    Queries are checked against these declarations when they are loaded.
    """

    accept_and_read: bool = False  # or else accept_runs, and then accepted_runs
    add_meta: bool = False  # or else set_version adds the row
    count_change: bool = False  # without notifications, listeners poll a counter
    count_gates: bool = False  # a store with one writer needs no gates
    create_meta: bool = False  # or else a migration creates the table
    drop_finished: bool = False  # or else finish_plain does it, too
    finish_all: bool = False  # the commit is sent with it
    has_run_table: bool = False  # where an installation is one transaction
    look_at_eras: bool = False  # or else ready runs have no eras
    move_together: bool = False  # or else each schedule on its own
    notify: bool = False


class Dialect(NamedTuple):
    """One dialect.

    ``opener`` is the module in its package, and the function, that open a URL; ``roles`` those that
    make the statements for roles, if the database has them.
    """

    name: str
    schemes: tuple[str, ...]
    package: str
    opener: str
    optional: OptionalStatements
    roles: str = ""
    memory_schemes: tuple[str, ...] = ()  # of databases that exist only in this process
    is_embedded: bool = False  # no server: URLs have no password, and one connection writes
    has_casts: bool = False  # :name::bigint, which other dialects leave out of common queries
    has_index_hints: bool = False  # FORCE INDEX (name), likewise
    script_opening: tuple[str, ...] = ()
    script_closing: tuple[str, ...] = ()


DIALECTS: Final = (
    Dialect(
        "sqlite",
        ("sqlite",),
        "tickwork._stores.sqlite",
        "url:open_url",
        OptionalStatements(drop_finished=True, has_run_table=True),
        memory_schemes=("memory",),
        is_embedded=True,
        script_opening=("BEGIN IMMEDIATE",),
        script_closing=("COMMIT",),
    ),
    Dialect(
        "postgresql",
        ("postgresql", "postgres"),
        "tickwork._stores.postgres",
        "store:PostgresStore",
        OptionalStatements(
            accept_and_read=True,
            count_gates=True,
            create_meta=True,
            finish_all=True,
            has_run_table=True,
            look_at_eras=True,
            move_together=True,
            notify=True,
        ),
        roles="roles:role_statements",
        has_casts=True,
        script_opening=("BEGIN",),
        script_closing=("COMMIT",),
    ),
    Dialect(
        "mysql",
        ("mysql", "mariadb"),
        "tickwork._stores.mysql",
        "store:MysqlStore",
        OptionalStatements(
            add_meta=True, count_change=True, count_gates=True, create_meta=True, move_together=True
        ),
        roles="roles:role_statements",
        has_index_hints=True,
        # Every statement that changes a table commits by itself: a script has no transaction.
        script_opening=("SET NAMES utf8mb4",),
    ),
)

DIALECT_BY_NAME: Final = {each.name: each for each in DIALECTS}
DIALECT_BY_PACKAGE: Final = {each.package: each for each in DIALECTS}
DIALECT_BY_SCHEME: Final = {
    scheme: each for each in DIALECTS for scheme in (*each.schemes, *each.memory_schemes)
}


def scheme_of(url: str) -> str:
    """The scheme of a URL without the name of a driver; empty, if the URL has none.

    >>> scheme_of("postgresql+psycopg://db/jobs"), scheme_of("jobs.db")
    ('postgresql', '')
    """
    scheme, colon, _ = url.partition(":")
    return scheme.partition("+")[0].lower() if colon else ""


def is_embedded(url: str) -> bool:
    """Whether a URL names a file, or memory of this process, and no server."""
    dialect = DIALECT_BY_SCHEME.get(scheme_of(url))
    return dialect is not None and dialect.is_embedded
