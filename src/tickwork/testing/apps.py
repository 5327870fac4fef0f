"""Applications for tests: in memory, and on a clock that stands still."""

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
    """An application in memory, on a clock that stands still until the test moves it.

    It is one more ``Tickwork``, with nothing to set up, and closes itself at the end of a
    ``with`` block. Its time is the ``start``, or that of the ``clock``:

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
    """For a block: an application of yours, in memory instead of on its database.

    What it defines stays. Its database is not touched, nor even opened. The block gets the
    clock that the application has meanwhile; afterwards everything is as it was::

        with testing.swap(shop.app) as clock:
            sign_up("ann")
            testing.assert_dispatched(shop.app, "welcome")

    Raises:
        AlreadyStarted: The application has a worker in the background. Stop it first.
    """
    clock = _clock(start, clock)
    with app._services.swapped(MemoryStore(clock), clock), watching(app):
        yield clock


@contextmanager
def isolated(
    app: Tickwork, connection: object, *, clock: ManualClock | None = None
) -> Iterator[Clock]:
    """For a block: everything that the application does happens on this connection of yours.

    It happens in your transaction, and is gone when you roll back; nobody else ever sees it.
    The connection is one to the application's own database, as for ``using``. The block gets
    the clock that the application has meanwhile: its own, unless one is given::

        with testing.isolated(app, connection):
            sign_up("ann")
            testing.assert_dispatched(app, "welcome")
        connection.rollback()

    Raises:
        WrongConnection: It is of another kind, or leads elsewhere.
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
