"""Finds the driver's connection inside a connection of Django or a session of SQLAlchemy.

Statements run on the driver's connection. SQLAlchemy must know that a transaction has begun, or
its commit would do nothing. Django must know of errors, or it would keep a broken connection. This
module imports no library: the caller who passes such an object has imported it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tickwork.errors import OutcomeUnknown

_PLAIN: Final = (
    ("sqlalchemy.engine", "Connection"),
    ("sqlalchemy.orm", "Session"),
    ("sqlalchemy.orm", "scoped_session"),
)
_ASYNC: Final = (
    ("sqlalchemy.ext.asyncio", "AsyncConnection"),
    ("sqlalchemy.ext.asyncio", "AsyncSession"),
    ("sqlalchemy.ext.asyncio", "async_scoped_session"),
)
_DJANGO: Final = ("django.db.backends.base.base", "BaseDatabaseWrapper")
_DJANGO_PROXY: Final = ("django.utils.connection", "ConnectionProxy")
SESSIONS: Final = (
    "a Connection or Session of SQLAlchemy, plain or async, or a connection of Django, over one"
    " of them"
)


def is_instance_of(thing: object, *kinds: tuple[str, str]) -> bool:
    """Whether it is an instance of one of these classes, each a module and a name in it.

    >>> is_instance_of(1, ("builtins", "int")), is_instance_of(1, ("asyncpg", "Connection"))
    (True, False)
    """
    classes = (getattr(sys.modules.get(module), name, None) for module, name in kinds)
    return isinstance(thing, tuple(kind for kind in classes if isinstance(kind, type)))


def is_session(thing: object) -> bool:
    return is_instance_of(thing, *_PLAIN)


def is_async_session(thing: object) -> bool:
    return is_instance_of(thing, *_ASYNC)


def find_django_connection(thing: object) -> Any:
    """This connection of Django, or the one of a proxy like ``django.db.connection``; or None."""
    if is_instance_of(thing, _DJANGO_PROXY):
        named = vars(thing)
        thing = named["_connections"][named["_alias"]]
    return thing if is_instance_of(thing, _DJANGO) else None


@contextmanager
def reporting_errors(connection: object) -> Iterator[None]:
    """Report errors of the driver to Django, which raises its own and checks the connection."""
    django_connection = find_django_connection(connection)
    if django_connection is None:
        yield
        return
    try:
        with django_connection.wrap_database_errors:
            yield
    except OutcomeUnknown:
        django_connection.errors_occurred = True  # the connection is broken
        raise


def driver_connection(connection_or_session: object) -> object:
    """The driver's connection; a session begins its transaction if none is open.

    A connection of Django is opened if it is closed.
    """
    of_django = find_django_connection(connection_or_session)
    if of_django is not None:
        # Django only marks a transaction that must be rolled back: the database would go on.
        of_django.validate_no_broken_transaction()
        of_django.ensure_connection()
        return of_django.connection
    if not is_session(connection_or_session):
        return connection_or_session
    connection: Any = connection_or_session
    if not is_instance_of(connection_or_session, _PLAIN[0]):
        connection = connection.connection()
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


async def async_driver_connection(connection_or_session: object) -> object:
    if not is_async_session(connection_or_session):
        return connection_or_session
    connection: Any = connection_or_session
    if not is_instance_of(connection_or_session, _ASYNC[0]):
        connection = await connection.connection()
    if not connection.in_transaction():
        await connection.begin()
    driver = (await connection.get_raw_connection()).driver_connection
    if is_instance_of(driver, ("asyncpg", "Connection")) and not driver.is_in_transaction():
        # For asyncpg, SQLAlchemy itself sends BEGIN, together with the first statement.
        await connection.exec_driver_sql("SELECT 1")
    return driver
