"""Stores keep runs and schedules. ``open_store(url)`` opens the store that a URL names."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tickwork._kernel.durations import parse_duration
from tickwork.errors import InvalidOption, InvalidStoreUrl
from tickwork.stores.contract import Store

__all__ = ["Store", "open_store", "schema_statements", "would_install_block"]


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
        return SqliteStore(unquote(parts.path[1:]), **{**_url_options(url), **options})
    if scheme in {"postgresql", "postgres"}:
        from tickwork.stores.postgres.store import PostgresStore  # noqa: PLC0415

        return PostgresStore(url, **options)
    if scheme in {"mysql", "mariadb"}:
        from tickwork.stores.mysql.store import MysqlStore  # noqa: PLC0415

        return MysqlStore(url, **options)
    known = "sqlite, postgresql, mysql, mariadb or memory"
    found = f"got {scheme!r}" if scheme else "but the URL has none"
    raise InvalidStoreUrl(url, f"the scheme must be {known}, {found}.")


def dialect_of(url: str) -> str | None:
    """The dialect of SQL that a URL needs: sqlite, postgresql, mysql, or None."""
    scheme = urlsplit(url).scheme.partition("+")[0]
    names = {"postgres": "postgresql", "mariadb": "mysql", "memory": None}
    return names.get(scheme, scheme)


def schema_statements(dialect: str, *, since: int = 0, to: int | None = None) -> list[str]:
    """The statements that create the tables, or upgrade them from version ``since``.

    For tools that manage the schema of a database, such as Alembic. ``dialect`` is ``sqlite``,
    ``postgresql`` or ``mysql``, which is also MariaDB's. The tables then have version ``to``,
    which is the current one unless given. No driver is needed:

    >>> schema_statements("sqlite", since=2)[0][:26]
    'CREATE TABLE tickwork_rate'

    Raises:
        InvalidOption: There is no such dialect, or no such version.
    """
    from tickwork.stores._sql import script  # noqa: PLC0415  # for migrations
    from tickwork.stores._sql.migrate import SCHEMA_VERSION  # noqa: PLC0415

    if dialect not in script.DIALECTS:
        known = ", ".join(script.DIALECTS)
        raise InvalidOption("dialect", dialect, f"must be one of {known}")
    if to is None:
        to = SCHEMA_VERSION
    if not since <= to <= SCHEMA_VERSION:
        raise InvalidOption("to", to, f"must be between {since} and {SCHEMA_VERSION}")
    return script.schema_statements(dialect, since=since, to=to)


def _url_options(url: str) -> dict[str, Any]:
    """The options in the URL of an SQLite file, converted to their types."""
    found: dict[str, Any] = {}
    for name, text in parse_qsl(urlsplit(url).query):
        if name not in _CONVERTERS:
            raise InvalidStoreUrl(url, f"there is no option {name!r}.")
        try:
            found[name] = _CONVERTERS[name](text)
        except ValueError as error:
            raise InvalidStoreUrl(url, f"{name} {error}") from None
    return found


def _as_wait(text: str) -> timedelta:
    try:
        length = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        length = parse_duration(text)
    if length < timedelta(0):
        raise ValueError(f"must not be negative, got {text}.")
    return length


_CONVERTERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "synchronous": str,
    "busy_timeout": _as_wait,
    "prefix": str,
}
"""The options that a URL can have."""


def would_install_block(connection: object, store: Store) -> bool:
    """Whether creating the tables would block on the open transaction of this connection.

    SQLite has one write lock, which the caller's transaction may hold. Connections of ``sqlite3``
    and aiosqlite, of Django, and sessions of SQLAlchemy report whether a transaction is open.
    """
    in_transaction = getattr(connection, "in_transaction", False) or getattr(
        connection, "in_atomic_block", False
    )
    if not (in_transaction() if callable(in_transaction) else in_transaction):
        return False
    from tickwork.stores.sqlite.store import SqliteStore  # noqa: PLC0415  # loaded on demand

    return isinstance(store, SqliteStore) and not store.is_installed()
