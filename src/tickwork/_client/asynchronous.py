"""The async door: the same verbs, each of them one hop to a thread around the whole of it.

A hop costs about 40 µs, so it is paid once for an operation and never for a statement. The
threads are tickwork's own, and as many as the store has connections: more would only wait
for one, and the loop's own threads are left to the program.

A task that is cancelled while it waits is told at once. What had begun is brought to its
end as a whole, what had not begun is left undone, and no thread stays behind.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from tickwork._client.locks import TTL_DEFAULT, Lock
from tickwork._client.thread_bridge import ThreadBridge
from tickwork._define.options import Length
from tickwork._domain.rates import Turn
from tickwork._domain.run import Run
from tickwork._domain.status import RunStatus
from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When
from tickwork.stores.contract import Attempt, LogLine, Pause, Pruned

if TYPE_CHECKING:
    from tickwork._client.async_schedules import AsyncLimits, AsyncSchedules
    from tickwork._client.jobs import Draft, Job, OpenDraft
    from tickwork._client.runs import RunHandle, Runs
    from tickwork._domain.explain import Explanation
    from tickwork._domain.health import Check
    from tickwork.app import Tickwork

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")


async def call_in_thread(
    bridge: ThreadBridge, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs
) -> T:
    """Do this in one of the threads, and return what it returns."""
    return await asyncio.wrap_future(bridge.submit(work, *args, **kwargs))


# ---------------------------------------------------------------- runs


class AsyncRun:
    """The verbs of a run, to be awaited: ``await run.aio.result()``."""

    __slots__ = ("_bridge", "_run", "_runs")

    def __init__(self, run: "RunHandle", runs: "Runs", bridge: ThreadBridge) -> None:
        self._run = run
        self._runs = runs
        self._bridge = bridge

    def __repr__(self) -> str:
        return f"<async {self._run!r}>"

    async def read(self) -> Run:
        """As :meth:`RunHandle.read`."""
        return await call_in_thread(self._bridge, self._run.read)

    async def status(self) -> RunStatus:
        """As :attr:`RunHandle.status`."""
        return (await self.read()).status

    async def attempts(self) -> list[Attempt]:
        """As :meth:`RunHandle.attempts`."""
        return await call_in_thread(self._bridge, self._run.attempts)

    async def log(self) -> list[LogLine]:
        """As :meth:`RunHandle.log`."""
        return await call_in_thread(self._bridge, self._run.log)

    async def turn(self) -> Turn | None:
        """As :meth:`RunHandle.turn`."""
        return await call_in_thread(self._bridge, self._run.turn)

    async def at(self, when: When) -> "RunHandle":
        """As :meth:`RunHandle.at`."""
        return await call_in_thread(self._bridge, self._run.at, when)

    async def delay(self, length: Length) -> "RunHandle":
        """As :meth:`RunHandle.delay`."""
        return await call_in_thread(self._bridge, self._run.delay, length)

    async def cancel(self, reason: str = "") -> bool:
        """As :meth:`RunHandle.cancel`."""
        return await call_in_thread(self._bridge, self._run.cancel, reason)

    async def retry(self) -> "RunHandle":
        """As :meth:`RunHandle.retry`."""
        return await call_in_thread(self._bridge, self._run.retry)

    async def wait(self, timeout: Length | None = None) -> RunStatus:  # noqa: ASYNC109  # as there
        """As :meth:`RunHandle.wait`. No thread is held meanwhile, however many wait."""
        return (await self._finished(timeout)).status

    async def result(self, timeout: Length | None = None) -> Any:  # noqa: ASYNC109  # as there
        """As :meth:`RunHandle.result`. No thread is held meanwhile, however many wait."""
        return self._runs.output(await self._finished(timeout))

    async def _finished(self, timeout: Length | None) -> Run:  # noqa: ASYNC109  # as there
        limit = None if timeout is None else as_duration(timeout)
        found = await call_in_thread(self._bridge, self._run.read)
        if found.is_finished:
            return found
        with self._runs.waits.joined(found.id) as finished:
            seconds = None if limit is None else limit.total_seconds()
            done, _ = await asyncio.wait([asyncio.wrap_future(finished)], timeout=seconds)
            for future in done:
                return future.result()
        assert limit is not None, self._run
        return await call_in_thread(self._bridge, self._runs.last_look, found.id, waited=limit)


# ---------------------------------------------------------------- dispatching


class AsyncDispatch(Generic[P]):
    """A dispatch of one job, to be awaited: ``await job.delay(10).aio.dispatch(to="ann")``."""

    __slots__ = ("_bridge", "_draft")

    def __init__(self, draft: "Draft[P]", bridge: ThreadBridge) -> None:
        self._draft = draft
        self._bridge = bridge

    async def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> "RunHandle":
        """As :meth:`Draft.dispatch`."""
        return await call_in_thread(self._bridge, self._draft.dispatch, *args, **kwargs)

    async def dispatch_many(self, calls: Iterable[Mapping[str, Any]]) -> "list[RunHandle]":
        """As :meth:`Draft.dispatch_many`."""
        # What gives the arguments may be bound to this thread.
        return await call_in_thread(self._bridge, self._draft.dispatch_many, list(calls))


class AsyncOpenDispatch:
    """A dispatch whose job comes last: ``await app.args(kind="daily").aio.dispatch("report")``."""

    __slots__ = ("_bridge", "_draft")

    def __init__(self, draft: "OpenDraft", bridge: ThreadBridge) -> None:
        self._draft = draft
        self._bridge = bridge

    async def dispatch(
        self, job: "str | Job[..., Any]", /, *args: Any, **kwargs: Any
    ) -> "RunHandle":
        """As :meth:`OpenDraft.dispatch`."""
        return await call_in_thread(self._bridge, self._draft.dispatch, job, *args, **kwargs)

    async def dispatch_many(
        self, job: "str | Job[..., Any]", /, calls: Iterable[Mapping[str, Any]]
    ) -> "list[RunHandle]":
        """As :meth:`OpenDraft.dispatch_many`."""
        return await call_in_thread(self._bridge, self._draft.dispatch_many, job, list(calls))


# ---------------------------------------------------------------- the application


class AsyncApp:
    """What an application does, to be awaited: ``await app.aio.dispatch("report")``."""

    def __init__(
        self,
        app: "Tickwork",
        bridge: ThreadBridge,
        *,
        run_until: Callable[[threading.Event, int], int],
        schedules: "AsyncSchedules",
        limits: "AsyncLimits",
    ) -> None:
        self._app = app
        self._bridge = bridge
        self._run_until = run_until
        self.schedules = schedules
        self.limits = limits

    def __repr__(self) -> str:
        return f"<async {self._app!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def dispatch(
        self, job: "str | Job[..., Any]", /, *args: Any, **kwargs: Any
    ) -> "RunHandle":
        """As :meth:`Tickwork.dispatch`."""
        return await call_in_thread(self._bridge, self._app.dispatch, job, *args, **kwargs)

    async def get_run(self, run_id: str) -> "RunHandle":
        """As :meth:`Tickwork.get_run`."""
        return await call_in_thread(self._bridge, self._app.get_run, run_id)

    async def run(self, batch: int = 32) -> int:
        """As :meth:`Tickwork.run`, in a thread of its own.

        When it is cancelled, the attempt that is being made is finished, and what was
        claimed besides is given back.
        """
        stop = threading.Event()
        try:
            return await asyncio.wrap_future(
                self._bridge.submit_to_new_thread(self._run_until, stop, batch)
            )
        except asyncio.CancelledError:
            stop.set()
            raise

    async def due(self, limit: int = 100) -> list[Run]:
        """As :meth:`Tickwork.due`."""
        return await call_in_thread(self._bridge, self._app.due, limit)

    async def execute(self, run_id: str) -> "RunHandle":
        """As :meth:`Tickwork.execute`, in a thread of its own.

        When it is cancelled, the attempt is finished all the same.
        """
        return await asyncio.wrap_future(
            self._bridge.submit_to_new_thread(self._app.execute, run_id)
        )

    async def pause(
        self,
        *,
        queue: str | None = None,
        job: str | None = None,
        note: str = "",
        until: When | None = None,
    ) -> Pause:
        """As :meth:`Tickwork.pause`."""
        return await call_in_thread(
            self._bridge, self._app.pause, queue=queue, job=job, note=note, until=until
        )

    async def resume(self, *, queue: str | None = None, job: str | None = None) -> bool:
        """As :meth:`Tickwork.resume`."""
        return await call_in_thread(self._bridge, self._app.resume, queue=queue, job=job)

    async def pauses(self) -> list[Pause]:
        """As :meth:`Tickwork.pauses`."""
        return await call_in_thread(self._bridge, self._app.pauses)

    async def schema_version(self) -> int:
        """As :meth:`Tickwork.schema_version`."""
        return await call_in_thread(self._bridge, self._app.schema_version)

    async def cancel_orphans(self, days: float = 30) -> int:
        """As :meth:`Tickwork.cancel_orphans`."""
        return await call_in_thread(self._bridge, self._app.cancel_orphans, days)

    async def install(self) -> int:
        """As :meth:`Tickwork.install`."""
        return await call_in_thread(self._bridge, self._app.install)

    async def prune(
        self,
        days: float = 30,
        *,
        batch: int = 1_000,
        on_batch: Callable[[Pruned], object] | None = None,
    ) -> Pruned:
        """As :meth:`Tickwork.prune`."""
        return await call_in_thread(
            self._bridge, self._app.prune, days, batch=batch, on_batch=on_batch
        )

    async def explain(self, what: str, *, tenant: str = "") -> "Explanation":
        """As :meth:`Tickwork.explain`."""
        return await call_in_thread(self._bridge, self._app.explain, what, tenant=tenant)

    async def examine(self) -> "list[Check]":
        """As :meth:`Tickwork.examine`."""
        return await call_in_thread(self._bridge, self._app.examine)

    async def status(self) -> dict[str, Any]:
        """As :meth:`Tickwork.status`."""
        return await call_in_thread(self._bridge, self._app.status)

    async def unlock(self, name: str) -> bool:
        """As :meth:`Tickwork.unlock`."""
        return await call_in_thread(self._bridge, self._app.unlock, name)

    def lock(self, name: str, ttl: Length = TTL_DEFAULT) -> AbstractAsyncContextManager[Lock]:
        """As :meth:`Tickwork.lock`: ``async with app.aio.lock("nightly"):``."""
        return self._locked(name, ttl)

    async def close(self) -> None:
        """As :meth:`Tickwork.close`."""
        await asyncio.wrap_future(self._bridge.submit_to_new_thread(self._app.close))

    @asynccontextmanager
    async def _locked(self, name: str, ttl: Length) -> AsyncIterator[Lock]:
        entering = _Entering(partial(self._app.lock, name, ttl))
        try:
            lock = await call_in_thread(self._bridge, entering.enter)
        except asyncio.CancelledError:
            # The thread may have got the lock, or be about to.
            self._bridge.submit(entering.abandon)
            raise
        try:
            yield lock
        finally:
            # Begun and not awaited first: a task that is cancelled here releases it all the same.
            await asyncio.shield(asyncio.wrap_future(self._bridge.submit(entering.abandon)))


class _Entering:
    """A block that is entered in one thread and left in another, or given up on the way."""

    def __init__(self, make: Callable[[], AbstractContextManager[Lock]]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._is_abandoned = False
        self._entered: AbstractContextManager[Lock] | None = None

    def enter(self) -> Lock:
        block = self._make()
        lock = block.__enter__()
        with self._guard:
            if not self._is_abandoned:
                self._entered = block
                return lock
        block.__exit__(None, None, None)
        return lock

    def abandon(self) -> None:
        with self._guard:
            self._is_abandoned = True
            block, self._entered = self._entered, None
        if block is not None:
            block.__exit__(None, None, None)
