"""Refuses the database in tests in which Django refuses queries.

Only a test that declares a database gets a test database. In any other, tickwork would use the
real one, on connections of its own.
"""

from contextlib import nullcontext
from typing import Any, Final

from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tickwork.errors import DatabaseNotAllowed

_DJANGO: Final = "django.test.testcases"
_OF_TESTS: Final = (_DJANGO, "pytest_django.plugin")
"""The modules that replace methods of connections while a test runs."""
_IN_COROUTINE: Final = (
    "You cannot call this from a coroutine: it would block the event loop, outside of the "
    "transaction of the test. Await the same method of aio, for example job.aio.dispatch(...)."
)


def check_access(alias: str) -> None:
    """Check that the test that runs, if any, may use this database.

    Raises:
        DatabaseNotAllowed: Django, or pytest-django, refuses its queries.
        SynchronousOnlyOperation: A coroutine of a test called a method that blocks.
    """
    # A SimpleTestCase replaces methods of the connections of its thread.
    connect: Any = vars(connections[alias]).get("connect")
    is_refused = type(connect).__module__ == _DJANGO
    # From Django 5.2 on it also replaces one of all connections, as pytest-django does.
    ensure: Any = BaseDatabaseWrapper.ensure_connection
    is_replaced = ensure.__module__ in _OF_TESTS
    if not (is_refused or is_replaced):
        return
    try:
        if is_refused:
            connect()
        if is_replaced:
            ensure(_ClosedConnection(alias))
    except SynchronousOnlyOperation as error:
        raise SynchronousOnlyOperation(_IN_COROUTINE) from error
    except (AssertionError, RuntimeError) as refusal:
        raise DatabaseNotAllowed(alias, str(refusal)) from None


class _ClosedConnection:
    """What ``ensure_connection`` uses of a connection. It never connects."""

    connection = None
    in_atomic_block = False
    closed_in_transaction = False
    wrap_database_errors = nullcontext()

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def ensure_connection(self) -> None: ...

    def connect(self) -> None: ...
