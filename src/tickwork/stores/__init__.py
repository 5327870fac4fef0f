"""Stores keep runs and schedules. ``open_store(url)`` opens the store that a URL names."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tickwork.errors import InvalidStoreUrl
from tickwork.stores.contract import Store

__all__ = ["Store", "open_store", "would_install_block"]


def open_store(url: str, **options: Any) -> Store:
    """Open the store that a URL names. The store connects when it is first used.

    ``sqlite:///relative.db`` and ``sqlite:////absolute.db`` name a file, ``sqlite://`` a store
    in memory for this process, ``postgresql://user@host/database`` and
    ``mysql://user@host/database`` (or ``mariadb://``) a server, ``memory://`` a
    reference implementation in plain Python, for tests. Options of a store are keyword
    arguments, or parameters of the URL: ``sqlite:///jobs.db?synchronous=NORMAL``.

    Raises:
        InvalidStoreUrl: the URL names no store.
        DriverMissing: the store needs a driver that is not installed.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidStoreUrl(url, f"{error}.") from None
    scheme = parts.scheme.partition("+")[0]
    if scheme == "memory":
        from tickwork.stores.memory import MemoryStore  # noqa: PLC0415  # loaded on demand

        return MemoryStore(**options)
    if scheme == "sqlite":
        from tickwork.stores.sqlite.store import SqliteStore  # noqa: PLC0415

        if parts.netloc:
            raise InvalidStoreUrl(url, "a path needs three slashes, as in sqlite:///jobs.db.")
        options = {**dict(parse_qsl(parts.query)), **options}
        unknown = options.keys() - {"synchronous", "busy_timeout", "prefix", "clock"}
        if unknown:
            raise InvalidStoreUrl(url, f"there is no option {min(unknown)!r}.")
        return SqliteStore(unquote(parts.path[1:]), **options)
    if scheme in {"postgresql", "postgres"}:
        from tickwork.stores.postgres.store import PostgresStore  # noqa: PLC0415

        return PostgresStore(url, **options)
    if scheme in {"mysql", "mariadb"}:
        from tickwork.stores.mysql.store import MysqlStore  # noqa: PLC0415

        return MysqlStore(url, **options)
    known = "sqlite, postgresql, mysql, mariadb or memory"
    found = f"got {scheme!r}" if scheme else "but the URL has none"
    raise InvalidStoreUrl(url, f"the scheme must be {known}, {found}.")


def would_install_block(connection: object, store: Store) -> bool:
    """Whether creating the tables would block on the open transaction of this connection.

    SQLite has one write lock, which the caller's transaction may hold. Connections of ``sqlite3``
    and aiosqlite, and sessions of SQLAlchemy, report whether a transaction is open.
    """
    in_transaction = getattr(connection, "in_transaction", False)
    if not (in_transaction() if callable(in_transaction) else in_transaction):
        return False
    from tickwork.stores.sqlite.store import SqliteStore  # noqa: PLC0415  # loaded on demand

    return isinstance(store, SqliteStore) and not store.is_installed()
