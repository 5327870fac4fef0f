"""What a caller hands over may be a session around a connection: SQLAlchemy's.

Verbs happen on the driver's connection underneath. What is around it must know that a transaction
has begun, or its commit would do nothing. No library is loaded to find out what a thing is:
whoever has such a thing has loaded it.
"""

import sys
from typing import Any, Final

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
SESSIONS: Final = "a Connection or Session of SQLAlchemy, plain or async, over one of them"


def is_of(thing: object, *kinds: tuple[str, str]) -> bool:
    """Whether it is of one of these kinds, each a module and a name in it.

    >>> is_of(1, ("builtins", "int")), is_of(1, ("asyncpg", "Connection"))
    (True, False)
    """
    found = (getattr(sys.modules.get(module), name, None) for module, name in kinds)
    return isinstance(thing, tuple(kind for kind in found if isinstance(kind, type)))


def is_session(thing: object) -> bool:
    """Whether verbs happen on what is underneath, to be asked for by :func:`underneath`."""
    return is_of(thing, *_PLAIN)


def is_async_session(thing: object) -> bool:
    """Whether they happen on what is underneath, by :func:`underneath_async`."""
    return is_of(thing, *_ASYNC)


def underneath(lent: object) -> object:
    """The driver's connection, with a transaction of the session's begun."""
    if not is_session(lent):
        return lent
    connection: Any = lent
    if not is_of(lent, _PLAIN[0]):
        connection = connection.connection()
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


async def underneath_async(lent: object) -> object:
    """The same for an async one."""
    if not is_async_session(lent):
        return lent
    connection: Any = lent
    if not is_of(lent, _ASYNC[0]):
        connection = await connection.connection()
    if not connection.in_transaction():
        await connection.begin()
    driver = (await connection.get_raw_connection()).driver_connection
    if is_of(driver, ("asyncpg", "Connection")) and not driver.is_in_transaction():
        # Here SQLAlchemy itself sends a BEGIN, and does so with its first statement.
        await connection.exec_driver_sql("SELECT 1")
    return driver
