"""Applications for tests: in memory, on a clock that the test moves."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tickwork._kernel.clock import Clock
from tickwork._kernel.instants import When, as_instant
from tickwork.app import Tickwork
from tickwork.stores.memory import MemoryStore
from tickwork.testing.assertions import watching
from tickwork.testing.clock import ManualClock


def app(
    *,
    start: When | None = None,
    clock: ManualClock | None = None,
    handler_paths: Iterable[str] | None = None,
    **settings: Any,
) -> Tickwork:
    """Make an application in memory, on a clock that stands still until the test moves it.

    It is an ordinary ``Tickwork`` that needs no setup. It is closed at the end of a ``with``
    block. Its time begins at ``start``, or at the time of ``clock``:

    >>> from tickwork import testing
    >>> with testing.app(start="2026-03-01T09:00:00+01:00") as app:
    ...     app.clock.now().isoformat()
    '2026-03-01T08:00:00+00:00'
    """
    if handler_paths is None:
        handler_paths = [_package_of(sys._getframe(1).f_globals)]
    clock = _clock(start, clock)
    return Tickwork(
        "memory://", clock=clock, store=MemoryStore(clock), handler_paths=handler_paths, **settings
    )


@contextmanager
def swap(
    app: Tickwork, *, start: When | None = None, clock: ManualClock | None = None
) -> Iterator[ManualClock]:
    """Move your application into memory while the block runs.

    Its definitions stay. Its database is not opened. The block gets the application's clock.
    Afterwards the application uses its own database and clock again::

        with testing.swap(shop.app) as clock:
            sign_up("ann")
            testing.assert_dispatched(shop.app, "welcome")

    Raises:
        AlreadyStarted: A worker runs in the background. Stop it first.
    """
    clock = _clock(start, clock)
    with app._services.swapped(MemoryStore(clock), clock), watching(app):
        yield clock


@contextmanager
def isolated(
    app: Tickwork, connection: object, *, clock: ManualClock | None = None
) -> Iterator[Clock]:
    """Let the application use only this connection of yours while the block runs.

    Everything happens in your transaction: no other connection sees it, and it is gone when
    you roll back. The connection must be to the application's own database, as for ``using``.
    The block gets the application's clock: its own, unless one is given::

        with testing.isolated(app, connection):
            sign_up("ann")
            testing.assert_dispatched(app, "welcome")
        connection.rollback()

    Raises:
        WrongConnection: It is a connection to another database, or of another kind.
    """
    with app._services.swapped(app._services.opened_store.using(connection), clock), watching(app):
        yield app.clock


def _clock(start: When | None, clock: ManualClock | None) -> ManualClock:
    if clock is None:
        return ManualClock() if start is None else ManualClock(as_instant(start, option="start"))
    if start is not None:
        clock.set(as_instant(start, option="start"))
    return clock


def _package_of(names: dict[str, Any]) -> str:
    name: str = names.get("__package__") or names.get("__name__", "__main__")
    return name.partition(".")[0]
