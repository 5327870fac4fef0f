"""Applications for tests: in memory, on a clock that the test moves."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tickwork._dispatch.async_connections import is_async_connection
from tickwork._kernel.clock import Clock
from tickwork._kernel.instants import When, as_instant
from tickwork._stores._sql.caller_connection import type_name
from tickwork.app.tickwork import Tickwork
from tickwork.errors import WrongConnection
from tickwork.testing import caller_transaction
from tickwork.testing.assertions import watching
from tickwork.testing.clock import ManualClock
from tickwork.testing.memory_store import AnyConnectionStore


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
        "memory://",
        clock=clock,
        store=AnyConnectionStore(clock),
        handler_paths=handler_paths,
        **settings,
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

    A dispatch with ``using`` is in memory at once, too, whatever its connection is and whether
    that is committed or rolled back.

    Raises:
        AlreadyStarted: A worker runs in the background. Stop it first.
    """
    clock = _clock(start, clock)
    with app._services.swapped(AnyConnectionStore(clock), clock), watching(app):
        yield clock


class isolated:  # noqa: N801  # used as a function
    """Let the application use only this connection of yours while the block runs.

    Everything happens in your transaction: no other connection sees it, and it is gone when
    you roll back. The connection must be to the application's own database, as for ``using``.
    The block gets the application's clock: its own, unless one is given::

        with testing.isolated(app, connection):
            sign_up("ann")
            testing.assert_dispatched(app, "welcome")
        connection.rollback()

    Given a session that joins a transaction of the test, its connection is used, so that the
    code under test may commit and roll back the session. With an async connection or session,
    use ``async with``, and the functions of ``testing.aio``.

    What was committed before is still there: a schedule that a worker has stored keeps its next
    instant, which may be far from the time of a manual clock. Use a database without workers.

    Raises:
        WrongConnection: It is a connection to another database, or of another kind, or it
            commits each statement.
    """

    def __init__(
        self, app: Tickwork, connection: object, *, clock: ManualClock | None = None
    ) -> None:
        self._app = app
        self._given = connection
        self._connection = caller_transaction.outer_connection(connection)
        self._clock = clock
        self._stack = ExitStack()

    def __enter__(self) -> Clock:
        store = self._app._services.opened_store
        if is_async_connection(self._connection):
            raise WrongConnection(
                self._app.settings.url,
                f"It is a {type_name(self._given)}, which only coroutines can use.",
                takes='it to "async with testing.isolated(app, connection):"',
            )
        borrowed = store.using(self._connection)
        caller_transaction.begin(self._connection, url=self._app.settings.url)
        guard = caller_transaction.guard_attempts(self._connection)
        with ExitStack() as stack:
            stack.enter_context(self._app._services.swapped(borrowed, self._clock))
            stack.enter_context(watching(self._app))
            if guard is not None:
                self._app._services.passes.adapt_definition = guard
            self._stack = stack.pop_all()
        return self._app.clock

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    async def __aenter__(self) -> Clock:
        import asyncio  # noqa: PLC0415  # only with coroutines

        from tickwork.testing.loop_store import store_on_loop, wait_on  # noqa: PLC0415

        services, loop = self._app._services, asyncio.get_running_loop()
        if not is_async_connection(self._connection):
            return await services.bridge.call(self.__enter__)
        borrowed = store_on_loop(services.opened_store, self._connection, loop)
        await caller_transaction.begin_async(self._connection, url=self._app.settings.url)
        guard = await caller_transaction.guard_attempts_async(self._connection)

        def start() -> None:
            stack.enter_context(watching(self._app))
            services.passes.adapt_definition = guard
            services.passes.wait_for = wait_on(loop)

        with ExitStack() as stack:
            stack.enter_context(services.swapped(borrowed, self._clock))
            await services.bridge.call_in_new_thread(start)
            self._stack = stack.pop_all()
        return self._app.clock

    async def __aexit__(self, *error: object) -> None:
        self._stack.close()


def _clock(start: When | None, clock: ManualClock | None) -> ManualClock:
    if clock is None:
        return ManualClock() if start is None else ManualClock(as_instant(start, option="start"))
    if start is not None:
        clock.set(as_instant(start, option="start"))
    return clock


def _package_of(names: dict[str, Any]) -> str:
    name: str = names.get("__package__") or names.get("__name__", "__main__")
    return name.partition(".")[0]
