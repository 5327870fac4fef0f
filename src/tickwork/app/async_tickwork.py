"""The methods of an application for coroutines.

Each call runs the whole operation in one thread. ``docs/async_methods.py`` writes the methods
that are one call; a test compares the signatures of all with those of the application.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tickwork._control.async_schedules import AsyncLimits, AsyncSchedules
from tickwork._control.cleanup import PRUNE_BATCH
from tickwork._control.locks import Lock
from tickwork._define.options import Duration
from tickwork._dispatch.dispatch import Dispatcher
from tickwork._dispatch.jobs import AsyncDraft, AsyncOpenDraft, JobOrName
from tickwork._dispatch.runs import RunHandle
from tickwork._dispatch.thread_bridge import as_awaitable
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When
from tickwork._stores.contract import Pause, Pruned, WorkerRow
from tickwork.app.composition import Services

if TYPE_CHECKING:
    from tickwork._dispatch.emitter import Emitted
    from tickwork._domain.explain import Explanation
    from tickwork._domain.health import Check
    from tickwork._worker.options import WorkerOptions

T = TypeVar("T")


class AsyncTickwork:
    """``app.aio``: the methods of the application for coroutines.

    >>> import asyncio
    >>> from tickwork import Tickwork
    >>> app = Tickwork("memory://")
    >>> @app.job
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> async def main() -> int:
    ...     run = await app.aio.dispatch("double", number=21)
    ...     await app.aio.run()
    ...     return await run.aio.result()
    >>> asyncio.run(main())
    42
    """

    def __init__(self, services: Services, dispatcher: Dispatcher) -> None:
        self._services = services
        self._dispatcher = dispatcher
        self._bridge = services.bridge
        self.schedules: AsyncSchedules = AsyncSchedules(lambda: services.schedules, self._bridge)
        self.limits: AsyncLimits = AsyncLimits(lambda: services.limits, self._bridge)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def dispatch(self, job: JobOrName, /, *args: Any, **kwargs: Any) -> RunHandle[Any]:
        """As :meth:`Tickwork.dispatch`."""
        draft: AsyncOpenDraft = AsyncDraft(self._dispatcher)
        return await draft.dispatch(job, *args, **kwargs)

    async def emit(
        self,
        event: str,
        *,
        key: str,
        data: Any = None,
        tenant: str = "",
        using: object = None,
    ) -> "Emitted":
        """As :meth:`Tickwork.emit`. ``using`` is an async connection."""
        if using is None:
            return await self._call(
                lambda services: services.emitter.emit(
                    event, key=key, data=data, tenant=tenant, using=None
                )
            )
        emitter = await self._call(lambda services: services.emitter)
        # In a thread, because the clock may have to ask the database.
        new = await self._bridge.call(emitter.build, event, key=key, data=data, tenant=tenant)
        return await emitter.emit_using(using, new)

    async def run(self, batch: int = 32) -> int:
        """As :meth:`Tickwork.run`, in a thread of its own.

        If the task is cancelled, the current attempt is finished, and the other runs that
        were claimed are released.
        """
        stop = threading.Event()
        try:
            return await self._bridge.call_in_new_thread(
                lambda: self._services.passes.run(batch, stop)
            )
        finally:
            stop.set()

    async def execute(self, run_id: str) -> RunHandle[Any]:
        """As :meth:`Tickwork.execute`, in a thread of its own.

        If the task is cancelled, the attempt is finished all the same.
        """
        return await self._bridge.call_in_new_thread(self._services.execute, RunId(run_id))

    @asynccontextmanager
    async def running(
        self, options: "WorkerOptions | None" = None, **changes: Any
    ) -> AsyncIterator[None]:
        """Run a worker while the block runs. Coroutine handlers run on the loop of the caller.

        They can share clients, sessions and locks with the rest of the program. A handler that
        blocks the loop blocks the program.
        """
        services, loop = self._services, asyncio.get_running_loop()
        starting = self._bridge.submit_to_new_thread(
            lambda: services.start_worker(options, changes, loop=loop)
        )

        def stop() -> None:
            if starting.exception() is None:  # otherwise there may be another worker
                services.stop_worker()
                services.join_worker()

        try:
            await asyncio.shield(as_awaitable(starting))
            yield
        finally:
            # Submitted before it is awaited: a task that is cancelled here still stops the worker.
            await asyncio.shield(as_awaitable(self._bridge.submit_to_new_thread(stop)))

    def lock(self, name: str, ttl: Duration = "60s") -> AbstractAsyncContextManager[Lock]:
        """As :meth:`Tickwork.lock`: ``async with app.aio.lock("nightly"):``."""
        return self._hold(name, ttl)

    async def close(self) -> None:
        """As :meth:`Tickwork.close`."""
        await self._bridge.call_in_new_thread(self._services.close)

    async def _call(self, use: Callable[[Services], T]) -> T:
        # The service is built in the thread, too: that may open the database.
        return await self._bridge.call(use, self._services)

    @asynccontextmanager
    async def _hold(self, name: str, ttl: Duration) -> AsyncIterator[Lock]:
        block = _ThreadedBlock(lambda: self._services.locks.hold(name, as_duration(ttl)))
        try:
            lock = await self._bridge.call(block.enter)
        except asyncio.CancelledError:
            # The thread may have acquired the lock, or be about to.
            self._bridge.submit(block.leave)
            raise
        try:
            yield lock
        finally:
            # Submitted before it is awaited: a task that is cancelled here still releases it.
            await asyncio.shield(as_awaitable(self._bridge.submit(block.leave)))

    # From here on, docs/async_methods.py writes the methods.

    async def get_run(self, run_id: str) -> RunHandle[Any]:
        """As :meth:`Tickwork.get_run`."""
        return await self._call(lambda services: services.runs.handle(RunId(run_id)))

    async def due(self, limit: int = 100) -> list[Run]:
        """As :meth:`Tickwork.due`."""
        return await self._call(lambda services: services.passes.due(limit))

    async def pause(
        self,
        *,
        queue: str | None = None,
        job: str | None = None,
        note: str = "",
        until: When | None = None,
    ) -> Pause:
        """As :meth:`Tickwork.pause`."""
        return await self._call(
            lambda services: services.pauses.pause(queue=queue, job=job, note=note, until=until)
        )

    async def resume(self, *, queue: str | None = None, job: str | None = None) -> bool:
        """As :meth:`Tickwork.resume`."""
        return await self._call(lambda services: services.pauses.resume(queue=queue, job=job))

    async def pauses(self) -> list[Pause]:
        """As :meth:`Tickwork.pauses`."""
        return await self._call(lambda services: services.pauses.list())

    async def drain_worker(self, worker: str) -> WorkerRow:
        """As :meth:`Tickwork.drain_worker`."""
        return await self._call(lambda services: services.worker_requests.drain(worker))

    async def schema_version(self) -> int:
        """As :meth:`Tickwork.schema_version`."""
        return await self._call(lambda services: services.opened_store.schema_version())

    async def install(self) -> int:
        """As :meth:`Tickwork.install`."""
        return await self._call(lambda services: services.install())

    async def prune(
        self,
        days: float = 30,
        *,
        batch: int = PRUNE_BATCH,
        on_batch: Callable[[Pruned], object] | None = None,
    ) -> Pruned:
        """As :meth:`Tickwork.prune`."""
        return await self._call(
            lambda services: services.cleanup.prune(days, batch=batch, on_batch=on_batch)
        )

    async def cancel_orphans(self, days: float = 30) -> int:
        """As :meth:`Tickwork.cancel_orphans`."""
        return await self._call(lambda services: services.cleanup.cancel_orphans(days))

    async def explain(self, what: str, *, tenant: str = "") -> "Explanation":
        """As :meth:`Tickwork.explain`."""
        return await self._call(lambda services: services.inspector.explain(what, tenant=tenant))

    async def check_health(self) -> "list[Check]":
        """As :meth:`Tickwork.check_health`."""
        return await self._call(lambda services: services.check_health())

    async def check_worker(self) -> "Check":
        """As :meth:`Tickwork.check_worker`."""
        return await self._call(lambda services: services.check_worker())

    async def status(self) -> dict[str, Any]:
        """As :meth:`Tickwork.status`."""
        return await self._call(lambda services: asdict(services.inspector.status()))

    async def unlock(self, name: str) -> bool:
        """As :meth:`Tickwork.unlock`."""
        return await self._call(lambda services: services.locks.release(name))

    # The end of these methods.


class _ThreadedBlock:
    """A context manager that one thread enters and another leaves, perhaps before it is entered."""

    def __init__(self, make: Callable[[], AbstractContextManager[Lock]]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._is_left = False
        self._entered: AbstractContextManager[Lock] | None = None

    def enter(self) -> Lock:
        block = self._make()
        lock = block.__enter__()
        with self._guard:
            if not self._is_left:
                self._entered = block
                return lock
        block.__exit__(None, None, None)
        return lock

    def leave(self) -> None:
        with self._guard:
            self._is_left = True
            block, self._entered = self._entered, None
        if block is not None:
            block.__exit__(None, None, None)
