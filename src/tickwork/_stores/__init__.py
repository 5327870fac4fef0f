"""Stores keep runs and schedules. ``open_store(url)`` opens the store that a URL names."""

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from tickwork._dialects import DIALECT_BY_NAME, DIALECT_BY_SCHEME, is_embedded, scheme_of
from tickwork._masks.url import is_well_formed
from tickwork._stores.contract import Store
from tickwork.errors import InvalidOption, InvalidStoreUrl

__all__ = ["Store", "open_store", "schema_statements", "would_install_block"]


def open_store(url: str, **options: Any) -> Store:
    """Open the store that a URL names. The store connects when it is first used.

    ``sqlite:///relative.db`` and ``sqlite:////absolute.db`` name a file, ``memory://`` (or
    ``sqlite://``) a database of SQLite in the memory of this process,
    ``postgresql://user@host/database`` and ``mysql://user@host/database`` (or ``mariadb://``) a
    server. Options of a store are keyword arguments, or parameters of the URL:
    ``sqlite:///jobs.db?synchronous=NORMAL``.

    Raises:
        InvalidStoreUrl: the URL names no store.
        DriverMissing: the store needs a driver that is not installed.
    """
    dialect = DIALECT_BY_SCHEME.get(scheme_of(url))
    if not is_embedded(url) and not is_well_formed(url):
        # Each parser reads it in another way. A driver would show parts of the password.
        raise InvalidStoreUrl(url, "it is not well-formed.")
    try:
        urlsplit(url)
    except ValueError as error:
        raise InvalidStoreUrl(url, f"{error}.") from None
    if dialect is None:
        *others, last = DIALECT_BY_SCHEME
        scheme_found = f"got {scheme_of(url)!r}" if scheme_of(url) else "but the URL has none"
        raise InvalidStoreUrl(
            url, f"the scheme must be {', '.join(others)} or {last}, {scheme_found}."
        )
    module, _, name = dialect.opener.partition(":")
    # Loaded on demand: a program without such a store needs no driver.
    store: Store = getattr(import_module(f"{dialect.package}.{module}"), name)(url, **options)
    return store


def dialect_of(url: str) -> str | None:
    """The name of the dialect of the tables; None if the URL names no database with tables."""
    scheme = scheme_of(url)
    dialect = DIALECT_BY_SCHEME.get(scheme)
    return None if dialect is None or scheme in dialect.memory_schemes else dialect.name


def schema_statements(dialect: str, *, since: int = 0, to: int | None = None) -> list[str]:
    """The statements that create the tables, or upgrade them from version ``since``.

    For tools that manage the schema of a database, such as Alembic. ``dialect`` is ``sqlite``,
    ``postgresql`` or ``mysql``, which is also MariaDB's. The tables then have version ``to``,
    which is the current one unless given. No driver is needed:

    >>> schema_statements("sqlite")[1][:25]
    'CREATE TABLE tickwork_run'

    Raises:
        InvalidOption: There is no such dialect, or no such version.
    """
    from tickwork._stores._sql import script  # noqa: PLC0415  # for migrations
    from tickwork._stores._sql.migrate import SCHEMA_VERSION  # noqa: PLC0415

    if dialect not in DIALECT_BY_NAME:
        known = ", ".join(DIALECT_BY_NAME)
        raise InvalidOption("dialect", dialect, f"must be one of {known}")
    if to is None:
        to = SCHEMA_VERSION
    if not since <= to <= SCHEMA_VERSION:
        raise InvalidOption("to", to, f"must be between {since} and {SCHEMA_VERSION}")
    return script.schema_statements(dialect, since=since, to=to)


def would_install_block(connection: object, store: Store) -> bool:
    """Whether creating the tables would block on the open transaction of this connection.

    SQLite has one write lock, which the caller's transaction may hold. Connections of ``sqlite3``
    and aiosqlite, of Django, and sessions of SQLAlchemy report whether a transaction is open.
    """
    in_transaction = getattr(connection, "in_transaction", False) or getattr(
        connection, "in_atomic_block", False
    )
    if callable(in_transaction):
        in_transaction = in_transaction()
    return bool(in_transaction) and store.would_install_wait()
