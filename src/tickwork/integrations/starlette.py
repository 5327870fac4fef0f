"""A worker inside a Starlette or FastAPI server.

It needs no package: the server calls what :func:`lifespan` returns.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Literal, Self

from tickwork.app.tickwork import Tickwork
from tickwork.errors import InvalidOption

__all__ = ["WorkerLifespan", "lifespan"]

LOOPS: Final = ("own", "server")


class WorkerLifespan:
    """Runs a worker while a server runs: a lifespan function, and an async context manager."""

    def __init__(self, app: Tickwork, *, loop: str, is_working: bool, options: Any) -> None:
        self._app = app
        self._loop = loop
        self._is_working = is_working
        self._options = options
        self._open: list[AbstractAsyncContextManager[None]] = []

    def __call__(self, _server: object) -> AbstractAsyncContextManager[None]:
        """Start a worker: the server calls this with itself."""
        return self._run()

    async def __aenter__(self) -> Self:
        entered = self._run()
        await entered.__aenter__()
        self._open.append(entered)
        return self

    async def __aexit__(self, *raised: Any) -> None:  # noqa: PYI036  # passed on
        await self._open.pop().__aexit__(*raised)

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        # The loop is that of the call: a test client has a new one each time.
        try:
            if not self._is_working:
                yield
            elif self._loop == "server":
                async with self._app.aio.running(**self._options):
                    yield
            else:
                async with self._running_apart():
                    yield
        finally:
            await self._app.aio.close()

    @asynccontextmanager
    async def _running_apart(self) -> AsyncIterator[None]:
        # In threads: starting waits for the database, and stopping for the running attempts.
        app = self._app
        await asyncio.to_thread(app.start, **self._options)
        try:
            yield
        finally:
            app.stop()
            await asyncio.shield(asyncio.to_thread(app.join))


def lifespan(
    app: Tickwork,
    *,
    loop: Literal["own", "server"] = "own",
    work: bool = True,
    **options: Any,
) -> WorkerLifespan:
    """Run a worker while the server runs, and close the application afterwards.

    Pass it to the server, or use it inside a lifespan function of your own::

        web = FastAPI(lifespan=lifespan(app, threads=4))

        @asynccontextmanager
        async def my_lifespan(_):
            async with lifespan(app, loop="server"):
                yield
            await engine.dispose()

    Every server process has a worker then. That is safe: each firing gives one run, however many
    processes there are. With ``loop="server"``, coroutine handlers run on the loop that serves
    requests, and can share an async engine or client with it. With ``work=False`` the processes
    only dispatch. Other options are those of :meth:`Tickwork.start`.

    Raises:
        InvalidOption: The loop is neither "own" nor "server".
    """
    if loop not in LOOPS:
        raise InvalidOption("loop", loop, 'must be "own" or "server"')
    return WorkerLifespan(app, loop=loop, is_working=work, options=options)
