"""The store of a Django project: in the ORM's transaction, or else on connections of its own."""

import threading
from datetime import datetime
from typing import Any, cast

from django.db import NotSupportedError, connections

from tickwork._stores import Store, open_store
from tickwork._stores.cipher import Cipher
from tickwork.integrations.django.database_access import check_access
from tickwork.integrations.django.database_url import check_vendor, database_url


class DjangoStore:
    """Every call takes part in the transaction that this thread has begun with Django.

    Other threads, such as those of a worker, have none: their calls use the store's own
    connections. The settings are read at each call, because tests replace the database.
    """

    def __init__(self, alias: str, cipher: Cipher | None = None) -> None:
        self._alias = alias
        self._cipher = cipher
        self._opening = threading.Lock()
        self._opened: tuple[object, Store] | None = None

    def as_store(self) -> Store:
        """This object, for type checkers: the other methods are those of the store in use."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current(), name)

    @property
    def caller_transaction(self) -> tuple[object, ...] | None:
        """The open ``atomic`` blocks of this thread; None if there are none."""
        connection = connections[self._alias]
        if connection.in_atomic_block:
            return tuple(connection.atomic_blocks)
        if connection.connection is not None and not connection.autocommit:
            return (connection.connection,)
        return None

    @property
    def connections_max(self) -> int:
        """How many connections of its own the store opens."""
        return self._own().connections_max

    def check_access(self) -> None:
        """Check that the test that runs, if any, may use the database.

        Raises:
            DatabaseNotAllowed: It may not.
        """
        check_access(self._alias)

    def database_time(self) -> datetime:
        """The time of the database in use."""
        return self._current().database_time()

    def with_cipher(self, cipher: Cipher) -> Store:
        """As :meth:`Store.with_cipher`."""
        return DjangoStore(self._alias, cipher).as_store()

    def using(self, connection: object) -> Store:
        """As :meth:`Store.using`."""
        return self._own().using(connection)

    def close(self) -> None:
        """Close the store's own connections. Those of Django stay open."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()

    def _current(self) -> Store:
        self.check_access()
        own = self._own()
        if self.caller_transaction is None:
            return own
        return own.using(connections[self._alias])

    def _own(self) -> Store:
        settings = connections[self._alias].settings_dict
        key = tuple(settings.get(name) for name in ("NAME", "HOST", "PORT", "USER"))
        opened = self._opened
        if opened is not None and opened[0] == key:
            return opened[1]
        with self._opening:
            if self._opened is None or self._opened[0] != key:
                if self._opened is not None:
                    self._opened[1].close()
                store = self._open(settings)
                self._opened = (
                    key,
                    store if self._cipher is None else store.with_cipher(self._cipher),
                )
            return self._opened[1]

    def _open(self, settings: dict[str, Any]) -> Store:
        vendor = connections[self._alias].vendor
        check_vendor(vendor, self._alias)
        if vendor != "sqlite":
            return open_store(database_url(vendor, settings))
        name = str(settings["NAME"])
        if name == ":memory:":
            raise NotSupportedError(
                "Tickwork cannot use a private database in memory: a worker needs a connection of "
                "its own. Name a file in DATABASES."
            )
        from tickwork._stores.sqlite.store import SqliteStore  # noqa: PLC0415  # loaded on demand

        return SqliteStore(name)
